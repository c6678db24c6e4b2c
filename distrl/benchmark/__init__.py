"""Programs that measure the parts, each alone, and a whole run."""
