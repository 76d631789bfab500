"""Stability where incarnations are swept: a row that covers the sweep of x has all of x, named in it or not.

Its sender may have dropped the name already, since for it the sweep is stable.
"""

from collections.abc import Mapping

from crdtcast.engine.peer import Peer
from crdtcast.engine.stability import Stability
from crdtcast.tags import Dot, Vector


class SweptRows(Stability):
    """`Stability` with rows completed. `swept`: ended incarnation -> its sweep; the engine's, read only."""

    __slots__ = ("swept",)

    def __init__(
        self,
        vector: dict[str, int],
        peers: Mapping[str, Peer],
        stable: Vector,
        swept: Mapping[str, Dot],
    ) -> None:
        super().__init__(vector, peers, stable)
        self.swept = swept

    def _adopt(self, peer: Peer, vector: Vector) -> None:
        super()._adopt(peer, self.completed(vector) if self.swept else vector)

    def completed(self, vector: Vector) -> Vector:
        """The vector with everything of those incarnations whose sweeps it covers."""
        known, swept = self._vector, self.swept
        short = [x for x in swept if vector.get(x, 0) < known[x]]
        if not short:
            return vector
        full = dict(vector)
        before = -1
        while len(short) != before:  # a sweep may be by one that was swept itself
            before = len(short)
            for x in short:
                origin, counter = swept[x]
                if full.get(origin, 0) >= counter or origin not in known:
                    full[x] = known[x]
            short = [x for x in short if full.get(x, 0) < known[x]]
        return full

    def drop(self, incarnation: str) -> None:
        """The vector has lost this key."""
        self.stable = {o: n for o, n in self.stable.items() if o != incarnation}
        for peer in self._peers.values():
            peer.columns = ()
