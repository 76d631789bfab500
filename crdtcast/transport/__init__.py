"""How processes reach each other: links over TCP or TLS, their queues, and the drivers of engines on them."""
