"""Stability: `stab[o] = min(own[o], min over the other members k of row[k][o])`, evaluated in batches.

*Late adoption* keeps it safe: a digest of k becomes k's row only when everything that k had sent before it has been
delivered here; until then only the newest is kept aside (docs/protocol.md).
"""

from collections.abc import Collection, Mapping
from itertools import repeat

from crdtcast.engine.peer import HOLD_MIN, Peer
from crdtcast.tags import Dot, Vector

FEW = 64
"""Up to so many pairs of origin and member a plain loop that stops early is faster than columns."""


class Stability:
    """The rows of the other members and the minimum over them. `vector` and `peers` are the engine's, read only."""

    __slots__ = (
        "_peers",
        "_serial",
        "_vector",
        "adopted",
        "blocker",
        "entries",
        "held",
        "stable",
        "waiting",
    )

    def __init__(self, vector: dict[str, int], peers: Mapping[str, Peer], stable: Vector) -> None:
        self._vector = vector
        self._peers = peers
        # A new dictionary whenever it rises, so that the pasts of tags can share it. Keys: a prefix of `vector`'s.
        self.stable: dict[str, int] = {origin: stable.get(origin, 0) for origin in vector}
        self.adopted = 0  # rows taken since the last evaluation
        self._serial = 0  # rows taken in all
        self.blocker: Peer | None = (
            None  # holds the oldest unstable message back; None if that is not known
        )
        self.waiting = 0  # digests kept aside now
        self.held = 0  # digests that had to wait, in all
        self.entries = 0  # entries of rows looked at in all evaluations, at most

    def may_adopt(self, peer: Peer, vector: Vector) -> bool:
        """Late adoption."""
        return self.delivered_what_it_had_sent(peer, vector)

    def delivered_what_it_had_sent(self, peer: Peer, vector: Vector) -> bool:
        """So that whatever else the peer sends, or has sent, comes after everything that `vector` covers."""
        return self._vector[peer.incarnation] >= vector.get(peer.incarnation, 0)

    def offer(self, peer: Peer, vector: Vector, weight: int) -> bool:
        """Take a digest's vector as the peer's row, now or later; whether it is one now.

        `weight` is the sum of its counters. The vectors of one incarnation are points of one history, so their weights
        tell which one is newer; an older one than the known changes nothing.
        """
        newest = peer.row if peer.aside is None else peer.aside
        if newest is not None and (
            weight < peer.weight or (weight == peer.weight and len(vector) <= len(newest))
        ):
            return False
        peer.weight = weight
        if self.may_adopt(peer, vector):
            self._adopt(peer, vector)
            return True
        self.held += 1
        if peer.aside is None:
            self.waiting += 1
        peer.aside = vector
        return False

    def _adopt(self, peer: Peer, vector: Vector) -> None:
        peer.row = vector
        peer.columns = ()
        peer.ask_delay = HOLD_MIN
        self.adopted += 1
        self._serial = peer.adopted_as = self._serial + 1
        if peer.aside is not None:
            peer.aside = None
            self.waiting -= 1

    def reconsider(self) -> None:
        """Adopt what was kept aside and may be used now."""
        for peer in self._peers.values():
            if peer.aside is not None and self.may_adopt(peer, peer.aside):
                self._adopt(peer, peer.aside)

    def complete(self) -> bool:
        """Whether all members are known."""
        return True

    def forget_rows(self) -> None:
        """A new incarnation is current: no row names it yet."""
        for peer in self._peers.values():
            peer.row = peer.aside = None
            peer.columns = ()
        self.waiting = 0
        self.blocker = None

    def evaluate(self, own: Vector, unstable: Collection[str]) -> dict[str, range] | None:
        """Raise `stable`; what has become stable, as counters by origin, or None.

        `own` is what this member would acknowledge itself: its delivered (or durable) vector. `unstable` are the
        origins of which something is delivered and unstable.
        """
        if self.waiting:
            self.reconsider()
        self.adopted = 0
        if not unstable or not self.complete():
            return None
        if len(self.stable) != len(self._vector):
            self.stable = {origin: self.stable.get(origin, 0) for origin in self._vector}
        few = len(unstable) * len(self._peers) <= FEW
        self.entries += (len(unstable) if few else len(self.stable)) * len(self._peers)
        risen = self._few(own, unstable) if few else self._all(own)
        if not risen:
            return None
        after = self.stable.copy()
        for origin, counters in risen.items():
            after[origin] = counters[-1]
        self.stable = after
        return risen

    def _few(self, own: Vector, unstable: Collection[str]) -> dict[str, range]:
        rows = []
        for peer in self._peers.values():
            if peer.row is None:
                return {}
            rows.append(peer.row)
        risen = {}
        for origin in unstable:
            old = self.stable[origin]
            new = own.get(origin, 0)
            for row in rows:
                acknowledged = row.get(origin, 0)
                if acknowledged < new:
                    new = acknowledged
                    if new <= old:
                        break
            if new > old:
                risen[origin] = range(old + 1, new + 1)
        return risen

    def _all(self, own: Vector) -> dict[str, range]:
        # Columns and `map(min, …)`: the inner loop over members runs in C.
        vector = self._vector
        width = len(vector)
        rows = []
        for peer in self._peers.values():
            columns = peer.columns
            if len(columns) != width:
                if peer.row is None:
                    return {}
                columns = peer.columns = tuple(map(peer.row.get, vector, repeat(0)))
            rows.append(columns)
        acknowledged = own.values() if own is vector else map(own.get, vector, repeat(0))
        minima = map(min, acknowledged, *rows)
        stable = self.stable.items()
        return {
            origin: range(old + 1, new + 1)
            for (origin, old), new in zip(stable, minima, strict=True)
            if new > old
        }

    def find_blocker(self, oldest: Dot | None) -> None:
        """Remember a peer whose row does not cover the oldest unstable message, so that others need no look.

        The one heard from last, of several: it is likely to be the last that is heard from again.
        """
        blocker = None
        if oldest is not None:
            origin, counter = oldest
            for peer in self._peers.values():
                if (blocker is None or peer.adopted_as > blocker.adopted_as) and (
                    peer.row is None or peer.row.get(origin, 0) < counter
                ):
                    blocker = peer
        self.blocker = blocker

    def holders(self) -> list[str]:
        """The members whose row (or absence) holds back what is delivered here."""
        return [
            peer.incarnation
            for peer in self._peers.values()
            if peer.row is None or any(peer.row.get(o, 0) < n for o, n in self._vector.items())
        ]
