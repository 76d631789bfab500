"""The format level of a group: which formats its members may send, so that no member gets what it cannot read.

A level is a number that never falls. Each member announces the span of levels that its program reads; a *raise*, a
membership operation, asks for a higher level. That level may be used at a member once the raise is *stable* there: then
every member has delivered it. A member whose program does not read the level leaves the raise undelivered, and with it
all that comes after it; so it acknowledges none of that (docs/protocol.md, *Format level*).
"""

from typing import NamedTuple

from crdtcast.exceptions import OutdatedError
from crdtcast.tags import Dot, Vector, covers


class Span(NamedTuple):
    """The format levels that a program reads, both ends included."""

    lowest: int
    highest: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.lowest <= level <= self.highest

    def __str__(self) -> str:
        return (
            str(self.lowest) if self.lowest == self.highest else f"{self.lowest} to {self.highest}"
        )


PROGRAM = Span(1, 1)
"""What a member of this program reads, unless its application says something else."""


class Raised(NamedTuple):
    """A raise that is delivered here and not known to be stable."""

    level: int
    dot: Dot


class Levels:
    """The level of the group, as one member knows it. reads: what its program reads."""

    __slots__ = ("_in_force", "heard", "raised", "reads")

    def __init__(self, reads: Span, in_force: int, raised: tuple[Raised, ...]) -> None:
        self.reads = reads
        self.raised = raised
        self.heard = raised
        """All raises since this member began, or began again, those in force included: for its event log."""
        self._in_force = in_force

    def add(self, level: int, dot: Dot) -> None:
        """A raise was delivered."""
        if level > self._in_force:
            self.raised = (*self.raised, Raised(level, dot))
            self.heard = (*self.heard, Raised(level, dot))

    def in_force(self, stable: Vector) -> int:
        """The level that may be used, now that this much is stable here."""
        risen = [level for level, dot in self.raised if covers(stable, dot)]
        if risen:
            self._in_force = max(self._in_force, *risen)
            self.raised = tuple(raised for raised in self.raised if raised.level > self._in_force)
        return self._in_force

    @property
    def agreed(self) -> int:
        """The greatest level that this member has agreed to read: it may be in force elsewhere already."""
        return max((self._in_force, *(level for level, _ in self.raised)))


def check_program(who: str, reads: Span, in_force: int, agreed: int) -> None:
    """Raise OutdatedError if a program that reads `reads` must not touch what this member has stored.

    in_force, agreed: see `Levels`.
    """
    needed = agreed if agreed > reads.highest else in_force
    if needed not in reads:
        raise OutdatedError(
            f"{who} has stored data of format level {needed}, and this program reads level {reads}: "
            f"start a program that reads level {needed}; nothing was touched"
        )
