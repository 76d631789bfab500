"""The literature's causal broadcast engines, repaired where they fail as printed, to compare ours with.

All offer `benchmarks.baselines.interface.CausalEngine`, over reliable links: messages may be reordered and duplicated,
not lost. What had to be repaired in each, and the runs that show it: docs/baselines.md.
"""

from benchmarks.baselines.cbcast import CbcastEngine
from benchmarks.baselines.graph import GraphEngine
from benchmarks.baselines.graph_dynamic import DynamicGraphEngine
from benchmarks.baselines.twolevel import TwoLevelEngine
from benchmarks.baselines.vectors import VectorEngine

__all__ = ["CbcastEngine", "DynamicGraphEngine", "GraphEngine", "TwoLevelEngine", "VectorEngine"]
