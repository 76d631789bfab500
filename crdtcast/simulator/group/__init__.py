"""A simulated group whose members come and go."""
