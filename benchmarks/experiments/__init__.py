"""The thesis's experiments, with every engine that is here, on a simulated clock: `python -m benchmarks.experiments`.

What was found: docs/experiments.md. Published: G. Younes, *Dynamic End-to-End Reliable Causal Delivery Middleware for
Geo-Replicated Services*, 2023, chapter 8.
"""
