"""What one member does in a ballot: it promises, which may be the last promise that a change needs, or it accepts.

All of it is worked out once for each record and what is in flight, however many states have these in them.
"""

from collections.abc import Collection, Iterator
from functools import cache
from typing import NamedTuple, TypeAlias

from tests.engine.designs.views.state import (
    LEARNER,
    OVER,
    SENT,
    UNENDED,
    VOTERS,
    History,
    Join,
    Promise,
    Record,
    Value,
    Votes,
    X,
    cut_of,
    gone,
    is_majority,
    is_none,
    seen,
    voters_of,
)

Deed: TypeAlias = tuple[object, ...]
"""What happens, in words."""


class Situation(NamedTuple):
    """wants: who may be wanted out. votes: whether the learner may get a vote. learner: None if it is silent, or not
    there yet. without: a rule.
    """

    wants: tuple[frozenset[int], ...]
    votes: bool
    join: Join | None
    learner: Record | None
    without: str


class Told(NamedTuple):
    """What a member notes, what is in flight then, and what the learner notes, if it has a say."""

    deed: Deed
    record: Record
    votes: Votes
    learner: Record | None = None


@cache
def in_ballot(
    who: int, record: Record, at: int, votes: Votes, situation: Situation
) -> tuple[Told, ...]:
    """All that a voter may do there."""
    if votes is OVER or votes.promises[who] is not None:
        return ()
    if votes.value is None:
        return tuple(_promise(who, record, at, votes, situation)) if record.promised <= at else ()
    after = _accepted(who, record, at, votes, situation.without)
    if after is None:
        return ()
    accepted = votes.accepted | {who}
    if is_majority(accepted, record.history):
        accepted = VOTERS  # who else accepts it does not matter
    return (Told((who, "accepts in ballot", at + 1), after, votes._replace(accepted=accepted)),)


def _promise(
    who: int, record: Record, at: int, votes: Votes, situation: Situation
) -> Iterator[Told]:
    history = record.history
    for want in situation.wants if votes.wanted is None else (votes.wanted,):
        if want & gone(history):
            continue
        for promise, after in _promises(who, record, at, want, situation):
            promises = (*votes.promises[:who], promise, *votes.promises[who + 1 :])
            deed = (who, "promises ballot", at + 1, "for", Value(want), "with", promise.delivered)
            changes = _changes(promises, want, history, situation)
            for value, learner in changes:
                yield Told((*deed, "so:", value), after, Votes(want, value=value), learner)
            if not changes:
                yield Told(deed, after, Votes(want, promises))


def _promises(
    who: int, record: Record, at: int, want: frozenset[int], situation: Situation
) -> Iterator[tuple[Promise, Record]]:
    """What it may report, and what it notes. Where nobody is to go, it reports and freezes nothing."""
    without = situation.without
    if not want or (who == X and X in want):
        frozen = None if without == "a freeze lasts" else record.frozen
        yield Promise(record.accepted), record._replace(promised=at + 1, frozen=frozen)
        return
    for now in seen(record, situation.join):
        after = _frozen(now, want, without)._replace(promised=at + 1, durable=now.delivered)
        if without == "a promise is durable with its data":
            after = after._replace(durable=record.durable)
        yield Promise(now.accepted, now.delivered, now.knows), after


def _frozen(now: Record, want: frozenset[int], without: str) -> Record:
    """It takes no more of X, if that is to go, or went and has not ended here."""
    if without == "a freeze lasts" and X not in want:
        return now._replace(frozen=None)
    is_open = now.delivered < cut_of(now.history) and without != "a cut is stated anew"
    if now.frozen is None and (X in want or is_open) and without != "a promise freezes":
        return now._replace(frozen=now.delivered)
    return now


@cache
def _changes(
    promises: tuple[Promise | None, ...],
    want: frozenset[int],
    history: History,
    situation: Situation,
) -> tuple[tuple[Value, Record | None], ...]:
    """The changes that these promises allow, and what the learner notes, if it has a say."""
    without = situation.without
    made = {who: promise for who, promise in enumerate(promises) if promise is not None}
    if not is_majority(frozenset(made), history):
        return ()
    before = [promise.accepted for promise in made.values() if promise.accepted is not None]
    if before and without != "what was accepted is adopted":
        adopted = min(before) if without == "the highest ballot counts" else max(before)
        return ((adopted[1], None),)
    is_in = situation.join is not None and not is_none(situation.join, history)
    voters = voters_of(history)
    votes = (False, True) if is_in and situation.votes and LEARNER not in voters else (False,)
    if not want:
        return tuple((Value(want, votes=each), None) for each in votes)
    on = voters - want
    if not on <= made.keys():
        return ()
    told = [made[who].delivered for who in on]
    names = is_in and any(made[who].knows for who in on)
    if not names or LEARNER in on or without == "all who go on promise":
        return ((Value(want, _cut(told, want, history, without), names), None),)
    if situation.learner is None:
        return ()
    return tuple(
        (Value(want, _cut([*told, number], want, history, without), True, each), learner)
        for number, learner in _learner(situation.learner, want, history, without)
        for each in votes
    )


def _cut(told: Collection[int], want: frozenset[int], history: History, without: str) -> int:
    """Where X ends: the most of all who go on. It is stated anew if X went, and has not ended at one of them."""
    is_open = min(told) < cut_of(history) and without != "a cut is stated anew"
    return max(told) if X in want or is_open else UNENDED


def _learner(
    record: Record, want: frozenset[int], history: History, without: str
) -> Iterator[tuple[int, Record]]:
    """How much of X the learner may report, and what it notes."""
    if len(record.history) > len(history):
        # It has reported that before it came there.
        for number in range(SENT + 1):
            yield number, record
        return
    if record.history != history:
        record = Record(history, record.delivered, record.durable, knows=True)  # it learns first
    for now in seen(record, None):
        yield now.delivered, _frozen(now, want, without)._replace(durable=now.delivered)


def _accepted(who: int, record: Record, at: int, votes: Votes, without: str) -> Record | None:
    """What it notes; None: it does not accept."""
    assert votes.value is not None
    if votes.accepted != VOTERS and who in votes.accepted:
        return None
    if record.accepted is not None and record.accepted[0] > at:
        return None
    if record.promised > at + 1 and without != "a promise binds":
        return None
    promised = max(record.promised, at + 1)
    return record._replace(
        promised=promised, accepted=(at + 1, votes.value), durable=record.delivered
    )
