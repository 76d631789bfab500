"""Stability where incarnations supersede each other: which rows count (docs/protocol.md, *A fixed set of names*).

*Naming*: a row counts only if it names every incarnation that is current at this member, since its sender then takes
nothing more from those that these have ended. It counts only when all that it covers of ended ones is delivered.
"""

from collections.abc import Mapping

from crdtcast.causality.tags import Vector
from crdtcast.engine.members import Members
from crdtcast.engine.peer import Peer
from crdtcast.engine.stability import Stability


class NamedRows(Stability):
    """`Stability` in a group with a fixed set of names. members: those of the engine, read only."""

    __slots__ = ("_members",)

    def __init__(
        self, vector: dict[str, int], members: Members, peers: Mapping[str, Peer], stable: Vector
    ) -> None:
        super().__init__(vector, peers, stable)
        self._members = members

    def may_adopt(self, peer: Peer, vector: Vector) -> bool:
        """Late adoption and naming."""
        members = self._members
        if not self.delivered_what_it_had_sent(peer, vector):
            return False
        if members.ended and not self.delivered_what_had_ended(vector):
            return False
        if peer.named != members.changes:
            # Digests of one incarnation never stop naming another, so one look suffices until members change.
            if not self.names_all_current(vector):
                return False
            peer.named = members.changes
        return True

    def may_count(self, peer: Peer) -> bool:
        """Naming: a message comes after the digest that has named all; what it covers of ended ones is delivered.
        That digest has also said whether messages of its sender leave only when their past is durable.
        """
        return peer.acknowledging and peer.named == self._members.changes

    def delivered_what_had_ended(self, vector: Vector) -> bool:
        """Whether all of ended ones in the vector is delivered: nothing of them can still come by way of its sender."""
        known = self._vector
        return all(known[origin] >= vector.get(origin, 0) for origin in self._members.ended)

    def names_all_current(self, vector: Vector) -> bool:
        """Whether the vector names all current ones: its sender takes nothing more from those that these have ended."""
        return vector.keys() >= set(self._members.current.values())

    def complete(self) -> bool:
        """Whether an incarnation of every name is known."""
        return self._members.complete

    def holders(self) -> list[str]:
        """Names of the members whose row (or absence) holds back what this one has delivered."""
        members = self._members
        names = []
        for name in members.names:
            if name == members.name:
                continue
            incarnation = members.current.get(name)
            if incarnation is None or self.holds_back(self._peers[incarnation]):
                names.append(name)
        return names
