"""Group engines that each trust a peer in one thing. The campaign with a hostile member must catch them."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import msgpack

from crdtcast.causality.messages import Digest, Ended, Message
from crdtcast.causality.tags import Dot
from crdtcast.engine.consensus import Consensus
from crdtcast.engine.delivery import Inbox
from crdtcast.engine.forks import Forks
from crdtcast.engine.group import GroupEngine
from crdtcast.engine.level import PROGRAM, Span
from crdtcast.engine.membership import GroupState, Membership
from crdtcast.engine.operation_claims import Claims, Wrong
from crdtcast.engine.operations import Cut, OperationKind
from crdtcast.engine.own_standing import OwnStanding
from crdtcast.engine.view_exchange import Exchange
from crdtcast.engine.views import Accepted, Proposal, Record, ViewChange, Views
from crdtcast.exceptions import RemoteProtocolError

Known = Callable[[str], int]


class _AnyCut(Claims):
    def _cut(self, incarnation: str, cut: Cut, dot: Dot, known: Known) -> Wrong | None:
        return None


class TrustsCuts(GroupEngine):
    """The cuts in a sweep or settlement are compared with the past of its message."""

    claims_type: ClassVar[type[Claims]] = _AnyCut


class _Endless(Inbox):
    __slots__ = ()

    most_waiting = most_bytes = 2**62


class KeepsAll(GroupEngine):
    """The number of waiting messages is limited for each origin."""

    inbox_type: ClassVar[type[Inbox]] = _Endless


class _Gullible(OwnStanding):
    def _check_ended(self, sender: str, cut: int | None) -> None:
        pass


class TrustsEnds(GroupEngine):
    """A member believes that it has ended only if a known member says so, and only with a possible number."""

    standing_type: ClassVar[type[OwnStanding]] = _Gullible


class _Careless(Claims):
    def check(self, sender: str, message: Message) -> None:
        if message.kind == OperationKind.SETTLED:
            incarnation, _ = msgpack.unpackb(message.payload)
            incarnation.partition("+")
        super().check(sender, message)


class LetsErrorsThrough(GroupEngine):
    """Each error in an operation blames its sender."""

    claims_type: ClassVar[type[Claims]] = _Careless


class BlamesNobody(GroupEngine):
    """Refusals name the sender."""

    def receive(self, sender: str, message: Message | Digest | Ended | Views) -> None:
        try:
            super().receive(sender, message)
        except RemoteProtocolError as error:
            raise RemoteProtocolError("something was refused") from error


class TrustsMemories(GroupEngine):
    """Only a member that started from a journal believes that it has sent more than it knows."""

    def __init__(self, me: str, state: GroupState, reads: Span = PROGRAM) -> None:
        super().__init__(me, state, reads)
        self.resumed = True

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, True if name == "resumed" else value)


class _AnyFrame(Exchange):
    def _check(self, sender: str, frame: Views) -> None:
        pass


class TrustsFrames(GroupEngine):
    """A record or change that no member can have made is refused, also if an honest member relays it."""

    exchange_type: ClassVar[type[Exchange]] = _AnyFrame


class _AnyRecord(Exchange):
    def _check_own(self, record: Record) -> None:
        pass


class TrustsRecords(GroupEngine):
    """A record names no incarnation that cannot be a member any more, nor more of its receiver than it has sent."""

    exchange_type: ClassVar[type[Exchange]] = _AnyRecord


class _Reaching(Consensus):
    def _in_reach(self) -> int:
        return 2**63


class TakesAnyBallot(GroupEngine):
    """A ballot far ahead of those that others have answered is ignored."""

    consensus_type: ClassVar[type[Consensus]] = _Reaching


class _Obedient(Consensus):
    def _may_follow(self, proposal: Proposal, change: ViewChange) -> bool:
        return True


class AcceptsAnything(GroupEngine):
    """No member accepts a change that its terms do not allow, or that cuts off more than members may lose."""

    consensus_type: ClassVar[type[Consensus]] = _Obedient


class _Credulous(Consensus):
    def _accepted_before(
        self, proposal: Proposal, promises: Mapping[str, Record]
    ) -> list[Accepted]:
        voters = promises.keys() & self.view.voters
        return [each for who in voters if (each := promises[who].accepted) is not None]


class TakesOverAnything(GroupEngine):
    """A change that no member can have requested is not adopted, though a member says that it has accepted it."""

    consensus_type: ClassVar[type[Consensus]] = _Credulous


class _Unasked(Consensus):
    def _was_asked(self, accepted: Accepted) -> bool:
        return True


class ForcedUnasked(GroupEngine):
    """A change forces a remaining member only to what it has promised."""

    consensus_type: ClassVar[type[Consensus]] = _Unasked


class _Unreading(Consensus):
    def _can_go_on(self, change: ViewChange) -> bool:
        return True


class TakesAnyLevel(GroupEngine):
    """No decision raises the level above what each remaining member reads."""

    consensus_type: ClassVar[type[Consensus]] = _Unreading


class _Haunted(Membership):
    def drop_unborn(self) -> bool:
        return False


class KeepsUnborn(GroupEngine):
    """An incarnation that can never be a member leaves no cut behind."""

    membership_type: ClassVar[type[Membership]] = _Haunted


class _OneWord(Forks):
    enough = 1


class StopsAtOneWord(GroupEngine):
    """A member stops changing views only if two members report that an epoch has ended in two ways."""

    forks_type: ClassVar[type[Forks]] = _OneWord


TRUSTING: dict[str, type[GroupEngine]] = {
    mutant.__name__: mutant
    for mutant in (
        TrustsCuts,
        TrustsEnds,
        KeepsAll,
        LetsErrorsThrough,
        BlamesNobody,
        TrustsMemories,
        TrustsFrames,
        TrustsRecords,
        TakesAnyBallot,
        AcceptsAnything,
        TakesOverAnything,
        ForcedUnasked,
        TakesAnyLevel,
        KeepsUnborn,
        StopsAtOneWord,
    )
}
