"""The literature's causal broadcast engines, repaired where they fail as printed, to compare ours with.

All offer `crdtcast.engine.interface.CausalEngine` for a fixed group over reliable links: messages may be reordered and
duplicated, not lost. What had to be repaired in each, and the runs that show it: docs/baselines.md.
"""
