"""Clients of a gateway: their connections, requests and answers."""
