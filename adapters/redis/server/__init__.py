"""The server next to a gateway: connections, replies, what it says of itself."""
