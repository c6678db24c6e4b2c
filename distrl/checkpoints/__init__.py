"""Learner state on disk, parameters as bytes, policies from parameters, export."""
