"""A simulated group with one hostile member."""
