"""Commands about everything that is installed: nodes, gateways and their formats."""
