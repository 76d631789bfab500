"""The format level of a group: which formats its members may send, so that no member gets what it cannot read.

A level is a number that never falls, and a part of the view. Each member announces the span of levels that its program
reads. A change that raises the level has the promises of all who go on; a member promises only what its program reads,
and never starts again with one that does not.
"""

from typing import NamedTuple

from crdtcast.exceptions import OutdatedError


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
"""What this program reads, unless its application says something else."""


def needed_level(reads: Span, in_force: int, agreed: int) -> int | None:
    """The level that a program has to read and does not; None if it may run.

    in_force: that of the view. agreed: the greatest that this member has promised, which may be in force elsewhere.
    """
    needed = agreed if agreed > reads.highest else in_force
    return None if needed in reads else needed


def check_program(who: str, reads: Span, in_force: int, agreed: int) -> None:
    """Raises OutdatedError if a program that reads `reads` must not touch what this member has stored."""
    if (needed := needed_level(reads, in_force, agreed)) is not None:
        raise OutdatedError(
            f"{who} has stored data of format level {needed}, and this program reads level "
            f"{reads}: start a program that reads level {needed}; this one changed nothing"
        )
