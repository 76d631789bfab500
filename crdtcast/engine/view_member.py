"""What the rules of views ask of the member that they are for: see `engine.membership_ops`, which answers."""

from collections.abc import Collection, Iterable, Mapping, Set
from typing import Protocol

from crdtcast.engine.operations import Cut
from crdtcast.engine.views import ViewChange


class Ground(Protocol):
    """One member: whom it knows, and what it has delivered."""

    me: str

    # Who is a member

    def going_on(self) -> Collection[str]:
        """The members, this one included, but those who went."""
        ...

    def cut_short(self) -> Mapping[str, Cut]:
        """Those who went and have not ended here."""
        ...

    def is_over(self, incarnation: str) -> bool:
        """Whether it went, or has ended, or can never be a member."""
        ...

    def end_of(self, incarnation: str) -> Cut | None:
        """Where somebody who went ends, whether or not it has ended here."""
        ...

    def replaced(self, among: Set[str]) -> set[str]:
        """Those of them whose successors have joined."""
        ...

    def is_unheard(self, member: str) -> bool:
        """Whether it was let in, and nothing has come of it."""
        ...

    def linked(self) -> Collection[str]:
        """The other members to which there is a link."""
        ...

    # What members have

    def counted(self, incarnation: str) -> int:
        """How many of its messages are delivered here."""
        ...

    def acknowledged(self, member: str, incarnation: str) -> int:
        """How much of an incarnation another member has, as it said last."""
        ...

    def untold(self, gone: Set[str]) -> Set[str]:
        """Before this member leaves: whom it waits for, of those who have not all that it has delivered."""
        ...

    # Votes and levels

    @property
    def abstains(self) -> bool:
        """Whether it must not vote: others may remember that it has voted, or there are two views of one epoch."""
        ...

    def may_vote(self, learner: str) -> bool:
        """Whether everybody knows it, and it has been heard of since."""
        ...

    def holds_data(self, member: str) -> bool:
        """Whether it is a member, and holds application state: a witness does not."""
        ...

    def reads_level(self, level: int) -> bool:
        """Whether the program of this member reads that format level."""
        ...

    def lacking_level(self, level: int) -> Collection[str]:
        """The members whose programs do not read that level, as they said last."""
        ...

    # What becomes of it

    def freeze(self, incarnations: Iterable[str]) -> None:
        """Deliver no more of these until the epoch is decided."""
        ...

    def agree(self, level: int | None) -> None:
        """A format level may be in force soon."""
        ...

    def decided(self, change: ViewChange) -> None:
        """The epoch is over, and the freeze with it."""
        ...
