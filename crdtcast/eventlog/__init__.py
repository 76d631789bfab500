"""Event logs: what applications saw, written while it happens, and checked afterwards."""
