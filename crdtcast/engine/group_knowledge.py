"""What one member knows when views are decided: who is in the group, what each has, and who may vote."""

from collections.abc import Collection, Mapping, Set

from crdtcast.causality.member_id import joined_by
from crdtcast.causality.tags import Vector
from crdtcast.engine.delivery_limits import DeliveryLimits
from crdtcast.engine.level import Span
from crdtcast.engine.membership import Membership
from crdtcast.engine.peer import Peer
from crdtcast.engine.removed_rows import SweptRows


class GroupKnowledge:
    """The knowledge of one member. It shares its parts with the engine. reads: the format levels of its program.
    agreed: the greatest level that it has promised. resumed: see `Core`.
    """

    def __init__(
        self,
        peers: Mapping[str, Peer],
        membership: Membership,
        stability: SweptRows,
        limits: DeliveryLimits,
        reads: Span,
        agreed: int,
        resumed: bool,
    ) -> None:
        self.me: str = membership.me
        self.vector: Vector = membership.vector
        self.reads = reads
        self.agreed = agreed
        self.resumed = resumed
        self._peers = peers
        self.membership = membership
        self._stability = stability
        self.limits = limits

    # Who is a member

    def is_established(self, member: str) -> bool:
        """Whether its join is stable at this member, so that all members know it."""
        return self.membership.is_established(member, self._stability.stable)

    # What members have

    def counted(self, incarnation: str) -> int:
        """How many of its messages this member has delivered."""
        return self.vector.get(incarnation, 0)

    def newest(self, member: str) -> Vector:
        """The vector of another member, as it said last."""
        peer = self._peers.get(member)
        return (None if peer is None else peer.newest) or {}

    def linked(self) -> Collection[str]:
        """The other members to which there is a link."""
        return [peer.incarnation for peer in self._peers.values() if peer.linked]

    def is_silent(self, member: str) -> bool:
        """Whether nothing has come of a member; or whether it cannot become one before the epoch is decided, as this
        member cannot deliver the message that admitted it.
        """
        if member in self.membership.members:
            peer = self._peers.get(member)
            return peer is None or (not peer.met and not self.vector[member])
        join = joined_by(member)
        contact = None if join is None else self.membership.incarnation(join[0])
        return (
            join is not None
            and contact is not None
            and contact in self.limits.by_origin
            and join[1] > self.counted(contact)
        )

    def untold(self, gone: Set[str], voters: Set[str]) -> Set[str]:
        """The members that this one waits for before it leaves, so that no message is lost with it.

        A majority of the voters that go on must have all that it has delivered; all of them, if they are two or fewer.
        If no voter goes on, the same holds for all members that go on.
        """
        others = set(self.membership.going_on()) - gone - {self.me}
        waits_for = (voters & others) or others
        short = {who for who in waits_for if self._stability.lacking(self.newest(who))}
        has_it = len(waits_for) - len(short)
        enough = has_it == len(waits_for) if len(waits_for) <= 2 else 2 * has_it > len(waits_for)
        return set() if enough else short

    # Votes and levels

    def holds_data(self, member: str) -> bool:
        """Whether it is a member, and holds application state: a witness does not."""
        known = self.membership.members.get(member)
        return known is not None and not known.witness

    def span_of(self, member: str) -> Span:
        """The levels that the program of a member reads, as it said last."""
        # What this member's program reads is certain, also before it has been announced.
        return self.reads if member == self.me else self.membership.members[member].reads

    def lacking_level(self, level: int) -> list[str]:
        """The members whose programs do not read that level, as they said last."""
        return sorted(x for x in self.membership.going_on() if level not in self.span_of(x))
