"""What can be wrong in event logs, and how it is said."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from crdtcast.causality.tags import Dot


class Problem(enum.Enum):
    """The kinds of violations. Where `crdtcast.simulator.oracle` knows the same one, the word is the same."""

    LOG = "log"  # lines are missing, or are there twice
    GHOST = "ghost"  # delivered, though nobody sent it
    DUPLICATE = "duplicate"  # delivered, or sent, a second time
    CAUSAL = "causal"  # delivered before something of its past
    TAG = "tag"  # its context is not what the sender had sent or delivered
    FOREIGN = "foreign"  # sent under another member's name
    ROLLED_BACK = "rolled-back"  # an incarnation goes on from an older state than its own log's
    UNSAFE_STABLE = "unsafe-stable"  # told stable, though a concurrent message can still come
    STABLE_ORDER = "stable-order"  # told stable before something of its past
    STABLE_TWICE = "stable-twice"
    STABLE_UNDELIVERED = "stable-undelivered"
    STALL = "stall"  # not told stable, though the log says that nothing is left
    DIVERGED = "diverged"  # the same operations, another value
    VIEW = "view"  # a decision that others do not share, that does not follow, or that cannot be
    MEMBERSHIP = "membership"  # somebody joins or ends without what brings that about, or untold
    AFTER_END = "after-end"  # sent after the own end, or delivered beyond a cut
    REISSUE = "reissue"  # an operation counts twice, under its old dot and a new one


class LogPlace(NamedTuple):
    """Where an event is: its incarnation, the number of the segment, and the line in it; with the
    wall clock in microseconds and the kind of the event."""

    incarnation: str
    segment: int
    line: int
    ts: int
    kind: str


@dataclass(frozen=True, slots=True)
class Violation:
    """One event that does not fit.

    `others` are the messages that prove it, `peers` the incarnations whose logs do, besides those
    that sent `dot` and `others`. `sentence` says all of it.
    """

    problem: Problem
    group: str
    place: LogPlace
    sentence: str
    dot: Dot | None = None
    others: tuple[Dot, ...] = ()
    peers: tuple[str, ...] = ()
    object: str = ""

    def __str__(self) -> str:
        return f"{self.problem.value}: {self.sentence}"


class Report(Protocol):
    """Takes a violation apart."""

    def __call__(
        self,
        problem: Problem,
        place: LogPlace,
        sentence: str,
        dot: Dot | None = None,
        others: tuple[Dot, ...] = (),
        peers: tuple[str, ...] = (),
    ) -> None: ...


def listed(dots: Iterable[Dot]) -> str:
    """The first three, and how many more."""
    names = [str(dot) for dot in dots]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
