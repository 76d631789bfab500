"""Group engines that trust a peer in one thing each. The campaign with a hostile member must catch them."""

from collections.abc import Callable
from typing import ClassVar

import msgpack

from crdtcast.engine.claims import Claims, Wrong
from crdtcast.engine.delivery import Inbox
from crdtcast.engine.group import GroupEngine
from crdtcast.engine.level import PROGRAM, Span
from crdtcast.engine.membership import GroupState
from crdtcast.engine.operations import Cut, Kind
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.messages import Digest, Ended, Message, Views
from crdtcast.tags import Dot

Known = Callable[[str], int]


class _Trusting(GroupEngine):
    """With other judges of what operations claim."""

    claims_type: ClassVar[type[Claims]] = Claims

    def __init__(self, me: str, state: GroupState, reads: Span = PROGRAM) -> None:
        super().__init__(me, state, reads)
        self._claims = self.claims_type(self._membership, self.vector)


class _AnyCut(Claims):
    def _cut(self, incarnation: str, cut: Cut, dot: Dot, known: Known) -> Wrong | None:
        return None


class TrustsCuts(_Trusting):
    """A sweep or a settlement is held against the past of its message."""

    claims_type = _AnyCut


class _Endless(Inbox):
    __slots__ = ()

    most_waiting = most_bytes = 2**62


class KeepsAll(GroupEngine):
    """What waits is bounded, for each origin."""

    inbox_type = _Endless


class TrustsEnds(GroupEngine):
    """That it has ended a member believes only those whom it knows, and only a number that can be."""

    def _check_ended(self, sender: str, cut: int | None) -> None:
        pass


class LetsErrorsThrough(GroupEngine):
    """Whatever is wrong with an operation is an error that blames its sender."""

    def _check_operation(self, sender: str, message: Message) -> None:
        if message.kind == Kind.SETTLED:
            incarnation, _ = msgpack.unpackb(message.payload)
            incarnation.partition("+")
        super()._check_operation(sender, message)


class BlamesNobody(GroupEngine):
    """Refusals name the sender."""

    def receive(self, sender: str, message: Message | Digest | Ended | Views) -> None:
        try:
            super().receive(sender, message)
        except RemoteProtocolError as error:
            raise RemoteProtocolError("something was refused") from error


class TrustsMemories(GroupEngine):
    """Only a member that was started from a journal believes that it has sent more than it knows."""

    def __init__(self, me: str, state: GroupState, reads: Span = PROGRAM) -> None:
        super().__init__(me, state, reads)
        self.resumed = True

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, True if name == "resumed" else value)


TRUSTING: dict[str, type[GroupEngine]] = {
    "trusts-cuts": TrustsCuts,
    "trusts-ends": TrustsEnds,
    "keeps-all": KeepsAll,
    "lets-errors-through": LetsErrorsThrough,
    "blames-nobody": BlamesNobody,
    "trusts-memories": TrustsMemories,
}
