"""Wiring, configuration and the command line; no thinking."""
