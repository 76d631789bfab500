"""What the admin socket has to know of the process behind it: of a node, and of a gateway."""

from collections.abc import Container
from typing import NamedTuple, Protocol

from crdtcast.engine import GroupEngine
from crdtcast.incarnation import name_of
from crdtcast.status import Status
from crdtcast.tags import Tag


class Named(Protocol):
    """Of its options."""

    @property
    def name(self) -> str: ...
    @property
    def leave_seconds(self) -> float: ...


class Membership(Protocol):
    """Its place in the group."""

    @property
    def engine(self) -> GroupEngine: ...
    @property
    def incarnation(self) -> str: ...
    async def changed(self) -> None: ...
    def evict(self, member: str, *, force: bool = False) -> object: ...
    def raise_level(self, level: int) -> Tag: ...
    def surrender(self) -> None: ...
    def cut(self, name: str) -> None: ...
    def heal(self, name: str) -> None: ...


class Departure(NamedTuple):
    """How a leave has ended. done: some member that goes on has all that the leaver had. silent: members out of reach
    that have not acknowledged it; they get it from the others when they are back.
    """

    done: bool
    silent: tuple[str, ...] = ()

    def warning(self, seconds: float) -> str | None:
        """What a log should say of a leave that had so many seconds; None if all is well."""
        if self.silent:
            return f"left; {', '.join(self.silent)} did not acknowledge it, being out of reach"
        if not self.done:
            return (
                f"not left within {seconds:g} s: the others take this node for dead, evict it there"
            )
        return None


def departed(engine: GroupEngine, linked: Container[str]) -> Departure:
    """How a leave has ended that has waited for long enough. linked: names of those that can be reached."""
    silent = {name_of(who) for who in engine.leave_waits_for()}
    others = set(map(name_of, engine.members)) - silent
    if not others or any(name in linked for name in silent):
        return Departure(False)
    return Departure(True, tuple(sorted(silent)))


class Administered(Protocol):
    """The process. `member` raises NotReadyError until it is one."""

    @property
    def settings(self) -> Named: ...
    @property
    def member(self) -> Membership: ...
    def status(self) -> Status: ...
    def waits_for(self) -> str | None:
        """Why clients should not be sent there; None: they should."""

    async def leave(self) -> Departure: ...
    def stop(self) -> None: ...
