"""Replicated objects by name, which applications read and write."""
