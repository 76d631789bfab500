"""The standing of the own incarnation, as far as it knows itself, and so whether it sends and takes messages."""

from collections.abc import Mapping

from crdtcast.engine.forks import Forks
from crdtcast.engine.group_knowledge import GroupKnowledge
from crdtcast.engine.membership import Standing
from crdtcast.engine.operations import How
from crdtcast.engine.peer import Peer
from crdtcast.engine.probation import Probation
from crdtcast.engine.proposer import Proposer
from crdtcast.engine.views import Views
from crdtcast.exceptions import RemoteProtocolError

DISPUTE_TICKS = 100
"""Ticks of dispute after a member that a majority has removed last reported that this one was removed."""
LEAST_PAUSE = 4
MOST_PAUSE = 32
"""Ticks for which a leaver takes nothing; then it takes messages for as long."""


class OwnStanding:
    """The standing of one member. It shares its parts with the engine."""

    def __init__(
        self,
        peers: Mapping[str, Peer],
        knowledge: GroupKnowledge,
        proposer: Proposer,
        forks: Forks,
        probation: Probation,
    ) -> None:
        self.is_plain: bool = False
        """Whether it sends and takes, and nothing has happened that could change that. Read for each message."""
        self.cut: int | None = None
        """If it was evicted: the number of its messages that count, as far as it knows."""
        self._is_evicted = self._has_left = False
        self._me = knowledge.me
        self._peers = peers
        self._membership = knowledge.membership
        self._knowledge = knowledge
        self._proposer = proposer
        self._forks = forks
        self._probation = probation
        self._tick = 0
        self._disputed: dict[str, int] = {}  # who says it has cut us off -> tick of its last word
        self._pauses = False  # whether it leaves, and takes nothing for a while
        self._pause = LEAST_PAUSE
        self._turns_at = self._taken = 0

    @property
    def standing(self) -> Standing:
        """See `Standing`."""
        if self.is_plain and not self._disputed and not self._forks.is_split:
            return Standing.MEMBER
        if self._has_left:
            return Standing.LEFT
        if self._is_evicted:
            return Standing.EVICTED
        if self.is_ending:
            return Standing.LEAVING
        if any(map(self._disputes, self._disputed)):
            return Standing.DISPUTED
        return Standing.SPLIT if self._forks.is_split else Standing.MEMBER

    def _disputes(self, other: str) -> bool:
        """Whether the operator has to know that the other one has removed this member, and was removed itself.

        If the other one was removed by force, this holds until one side has given up. If a majority has removed it, it
        may lie: then it holds for some time after it said so last.
        """
        tomb = self._membership.tombs.get(other)
        if tomb is None:
            return False
        return tomb.how is How.FORCED or self._tick - self._disputed[other] < DISPUTE_TICKS

    @property
    def is_over(self) -> bool:
        """Whether this incarnation no longer takes part in anything."""
        return self._has_left or self._is_evicted

    def is_deaf_to(self, content: object) -> bool:
        """Whether it does not take this from others: a removed member still passes on what it hears of views."""
        return self.is_over and not (self._is_evicted and isinstance(content, Views))

    @property
    def is_ending(self) -> bool:
        """Whether it no longer sends."""
        return self.is_over or self._proposer.wants.leaves or self._me in self._membership.cuts

    @property
    def has_said_all(self) -> bool:
        """Whether it leaves, and others have all that it has: it could no longer hand over what it takes now."""
        return self._me in self._membership.cuts or self._proposer.is_leaving

    def takes_nothing(self) -> bool:
        """Whether nothing is delivered to the application now."""
        if self.is_over or self._pauses or self.has_said_all:
            return True
        # On probation, what it acknowledged now might be concurrent with what it had sent before.
        if self._probation.is_on:
            return True
        self.is_plain = not self.is_ending
        return False

    def tick(self, tick: int, delivered: int) -> None:
        """The timer. A leaver goes when others have all that it has. While messages keep coming that is never so,
        unless it takes none for a while. It does not pause for good: two that leave wait for each other's messages.
        """
        self._tick = tick
        if not self._proposer.wants.leaves or tick < self._turns_at:
            return
        comes, self._taken = delivered > self._taken, delivered
        self._pauses = comes and not self._pauses
        self._turns_at = tick + self._pause
        if self._pauses:
            self._pause = min(2 * self._pause, MOST_PAUSE)

    # How it ends

    def put_out(self, cut: int | None = None) -> None:
        """It sends nothing more; in particular if it does not know what it has sent, or voted for."""
        self.is_plain = False
        self._is_evicted = True
        self.cut = cut

    def gone(self) -> None:
        """The group has removed it, or let it leave, and enough members know that."""
        cut = self._membership.cuts[self._me]
        if self._proposer.wants.leaves and self._knowledge.counted(self._me) <= cut.counter:
            self._has_left = True
        else:
            self.put_out()

    def told_ended(self, sender: str, cut: int | None) -> bool:
        """A peer reports that this incarnation has ended. Returns False if a majority has evicted that peer."""
        tomb = self._membership.tombs.get(sender)
        ended = self._membership.ended.get(sender) or tomb
        if ended is not None and ended.how is How.EVICTED:
            # It has removed this member by force, while the group has removed it: the operator has to know.
            if tomb is not None:
                self._disputed[sender] = self._tick
            return False
        self._check_ended(sender, cut)
        if tomb is not None and tomb.how is How.FORCED:
            self._disputed[sender] = self._tick  # the operator decides
        elif self._proposer.wants.leaves and self._leave_counts(cut):
            self._has_left = True
        else:
            self.put_out(cut)
        return True

    def _check_ended(self, sender: str, cut: int | None) -> None:
        """Raises RemoteProtocolError if this member does not know the sender, or if the cut is impossible."""
        me, knowledge = self._me, self._knowledge
        if not knowledge.membership.may_be_a_member(sender):
            raise RemoteProtocolError(
                f"{sender}, which this member does not know, reports that {me} has ended"
            )
        if cut is None:
            return
        peer, sent = self._peers.get(sender), knowledge.counted(me)
        if peer is not None and cut < peer.acknowledged:
            raise RemoteProtocolError(
                f"{sender} reports that {me} has ended at {cut:,}, but has acknowledged "
                f"{peer.acknowledged:,} of its messages"
            )
        if cut > sent and not knowledge.resumed:
            raise RemoteProtocolError(
                f"{sender} reports that {me} has ended at {cut:,}, but {me} has sent {sent:,}"
            )

    def _leave_counts(self, cut: int | None) -> bool:
        """Whether this leaver has left the group of a peer that reports its end.

        Without a number it is forgotten there: it has left; or it never was a member, as its contact was cut off before
        the join. The latter is impossible if all members know its join, or others have all that it has.
        """
        if cut is not None:
            return cut >= self._knowledge.counted(self._me)
        return self._knowledge.is_established(self._me) or self.has_said_all
