"""How processes reach each other: links over TCP or TLS, their queues, and what drives an engine on them."""
