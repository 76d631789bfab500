"""The checks, one idea a file. Each has rules on frames, or findings on whole logs."""
