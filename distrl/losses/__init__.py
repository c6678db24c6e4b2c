"""Losses as pure graph functions, named after the quantity that they return."""
