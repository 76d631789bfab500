"""Expiry of keys: docs/redis-deadlines.md has the rules, and what each of them prevents."""
