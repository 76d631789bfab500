"""All engines by name, made the same way for a fixed group whose members have met."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.baselines import CbcastEngine, GraphEngine, TwoLevelEngine, VectorEngine
from benchmarks.baselines.interface import CausalEngine
from benchmarks.baselines.ours import MeasuredEngine
from crdtcast.causality.member_id import name_of, new_incarnation

OURS = "crdtcast"
_START_US = 1_700_000_000_000_000


@dataclass(frozen=True, slots=True)
class Kind:
    """An engine that takes part. `make(me, ids, stability)`; `optional` if it can do without stability."""

    label: str
    make: Callable[[str, Sequence[str], bool], CausalEngine]
    optional: bool = True

    def build(self, stability: bool) -> Callable[[str, Sequence[str]], CausalEngine]:
        """For `run_timed`."""
        return lambda me, ids: self.make(me, ids, stability)


def _ours(me: str, ids: Sequence[str], stability: bool) -> CausalEngine:
    engine = MeasuredEngine(me, map(name_of, ids))
    for other in ids:
        if other != me:
            engine.introduce(other)
    return engine


def _published(engine: Any) -> Callable[[str, Sequence[str], bool], CausalEngine]:
    return lambda me, ids, stability: engine(me, ids, stability=stability)


ENGINES = {
    OURS: Kind("this engine", _ours, optional=False),
    "vectors": Kind("vectors and matrix", _published(VectorEngine)),
    "twolevel": Kind("two-level vectors", _published(TwoLevelEngine)),
    "graph": Kind("graph with dots", _published(GraphEngine)),
    "cbcast": Kind("CBCAST", _published(CbcastEngine)),
}
"""By name, in the order of figures and tables."""


def member_ids(members: int) -> list[str]:
    """Real incarnation ids, the same in every run."""
    return [new_incarnation(f"n{i}", _START_US + 977 * i, 7919 * i) for i in range(members)]
