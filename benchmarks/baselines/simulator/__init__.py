"""The simulated group of fixed members, in which the published engines run."""
