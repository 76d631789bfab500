"""Comparison of keys between all members, and repair of those that differ."""
