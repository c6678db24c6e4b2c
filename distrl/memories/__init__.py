"""What stores experience and serves it again: NumPy only, vectorised over rows."""
