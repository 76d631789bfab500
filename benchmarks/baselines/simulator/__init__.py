"""Simulated groups of fixed members, for `Engine` and for the published engines."""
