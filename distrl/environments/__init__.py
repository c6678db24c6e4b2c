"""Environments behind one vector interface: Gymnasium, Atari. No TensorFlow."""
