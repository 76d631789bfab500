"""Replicated objects by name: what applications read and write."""
