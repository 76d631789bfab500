"""What operators ask of a gateway, and what it writes down for them."""
