"""What there is in a small scope: three voters, a learner that one of them lets in at any time, the ballots, and one
origin of data, X, whose numbers are all that the data path has.

X has sent all it will, and a member delivers of that what it may at the moment at which somebody sees it: what happens
in between is in no order with anything else, and need not be told apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import NamedTuple, TypeAlias

VOTERS = frozenset((0, 1, 2))
LEARNER = 3
X = 2
"""The voter whose data the others deliver."""
SENT = 2
"""So many numbers X has."""
UNENDED = -1


class Value(NamedTuple):
    """A change. cut: of X, or UNENDED. names: those who go on know of the learner. votes: it gets a vote."""

    out: frozenset[int]
    cut: int = UNENDED
    names: bool = False
    votes: bool = False

    def __str__(self) -> str:
        names = ", ".join(map(str, sorted(self.out))) or "nobody"
        ends = f", X ends at {self.cut}" if self.cut != UNENDED else ""
        return f"{names} out{ends}" + (", the learner votes" if self.votes else "")


History: TypeAlias = tuple[Value, ...]
"""The decided changes: their number is the epoch."""


class Record(NamedTuple):
    """A member. delivered: how much of X, as far as somebody has seen. durable: how much of that is on its disk, where
    all else is, too, but what it knows of the learner.
    """

    history: History = ()
    delivered: int = 0
    durable: int = 0
    promised: int = 0
    accepted: tuple[int, Value] | None = None
    frozen: int | None = None
    knows: bool = False


class Promise(NamedTuple):
    """As it travels."""

    accepted: tuple[int, Value] | None
    delivered: int = 0
    knows: bool = False


class Join(NamedTuple):
    """The learner's. number: of X's messages, if X is its contact; otherwise how many of them it comes behind."""

    contact: int
    number: int


class Votes(NamedTuple):
    """What is in flight of one ballot. promises: of voters, until there is a value. accepted: by whom; by a majority if
    it is VOTERS.
    """

    wanted: frozenset[int] | None = None
    promises: tuple[Promise | None, ...] = (None,) * (LEARNER + 1)
    value: Value | None = None
    accepted: frozenset[int] = frozenset()


NOTHING = Votes()
OVER = Votes(promises=(), value=Value(frozenset()))
"""Of a ballot in which nobody can do anything any more."""


class SetBack(NamedTuple):
    """Whose disk was set back, and how much of X it had told before."""

    who: int
    had: int


class State(NamedTuple):
    """Of all. crashes, losses: how many there may still be."""

    members: tuple[Record | None, ...]
    ballots: tuple[Votes, ...]
    join: Join | None = None
    crashes: int = 0
    losses: int = 0
    back: SetBack | None = None

    def is_silent(self, who: int) -> bool:
        """Whether nothing is heard of it any more."""
        return self.back is not None and self.back.who == who


@cache
def gone(history: History) -> frozenset[int]:
    """Who has been put out."""
    return frozenset(chain.from_iterable(value.out for value in history))


@cache
def cut_of(history: History) -> int:
    """Of X, as it was stated last."""
    return next((value.cut for value in reversed(history) if value.cut != UNENDED), UNENDED)


@cache
def is_none(join: Join | None, history: History) -> bool:
    """Whether the learner was let in beyond the cut of its contact: it never was a member.

    Where all go that know of it, and it is not known yet to one who stays, that cut is stated anew: without it.
    """
    if join is None or join.contact not in gone(history):
        return False
    if join.contact == X:
        return cut_of(history) < join.number
    return not [value for value in history if value.out][-1].names


@cache
def goes_on(who: int, join: Join | None, history: History) -> bool:
    """Whether it is in."""
    return who not in gone(history) and not (who == LEARNER and is_none(join, history))


@cache
def voters_of(history: History) -> frozenset[int]:
    """Who has a vote behind this history."""
    learners = {LEARNER} if any(value.votes for value in history) else ()
    return VOTERS.union(learners) - gone(history)


@cache
def is_majority(who: frozenset[int], history: History) -> bool:
    """Of the voters that there are behind this history."""
    voters = voters_of(history)
    return 2 * len(voters & who) > len(voters)


@cache
def most(record: Record) -> int:
    """How far it may deliver X."""
    cut = cut_of(record.history)
    number = SENT if cut == UNENDED else cut
    return number if record.frozen is None else min(number, record.frozen)


def seen(record: Record, join: Join | None) -> Iterator[Record]:
    """What it may have delivered by the time at which somebody sees it."""
    for delivered in range(record.delivered, max(record.delivered, most(record)) + 1):
        now = record._replace(delivered=delivered)
        if record.knows or join is None:
            yield now
        elif join.contact == X:
            yield now._replace(knows=delivered >= join.number)
        else:
            yield now
            if delivered >= join.number:
                yield now._replace(knows=True)
