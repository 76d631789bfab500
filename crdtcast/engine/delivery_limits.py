"""Limits of delivery: nothing of a victim beyond its freeze, nothing of a member that went beyond its cut."""

from collections.abc import Iterable, Mapping

from crdtcast.causality.messages import Message
from crdtcast.engine.delivery import Inbox
from crdtcast.engine.membership import Membership
from crdtcast.engine.peer import Peer
from crdtcast.engine.removed_rows import SweptRows


class DeliveryLimits:
    """The limits of one member. It shares its parts with the engine."""

    def __init__(
        self,
        peers: Mapping[str, Peer],
        membership: Membership,
        stability: SweptRows,
        inbox: Inbox,
    ) -> None:
        self.by_origin: dict[str, int] = {}
        """Origin -> how many of its messages may be delivered. Other origins have no limit."""
        self.held: dict[str, Message] = {}
        """Victim -> its next message, which is deliverable and beyond its limit."""
        self._peers = peers
        self._membership = membership
        self._stability = stability
        self._inbox = inbox
        self.update()

    def update(self) -> None:
        """Freezes or cuts have changed. From now on no digest of a victim is adopted, also none kept aside."""
        membership, limits = self._membership, self.by_origin
        limits.clear()
        for incarnation in membership.limited():
            if (limit := membership.limit(incarnation)) is not None:
                limits[incarnation] = limit
        for peer in self._peers.values():
            if is_frozen := peer.incarnation in limits:
                self._stability.set_aside(peer)
            peer.frozen = is_frozen
        for origin, message in list(self.held.items()):
            if message.dot.counter <= limits.get(origin, message.dot.counter):
                del self.held[origin]
                self._inbox.ready.append(message)

    def freeze(self, incarnations: Iterable[str]) -> None:
        """Deliver no more of these until the epoch is decided."""
        membership = self._membership
        for incarnation in incarnations:
            membership.frozen.setdefault(incarnation, membership.vector.get(incarnation, 0))
        self.update()

    def cut(self, incarnation: str, counter: int) -> int:
        """An incarnation ends at `counter`: drop what waits beyond that. Returns how much that was."""
        purged = self._inbox.purge(incarnation, counter)
        held = self.held.get(incarnation)
        if held is not None and held.dot.counter > counter:
            del self.held[incarnation]
            purged += 1
        return purged
