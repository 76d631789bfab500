"""What may happen next in a small scope.

A message that was sent stays in flight for ever, so the orders hold loss, repetition, and hosts that die or are slow. A
crash takes what was delivered and is not durable. A disk that is set back lacks the change that its member has told
last; what it does before it hears that is its own harm, so it is silent from then on.

Orders that differ in nothing that somebody sees are one:

- Who proposes is not told apart: two members, or one that tries again. A ballot begins when somebody promises it. That
  its proposer has to promise it, too, is left out, so more may happen than with the engine.
- A ballot has its value at the last promise that it needs, and nobody promises it later. A promise of which no value
  comes only forbids its member something: what happens with it, happens without it, too.
- So only voters promise one by one. The learner freezes at the moment at which a value needs its promise, and says the
  same in all ballots of the epoch, in whatever order it hears of them. With a vote, it is a voter as any.
"""

from collections.abc import Iterator
from typing import TypeAlias

from tests.engine.designs.views.ballots import Deed, Situation, in_ballot
from tests.engine.designs.views.scopes import Scope
from tests.engine.designs.views.state import (
    LEARNER,
    NOTHING,
    SENT,
    History,
    Join,
    Record,
    SetBack,
    State,
    Value,
    X,
    goes_on,
    is_majority,
    seen,
    voters_of,
)

Step: TypeAlias = tuple[Deed, State]


def begin(scope: Scope) -> State:
    """Before anything has happened."""
    x = Record(delivered=SENT, durable=SENT)
    ballots = (NOTHING,) * sum(scope.ballots)
    return State((Record(), Record(), x, None), ballots, None, scope.crashes, scope.losses)


def steps(state: State, scope: Scope) -> Iterator[Step]:
    """All that may happen."""
    epochs = scope.epochs
    for who, record in enumerate(state.members):
        if record is None:
            continue
        if state.is_silent(who) and scope.without != "who was set back is over":
            continue
        epoch = len(record.history)
        if goes_on(who, state.join, record.history):
            for deed, after in _doings(state, scope, who, record, epochs[epoch]):
                yield deed, after
                if state.losses:
                    yield from _set_back(state, scope, who, deed, after)
        if epoch + 1 < len(epochs):
            yield from _learn(state, scope, who, record, epochs[epoch])
        if state.crashes and record.durable < record.delivered:
            yield from _crash(state, who, record)


def _doings(state: State, scope: Scope, who: int, record: Record, numbers: range) -> Iterator[Step]:
    """What a member does and tells."""
    members, votes, join, crashes, losses, back = state
    if scope.joins and join is None:
        yield from _join(state, scope, who, record)
    if who not in voters_of(record.history):
        return
    learner = None if state.is_silent(LEARNER) else members[LEARNER]
    wants = scope.wants(len(record.history))
    situation = Situation(wants, scope.votes, join, learner, scope.without)
    for at in numbers:
        for deed, after, told, behind in in_ballot(who, record, at, votes[at], situation):
            now = (*members[:who], after, *members[who + 1 :])
            if behind is not None:
                now = (*now[:LEARNER], behind)
            ballots = (*votes[:at], told, *votes[at + 1 :])
            yield deed, State(now, ballots, join, crashes, losses, back)


def _set_back(state: State, scope: Scope, who: int, deed: Deed, after: State) -> Iterator[Step]:
    """What has been told is known, but not to who told it."""
    tellers = [who]
    learner = state.members[LEARNER]
    if who != LEARNER and learner is not None and after.members[LEARNER] != learner:
        tellers.append(LEARNER)
    for teller in tellers:
        told = after.members[teller]
        assert told is not None
        # Nobody asks what it has, where it is silent.
        is_silent = scope.without != "who was set back is over"
        record = Record() if is_silent else state.members[teller]
        members = (*after.members[:teller], record, *after.members[teller + 1 :])
        # X has sent what others have told, though nobody may have it any more.
        had = told.delivered if after.join is None and teller != X else 0
        back = SetBack(teller, had)
        yield (
            (*deed, "and", teller, "is set back"),
            after._replace(members=members, losses=0, back=back),
        )


def _join(state: State, scope: Scope, contact: int, record: Record) -> Iterator[Step]:
    """An admission is a message, which leaves behind what it rests on."""
    learners = []
    if contact == X:
        # One that is in no past yet.
        had = 0 if state.back is None else state.back.had
        first = 1 + max(had, *(each.delivered for each in state.members[:X] if each is not None))
        for number in range(first, SENT + 1):
            learner = Record(record.history, number, number, knows=True)
            learners.append((record, Join(X, number), learner))
    else:
        inherits = scope.without != "a joiner inherits a freeze"
        for now in seen(record, None):
            number = now.delivered
            frozen = now.frozen if inherits else None
            learner = Record(now.history, number, number, frozen=frozen, knows=True)
            after = now._replace(durable=number, knows=True)
            learners.append((after, Join(contact, number), learner))
    for after, join, learner in learners:
        members = (*state.members[:contact], after, *state.members[contact + 1 : LEARNER], learner)
        deed = (contact, "lets the learner in, at number", join.number, "of X")
        yield deed, state._replace(members=members, join=join)


def chosen(state: State, ballots: range, history: History, without: str) -> list[Value]:
    """What a majority has accepted behind this history."""
    values: list[Value] = []
    for at in ballots:
        votes = state.ballots[at]
        if votes.value is None or not votes.accepted or votes.value in values:
            continue
        if without == "a majority accepts" or is_majority(votes.accepted, history):
            values.append(votes.value)
    return values


def _learn(state: State, scope: Scope, who: int, record: Record, ballots: range) -> Iterator[Step]:
    for value in chosen(state, ballots, record.history, scope.without):
        history = (*record.history, value)
        after = Record(history)
        if goes_on(who, state.join, history):
            after = Record(history, record.delivered, record.delivered, knows=record.knows)
        members = (*state.members[:who], after, *state.members[who + 1 :])
        yield (who, "learns:", value), state._replace(members=members)


def _crash(state: State, who: int, record: Record) -> Iterator[Step]:
    has_let_in = state.join is not None and who in (state.join.contact, LEARNER)
    for left in range(record.durable, record.delivered):
        fallen = record._replace(delivered=left, knows=has_let_in)
        members = (*state.members[:who], fallen, *state.members[who + 1 :])
        crashed = state._replace(members=members, crashes=state.crashes - 1)
        yield (who, "crashes, and has", left, "of X"), crashed
