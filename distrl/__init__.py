"""distrl: distributed reinforcement learning on TensorFlow graphs."""

__version__ = "0.1.0"
