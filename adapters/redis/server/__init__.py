"""The gateway's server: connections to it, its replies, what it reports about itself."""
