"""What the admin socket needs of the process behind it, a node or a gateway."""

from typing import NamedTuple, Protocol

from crdtcast.causality.member_id import name_of
from crdtcast.engine import GroupEngine
from crdtcast.group.status import Status


class NamedMember(Protocol):
    """The options that the admin socket reads."""

    @property
    def name(self) -> str: ...
    @property
    def leave_seconds(self) -> float: ...


class AdministeredMembership(Protocol):
    """Its membership in the group."""

    @property
    def engine(self) -> GroupEngine: ...
    @property
    def incarnation(self) -> str: ...
    async def changed(self) -> None: ...
    def evict(self, *members: str, force: bool = False) -> None: ...
    def withdraw(self, *members: str) -> None: ...
    def raise_level(self, level: int) -> None: ...
    def surrender(self) -> None: ...
    def cut(self, name: str) -> None: ...
    def heal(self, name: str) -> None: ...


class Departure(NamedTuple):
    """How a leave has ended.

    left: whether the group has decided it.
    confirmed: whether a majority of the remaining voters is known to know it.
    waits_for: names of the members that are missing for that.
    """

    left: bool = True
    confirmed: bool = True
    waits_for: tuple[str, ...] = ()

    def warning(self, seconds: float) -> str | None:
        """A warning about a leave that took at most so many seconds; None if all is well."""
        waited = f"waited {seconds:g} s for {', '.join(self.waits_for) or 'the others'}"
        if not self.left:
            return (
                f"did not leave, {waited}: evict this node from another member, since the others "
                "still count it. Its journal keeps what only this node had: after a restart it "
                "sends that"
            )
        if not self.confirmed:
            return (
                f"left, not confirmed, {waited}: the group has decided it, and they will learn it "
                "from the others. The journal stays: after a restart this node asks them first, "
                "then joins under a new id"
            )
        return None


def departed(engine: GroupEngine) -> Departure:
    """The state of a leave that has not ended in time."""
    waits_for = tuple(sorted(map(name_of, engine.waits_for())))
    return Departure(engine.me not in engine.going_on(), False, waits_for)


class Administered(Protocol):
    """The process. `member` raises NotReadyError until it is a member."""

    @property
    def settings(self) -> NamedMember: ...
    @property
    def member(self) -> AdministeredMembership: ...
    def status(self) -> Status: ...
    def waits_for(self) -> str | None:
        """Why clients should not be sent to it; None if they should."""

    async def leave(self, *, plain: bool = False) -> Departure:
        """plain: leave a plain database in its server. Raises LocalProtocolError if it has none."""

    def stop(self) -> None: ...
