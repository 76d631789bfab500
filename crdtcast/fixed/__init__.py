"""What gateways with fixed peers run on."""
