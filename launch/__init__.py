"""Sets distrl up on one machine and runs a whole cluster there. No TensorFlow."""
