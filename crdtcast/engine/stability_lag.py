"""Which members hold stability back, for how long, and how old the oldest unstable message is. Pure; times
are seconds of the caller's clock.

A mark is what a member's acknowledgements have to cover. A member that has not covered its mark at the
next look holds stability back since the mark was set. So the error is one look, and under load no member
is blamed for what is merely on its way.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from crdtcast.causality.tags import Vector
from crdtcast.engine.core import Core
from crdtcast.engine.engine import Engine
from crdtcast.engine.known_deliveries import stable


@dataclass(frozen=True, slots=True)
class HeldBack:
    """lag: seconds for which the oldest unstable message has waited; 0 if there is none. holders: member that
    holds it back -> for how many seconds; by incarnation id, or by name if no incarnation of it is known.
    """

    lag: float
    holders: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Mark:
    at: float
    vector: Vector


class Holding:
    """Follows one member's engine. Call `look` several times in the least time that is worth reporting.

    patience: seconds for which a member may lack something before it counts as a holder.
    """

    def __init__(self, patience: float = 1.0) -> None:
        self.patience = patience
        self._engine: Core | None = None
        self._marks: dict[str, _Mark] = {}
        self._unstable: _Mark | None = None

    def look(self, engine: Core, now: float) -> HeldBack:
        """The state as of now. With another engine than last time, it starts from scratch."""
        if engine is not self._engine:
            self._engine, self._marks, self._unstable = engine, {}, None
        mark = _Mark(now, dict(engine.vector))
        everywhere = stable(engine)

        def covered(row: Vector, marked: Vector) -> bool:
            # What is forgotten by now was stable, too.
            get, at_least = row.get, everywhere.get
            return all(
                get(o, 0) >= n or at_least(o, 0) >= n or o not in engine.vector
                for o, n in marked.items()
            )

        marks = {}
        for who, row in _rows(engine).items():
            old = self._marks.get(who, mark)
            marks[who] = mark if covered(row, old.vector) else old
        self._marks = marks
        if self._unstable is None or covered(everywhere, self._unstable.vector):
            self._unstable = mark
        lacking = {who: now - mark.at for who, mark in sorted(marks.items())}
        return HeldBack(
            now - self._unstable.at,
            {who: since for who, since in lacking.items() if since >= self.patience},
        )


def _rows(engine: Core) -> dict[str, Vector]:
    """What each member is known to have delivered; of this one, what it may report."""
    rows: dict[str, Vector] = {p.incarnation: p.row or {} for p in engine._peers.values()}
    rows[engine.me] = engine.durable
    if isinstance(engine, Engine):
        rows |= {name: {} for name in set(engine.names) - engine.members.keys()}
    return rows
