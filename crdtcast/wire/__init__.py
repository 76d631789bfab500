"""What members say to each other, as bytes and back: frames, handshakes, authentication. Sans-I/O."""
