"""The administration of a running process: its socket, commands, probes and views."""
