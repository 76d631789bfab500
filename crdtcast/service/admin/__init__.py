"""What operators ask of a running process: the socket, its commands, probes and views."""
