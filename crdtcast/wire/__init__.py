"""Frames between members as bytes and back, handshakes, and authentication. Sans-I/O."""
