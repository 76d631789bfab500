"""Equivalent states: those that differ in nothing that can matter any more are one."""

from functools import cache

from tests.engine.designs.views.scopes import Scope
from tests.engine.designs.views.state import (
    LEARNER,
    NOTHING,
    OVER,
    VOTERS,
    Record,
    State,
    Votes,
    voters_of,
)

_MIRROR = (1, 0, 2, 3)
_FREE, _VALUED, _DECIDED, _DONE = range(4)


def tidied(state: State, scope: Scope) -> State:
    """The one that stands for all that are like this.

    Nobody looks at a ballot in which no voter can promise or accept any more, or whose epoch all have left. A promise
    forbids only what could be done otherwise. What was accepted is told with a promise, and what is known of the
    learner: at a member that has none left to give, neither matters.
    """
    if scope.without in ("a promise binds", "a majority accepts"):
        return state
    members, ballots, join, crashes, losses, back = state
    silent = -1 if back is None else back.who
    epochs = scope.epochs
    last = len(epochs) - 1
    fresh = list(ballots)
    for epoch, numbers in enumerate(epochs):
        if last and _is_past(members, epoch, silent):
            for at in numbers:
                fresh[at] = NOTHING
            continue
        for at in numbers:
            votes = fresh[at]
            if votes is NOTHING or votes is OVER or votes.accepted is VOTERS:
                continue
            if not _is_open(votes, members[: LEARNER + scope.votes], epoch, at, silent):
                fresh[at] = OVER
    kinds = tuple(map(_kind, fresh))
    return State(
        tuple(record and _plain(record, kinds, epochs) for record in members),
        tuple(fresh),
        join,
        crashes,
        losses,
        back,
    )


def _is_past(members: tuple[Record | None, ...], epoch: int, silent: int) -> bool:
    return all(
        record is None or who == silent or len(record.history) > epoch
        for who, record in enumerate(members)
    )


def _is_open(
    votes: Votes, members: tuple[Record | None, ...], epoch: int, at: int, silent: int
) -> bool:
    """Whether a voter may still promise or accept something there."""
    for who, record in enumerate(members):
        if who == silent or record is None:
            continue
        there = len(record.history)
        if there < epoch:
            return True
        if there == epoch and who in voters_of(record.history):
            if votes.value is None:
                if record.promised <= at:
                    return True
            elif record.promised <= at + 1 and who not in votes.accepted:
                return True
    return False


def _kind(votes: Votes) -> int:
    if votes.value is None:
        return _FREE
    if votes is OVER:
        return _DONE
    return _DECIDED if votes.accepted is VOTERS else _VALUED


@cache
def _plain(record: Record, kinds: tuple[int, ...], epochs: tuple[range, ...]) -> Record:
    """kinds: of all ballots."""
    epoch = len(record.history)
    ballots = epochs[epoch]
    promised, accepted, knows = record.promised, record.accepted, record.knows
    if not any(kinds[at] == _FREE and promised <= at for at in ballots):
        accepted = None
        knows = knows and epoch + 1 < len(epochs)
    may = _abilities(promised, ballots, kinds)
    promised = next(
        less for less in (0, *(at + 1 for at in ballots)) if _abilities(less, ballots, kinds) == may
    )
    return record._replace(promised=promised, accepted=accepted, knows=knows)


def _abilities(promised: int, ballots: range, kinds: tuple[int, ...]) -> list[tuple[bool, bool]]:
    """In which ballots it may accept, and promise."""
    return [
        (promised <= at + 1, promised <= at and kinds[at] == _FREE)
        for at in ballots
        if kinds[at] != _DONE
    ]


def name(state: State, scope: Scope) -> int:
    """The same for states that are one: its hash. 0 and 1 may change places where the same can happen to both."""
    members, ballots, join, crashes, losses, back = state
    if scope.is_symmetric and hash(members[0]) > hash(members[1]):
        members = (members[1], members[0], *members[2:])
        ballots = tuple(map(_mirrored, ballots))
        if join is not None:
            join = join._replace(contact=_MIRROR[join.contact])
        if back is not None:
            back = back._replace(who=_MIRROR[back.who])
    return hash((members, ballots, join, crashes, losses, back))


def _mirrored(votes: Votes) -> Votes:
    if votes is OVER:
        return votes
    one, other, *rest = votes.promises
    accepted = frozenset(_MIRROR[who] for who in votes.accepted)
    return votes._replace(promises=(other, one, *rest), accepted=accepted)
