"""The checks, one idea a file. Each contributes rules on frames, or findings on whole logs."""
