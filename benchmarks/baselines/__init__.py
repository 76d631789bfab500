"""The literature's causal broadcast engines, repaired where they fail as printed, for comparison with ours.

All implement `benchmarks.baselines.interface.CausalEngine`, over reliable links: messages may be reordered and
duplicated, but not lost. The repairs, and the runs that show why they are needed: docs/baselines.md.
"""

from benchmarks.baselines.cbcast import CbcastEngine
from benchmarks.baselines.graph import GraphEngine
from benchmarks.baselines.graph_dynamic import DynamicGraphEngine
from benchmarks.baselines.twolevel import TwoLevelEngine
from benchmarks.baselines.vectors import VectorEngine

__all__ = ["CbcastEngine", "DynamicGraphEngine", "GraphEngine", "TwoLevelEngine", "VectorEngine"]
