"""Between batches and updates: the learning graph in its session, and its state."""
