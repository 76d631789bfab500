"""Data that a gateway keeps in its server: keys, their unstable parts, metadata."""
