"""Commands that wait for other regions: WAIT, and session tokens."""
