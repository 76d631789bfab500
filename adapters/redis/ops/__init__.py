"""A gateway's side of operation: commands, probes, event log."""
