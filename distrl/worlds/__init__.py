"""Who plays with whom, and in what order: worlds and their participants."""
