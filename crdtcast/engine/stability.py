"""Stability: `stab[o] = min(own[o], min over the other members k of row[k][o])`, evaluated in batches.

Two rules keep it safe. *Late adoption*: a digest of k becomes k's row only when everything that k had sent before it,
and everything that k had delivered from ended incarnations, has been delivered here; until then only the newest is
kept aside. *Naming*: a row counts only if it names every incarnation that is current here, since its sender takes
nothing more from the incarnations which those have ended. See docs/protocol.md for why both are needed.
"""

from collections.abc import Mapping
from itertools import repeat

from crdtcast.engine.members import Members
from crdtcast.engine.peer import HOLD_MIN, Peer
from crdtcast.tags import Vector


class Stability:
    """The rows of the other members and the minimum over them. `vector` and `peers` are the engine's, read only."""

    __slots__ = ("_members", "_peers", "_vector", "adopted", "held", "stable", "waiting")

    def __init__(
        self, vector: dict[str, int], members: Members, peers: Mapping[str, Peer], stable: Vector
    ) -> None:
        self._vector = vector
        self._members = members
        self._peers = peers
        # A new dictionary whenever it rises, so that the pasts of tags can share it. Keys: a prefix of `vector`'s.
        self.stable: dict[str, int] = {origin: stable.get(origin, 0) for origin in vector}
        self.adopted = 0  # rows taken since the last evaluation
        self.waiting = 0  # digests kept aside now
        self.held = 0  # digests that had to wait, in all

    def may_adopt(self, peer: Peer, vector: Vector) -> bool:
        """Late adoption and naming."""
        return (
            self.delivered_what_it_had_sent(peer, vector)
            and self.delivered_what_had_ended(vector)
            and self.names_all_current(vector)
        )

    def delivered_what_it_had_sent(self, peer: Peer, vector: Vector) -> bool:
        """So that whatever else the peer sends, or has sent, comes after everything that `vector` covers."""
        return self._vector[peer.incarnation] >= vector.get(peer.incarnation, 0)

    def delivered_what_had_ended(self, vector: Vector) -> bool:
        """So that nothing of an ended incarnation is still to come by way of this peer."""
        known = self._vector
        return all(known[origin] >= vector.get(origin, 0) for origin in self._members.ended)

    def names_all_current(self, vector: Vector) -> bool:
        """So that the sender takes nothing more from those which the current incarnations have ended."""
        return all(incarnation in vector for incarnation in self._members.current.values())

    def offer(self, peer: Peer, vector: Vector) -> None:
        """Take a digest's vector as the peer's row, now or later. Older ones than the known change nothing.

        The vectors of one incarnation are points of one history, so their sums tell which one is newer.
        """
        newest = peer.aside if peer.aside is not None else peer.row
        if newest is not None:
            age, known = sum(vector.values()), sum(newest.values())
            if age < known or (age == known and len(vector) <= len(newest)):
                return
        if self.may_adopt(peer, vector):
            self._adopt(peer, vector)
        else:
            self.held += 1
            if peer.aside is None:
                self.waiting += 1
            peer.aside = vector

    def _adopt(self, peer: Peer, vector: Vector) -> None:
        peer.row = vector
        peer.columns = ()
        peer.ask_delay = HOLD_MIN
        self.adopted += 1
        if peer.aside is not None:
            peer.aside = None
            self.waiting -= 1

    def reconsider(self) -> None:
        """Adopt what was kept aside and may be used now."""
        for peer in self._peers.values():
            if peer.aside is not None and self.may_adopt(peer, peer.aside):
                self._adopt(peer, peer.aside)

    def forget_rows(self) -> None:
        """A new incarnation is current: no row names it yet."""
        for peer in self._peers.values():
            peer.row = peer.aside = None
            peer.columns = ()
        self.waiting = 0

    def evaluate(self, own: Vector) -> dict[str, range] | None:
        """Raise `stable`; what has become stable, as counters by origin, or None.

        `own` is what this member would acknowledge itself: its delivered (or durable) vector.
        """
        if self.waiting:
            self.reconsider()
        self.adopted = 0
        if not self._members.complete:
            return None
        vector = self._vector
        width = len(vector)
        acknowledged = tuple(map(own.get, vector, repeat(0)))
        rows = []
        for peer in self._peers.values():
            if peer.row is None:
                return None
            if len(peer.columns) != width:
                peer.columns = tuple(map(peer.row.get, vector, repeat(0)))
            rows.append(peer.columns)
        before = self.stable
        if len(before) != width:
            self.stable = before = {origin: before.get(origin, 0) for origin in vector}
        minima = list(map(min, acknowledged, acknowledged, *rows))
        known = list(before.values())
        if minima == known:
            return None
        risen: dict[str, range] = {}
        for origin, old, new in zip(vector, known, minima, strict=True):
            if new > old:
                risen[origin] = range(old + 1, new + 1)
        if not risen:
            return None
        after = before.copy()
        for origin, counters in risen.items():
            after[origin] = counters[-1]
        self.stable = after
        return risen

    def holders(self) -> list[str]:
        """Names of the members whose row (or absence) holds back what is delivered here."""
        members = self._members
        names = []
        for name in members.names:
            if name == members.name:
                continue
            incarnation = members.current.get(name)
            row = self._peers[incarnation].row if incarnation is not None else None
            if row is None or any(row.get(o, 0) < n for o, n in self._vector.items()):
                names.append(name)
        return names
