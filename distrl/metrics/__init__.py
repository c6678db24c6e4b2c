"""Numbers about a run: statistics, timers, and the places that they are written to."""
