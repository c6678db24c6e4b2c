"""Graph functions that build networks: layers, torsos, heads. No session, no loss."""
