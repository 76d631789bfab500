"""The path of a write: from clients and peers to the server, then replies, then the network."""
