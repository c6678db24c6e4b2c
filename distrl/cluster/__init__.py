"""Hosts, servers, channels, proxy threads, parameter store. Knows no RL."""
