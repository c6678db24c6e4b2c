"""What every part of distrl may use: records, specs, seeds, threads. No TensorFlow."""
