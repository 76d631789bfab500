"""The runtime of gateways with fixed peers."""
