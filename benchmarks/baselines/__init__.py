"""The literature's causal broadcast engines, repaired where they fail as printed, to compare ours with.

All offer `crdtcast.baselines.interface.CausalEngine`, over reliable links: messages may be reordered and duplicated,
not lost. What had to be repaired in each, and the runs that show it: docs/baselines.md.
"""

from crdtcast.baselines.cbcast import CbcastEngine
from crdtcast.baselines.graph import GraphEngine
from crdtcast.baselines.graph_dynamic import DynamicGraphEngine
from crdtcast.baselines.twolevel import TwoLevelEngine
from crdtcast.baselines.vectors import VectorEngine

__all__ = ["CbcastEngine", "DynamicGraphEngine", "GraphEngine", "TwoLevelEngine", "VectorEngine"]
