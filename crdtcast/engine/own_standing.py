"""What the incarnation of a member is, as far as it knows itself, and so whether it sends and takes."""

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
"""Ticks for which this member is in dispute after one that a majority has put out has said the same of it."""
LEAST_PAUSE = 4
MOST_PAUSE = 32
"""Ticks for which a leaver takes nothing, and then does for as long."""


class OwnStanding:
    """Of one member; the parts that it is given are the engine's."""

    def __init__(
        self,
        peers: Mapping[str, Peer],
        knowledge: GroupKnowledge,
        proposer: Proposer,
        forks: Forks,
        probation: Probation,
    ) -> None:
        self.is_plain = False
        """True: it sends and takes, and nothing has happened that could change that. Looked at for each message."""
        self.cut: int | None = None
        """If it was evicted: the number of its messages that count, as far as it was told."""
        self._is_evicted = self._has_left = False
        self._me = knowledge.me
        self._peers = peers
        self._membership = knowledge.membership
        self._knowledge = knowledge
        self._proposer = proposer
        self._forks = forks
        self._probation = probation
        self._tick = 0
        self._disputed: dict[str, int] = {}  # who has cut us off, as they said last, in which tick
        self._pauses = False  # whether it leaves, and takes nothing for a while
        self._pause = LEAST_PAUSE
        self._turns_at = self._taken = 0

    @property
    def standing(self) -> Standing:
        """See `Standing`."""
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
        """Whether the operator has to know that it has put this member out, and was put out itself.

        Where that was by force, until one side has given up. If a majority has put it out it may lie: then for some
        time after it said so last.
        """
        tomb = self._membership.tombs.get(other)
        if tomb is None:
            return False
        return tomb.how is How.FORCED or self._tick - self._disputed[other] < DISPUTE_TICKS

    @property
    def is_over(self) -> bool:
        """Whether this incarnation takes part in nothing any more."""
        return self._has_left or self._is_evicted

    def is_deaf_to(self, content: object) -> bool:
        """Whether it does not take this from others: those who are put out pass on what they are told of views."""
        return self.is_over and not (self._is_evicted and isinstance(content, Views))

    @property
    def is_ending(self) -> bool:
        """Whether it sends nothing any more."""
        return self.is_over or self._proposer.wants.leaves or self._me in self._membership.cuts

    @property
    def has_said_all(self) -> bool:
        """Whether it leaves, and others have all that it has: what it takes now it could hand over to nobody."""
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
        unless it takes none for a while. Not for good: two who leave wait for each other.
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
        """It says nothing more; in particular if it does not know what it has said, or voted for."""
        self.is_plain = False
        self._is_evicted = True
        self.cut = cut

    def gone(self) -> None:
        """The group has put it out, or let it leave, and enough members know that."""
        cut = self._membership.cuts[self._me]
        if self._proposer.wants.leaves and self._knowledge.counted(self._me) <= cut.counter:
            self._has_left = True
        else:
            self.put_out()

    def told_ended(self, sender: str, cut: int | None) -> bool:
        """A peer has told that this incarnation has ended. False: a majority has evicted that one."""
        tomb = self._membership.tombs.get(sender)
        ended = self._membership.ended.get(sender) or tomb
        if ended is not None and ended.how is How.EVICTED:
            # It has put this member out by force, while the group has put it out: the operator has to know.
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
        """Whether this member may have been told so: by somebody whom it knows, with a cut that can be."""
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
        """Whether this leaver has left the group of somebody that tells it its end.

        Without a number it is forgotten there: it has left; or it never was a member, as its contact was cut off before
        the join. Not if everybody knows that, or enough have taken all that it has.
        """
        if cut is not None:
            return cut >= self._knowledge.counted(self._me)
        return self._knowledge.is_established(self._me) or self.has_said_all
