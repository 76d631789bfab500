"""Stability where incarnations are swept: a row that covers the sweep of x has all of x, named in it or not.

Its sender may have dropped the name already, since for it the sweep is stable. A row may also have dropped a name whose
sweep this member has not delivered (it is by a leaver, or by a victim that does not know it yet). Such a row waits for
that sweep: taken for one without anything of x, it would let later messages be stable before those of x.
"""

from collections.abc import Mapping

from crdtcast.causality.member_id import joined_by
from crdtcast.causality.tags import Dot, Vector
from crdtcast.engine.membership import Membership
from crdtcast.engine.peer import Peer
from crdtcast.engine.stability import Stability


class SweptRows(Stability):
    """`Stability` with completed rows. membership: that of the engine, read only."""

    __slots__ = ("_membership", "swept")

    def __init__(
        self,
        vector: dict[str, int],
        peers: Mapping[str, Peer],
        stable: Vector,
        membership: Membership,
    ) -> None:
        super().__init__(vector, peers, stable)
        self._membership = membership
        self.swept: dict[str, Dot] = membership.swept

    def may_adopt(self, peer: Peer, vector: Vector) -> bool:
        """Late adoption; and the row has dropped no name that is not swept at this member."""
        if not super().may_adopt(peer, vector):
            return False
        if vector.keys() >= self._vector.keys():
            return True
        full = self.completed(vector)
        return not any(self._has_dropped(x, full) for x in self._vector.keys() - full.keys())

    def _has_dropped(self, incarnation: str, vector: Vector) -> bool:
        """Whether the sender of this vector knew an incarnation once that it does not name."""
        while incarnation not in vector:
            join = joined_by(incarnation)
            contact = None if join is None else self._membership.incarnation(join[0])
            if join is None or contact is None:
                return True  # a founder, or admitted by a contact that is forgotten
            if contact in vector:
                return vector[contact] >= join[1]
            incarnation = contact
        return False

    def _adopt(self, peer: Peer, vector: Vector) -> None:
        super()._adopt(peer, self.completed(vector))

    def may_count(self, peer: Peer) -> bool:
        """Whether a message of this peer acknowledges its past: not if it is a victim."""
        return not peer.frozen

    def set_aside(self, peer: Peer) -> None:
        """The peer is a victim: what it has reported and was not adopted yet is dropped."""
        if peer.aside is not None:
            self._drop_aside(peer)

    def completed(self, vector: Vector) -> Vector:
        """The vector with everything of those incarnations whose sweeps it covers."""
        known, swept = self._vector, self.swept
        if not swept:
            return vector
        short = [x for x in swept if vector.get(x, -1) < known[x]]
        if not short:
            return vector
        full = dict(vector)
        before = -1
        while len(short) != before:  # the sender of a sweep may be swept itself
            before = len(short)
            for x in short:
                origin, counter = swept[x]
                if full.get(origin, 0) >= counter or origin not in known:
                    full[x] = known[x]
            short = [x for x in short if full.get(x, -1) < known[x]]
        return full

    def drop(self, incarnation: str) -> None:
        """The vector no longer has this key."""
        self.stable: dict[str, int] = {o: n for o, n in self.stable.items() if o != incarnation}
