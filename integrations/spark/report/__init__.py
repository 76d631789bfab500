"""The audit's report: one HTML page with its plots."""
