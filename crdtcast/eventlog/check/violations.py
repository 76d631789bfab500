"""The kinds of violations in event logs, and their text."""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from crdtcast.causality.tags import Dot


class Problem(enum.Enum):
    """The kinds of violations. If `crdtcast.simulator.oracle` has the same kind, it has the same word."""

    LOG = "log"  # lines are missing, or are doubled
    GHOST = "ghost"  # delivered, but never sent
    DUPLICATE = "duplicate"  # delivered, or sent, a second time
    CAUSAL = "causal"  # delivered before a message of its past
    TAG = "tag"  # its context is not what the sender had sent or delivered
    FOREIGN = "foreign"  # sent under another member's name
    ROLLED_BACK = "rolled-back"  # it continues from an older state than its log's
    UNSAFE_STABLE = "unsafe-stable"  # stable, but a concurrent message can still come
    STABLE_ORDER = "stable-order"  # stable before a message of its past
    STABLE_TWICE = "stable-twice"
    STABLE_UNDELIVERED = "stable-undelivered"
    STALL = "stall"  # not stable, but the log says that nothing is left
    DIVERGED = "diverged"  # the same operations, another value
    VIEW = "view"  # a decision that others do not share, or that is not valid
    MEMBERSHIP = "membership"  # a join or end without its cause, or not logged
    AFTER_END = "after-end"  # sent after its sender's end, or delivered beyond a cut
    REISSUE = "reissue"  # an operation counts twice, under its old dot and a new one


class LogPlace(NamedTuple):
    """The place of an event: its incarnation, the number of the segment and of the line in it, the wall clock in
    microseconds, and the kind of the event."""

    incarnation: str
    segment: int
    line: int
    ts: int
    kind: str


@dataclass(frozen=True, slots=True)
class Violation:
    """One event that violates a definition.

    others: the messages that prove it.
    peers: the incarnations whose logs prove it, besides those that sent `dot` and `others`.
    sentence: the whole violation as text.
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
    """Takes the parts of a violation."""

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
    """The first three dots, and the number of the others."""
    names = [str(dot) for dot in dots]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
