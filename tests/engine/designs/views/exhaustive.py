"""The rules of views in every order of events that a small scope has: three voters, a learner that one of them lets in
at any time, a few ballots, and one origin of data, X, whose numbers are all that the data path has.

A message that was sent stays in flight for ever, so the orders hold loss, repetition, and hosts that die or are slow. X
has sent all it will, and a member delivers of that what it may at the moment at which somebody sees it: what happens in
between is in no order with anything else, and need not be told apart. A crash takes what was delivered and is not
durable; a disk that is set back, the last change of a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, combinations
from typing import Any, NamedTuple, TypeAlias

VOTERS = frozenset((0, 1, 2))
LEARNER = 3
X = 2
"""The voter whose data the others deliver."""
SENT = 2
"""So many numbers X has."""
UNENDED = -1


class Value(NamedTuple):
    """A change. cut: of X, or UNENDED. names: those who go on know of the learner."""

    out: frozenset[int]
    cut: int
    names: bool = False

    def __str__(self) -> str:
        names = ", ".join(map(str, sorted(self.out))) or "nobody"
        return f"{names} out" + (f", X ends at {self.cut}" if self.cut != UNENDED else "")


History: TypeAlias = tuple[Value, ...]
"""The decided changes: their number is the epoch."""


class Record(NamedTuple):
    """A member. durable: how much of X is on its disk, where all else is, too, but what it knows of the learner.

    before: the disk before its last change, where it may be set back. is_over: it has been told that it was.
    """

    history: History = ()
    delivered: int = 0
    durable: int = 0
    promised: int = 0
    accepted: tuple[int, Value] | None = None
    frozen: int | None = None
    knows: bool = False
    before: Record | None = None
    is_over: bool = False

    @property
    def most(self) -> int:
        """How far it may deliver X."""
        cut = cut_of(self.history)
        most = SENT if cut == UNENDED else cut
        return most if self.frozen is None else min(most, self.frozen)

    @property
    def is_unfinished(self) -> bool:
        """Whether X has ended, and not here yet."""
        return self.delivered < cut_of(self.history)


class Promise(NamedTuple):
    """As it travels."""

    accepted: tuple[int, Value] | None
    delivered: int
    knows: bool


class Join(NamedTuple):
    """The learner's. number: of X's messages, if X is its contact; otherwise how many of them it comes behind."""

    contact: int
    number: int


class Ballot(NamedTuple):
    """One that may take place. Those of an epoch stand in the order of their numbers. wants: who may be wanted out."""

    epoch: int
    owner: int
    wants: tuple[frozenset[int], ...]


class Votes(NamedTuple):
    """What is in flight of one ballot."""

    wanted: frozenset[int] | None = None
    promises: tuple[Promise | None, ...] = (None,) * 4
    value: Value | None = None
    accepted: frozenset[int] = frozenset()


class State(NamedTuple):
    """Of all. lets_in: the number of X that lets the learner in, if X is its contact; 0: somebody else is.

    back: whose disk was set back.
    """

    members: tuple[Record | None, ...]
    ballots: tuple[Votes, ...]
    lets_in: int
    join: Join | None = None
    crashes: int = 0
    losses: int = 0
    back: int | None = None

    def member(self, who: int, record: Record, **changes: Any) -> State:
        """The state in which it is this."""
        members = (*self.members[:who], record, *self.members[who + 1 :])
        return self._replace(members=members, **changes)

    def votes(self, at: int, votes: Votes) -> State:
        """The state in which this is what is in flight of a ballot."""
        return self._replace(ballots=(*self.ballots[:at], votes, *self.ballots[at + 1 :]))


@dataclass(frozen=True)
class Scope:
    """What may happen. without: a rule that is left out, to see that it is missed."""

    ballots: tuple[Ballot, ...]
    joins: bool = True
    crashes: int = 0
    losses: int = 0
    without: str = ""

    @property
    def last(self) -> int:
        """The last epoch with a ballot."""
        return max(ballot.epoch for ballot in self.ballots)


Step: TypeAlias = tuple[str, State]


def begin(scope: Scope) -> list[State]:
    """Before anything has happened."""
    x = Record(delivered=SENT, durable=SENT)
    members = (Record(), Record(), x, None)
    ballots = tuple(Votes() for _ in scope.ballots)
    return [
        State(members, ballots, lets_in, crashes=scope.crashes, losses=scope.losses)
        for lets_in in (range(SENT + 1) if scope.joins else [0])
    ]


@cache
def gone(history: History) -> frozenset[int]:
    """Who has been put out."""
    return frozenset(chain.from_iterable(value.out for value in history))


@cache
def cut_of(history: History) -> int:
    """Of X, as it was stated last."""
    return next((value.cut for value in reversed(history) if value.cut != UNENDED), UNENDED)


def is_none(join: Join | None, history: History) -> bool:
    """Whether the learner was let in beyond the cut of its contact: it never was a member."""
    if join is None or join.contact not in gone(history):
        return False
    if join.contact == X:
        return cut_of(history) < join.number
    return not next(value for value in history if join.contact in value.out).names


def goes_on(state: State, who: int, history: History) -> bool:
    """Whether it is in."""
    return who not in gone(history) and not (who == LEARNER and is_none(state.join, history))


@cache
def is_majority(who: frozenset[int], history: History) -> bool:
    """Of the voters that there are behind this history."""
    voters = VOTERS - gone(history)
    return 2 * len(voters & who) > len(voters)


def seen(record: Record, state: State) -> Iterator[Record]:
    """What it may have delivered by the time at which somebody sees it."""
    join = state.join
    sent = SENT if join is not None or not state.lets_in else state.lets_in - 1
    for delivered in range(record.delivered, max(record.delivered, min(record.most, sent)) + 1):
        now = record._replace(delivered=delivered)
        if record.knows or join is None:
            yield now
        elif join.contact == X:
            yield now._replace(knows=delivered >= join.number)
        else:
            yield now
            if delivered >= join.number:
                yield now._replace(knows=True)


def noted(record: Record, scope: Scope, **changes: Any) -> Record:
    """The record with changes that are durable, and with them all that it has delivered."""
    before = record._replace(before=None) if scope.losses else None
    return record._replace(durable=record.delivered, before=before)._replace(**changes)


# What may happen next


def steps(state: State, scope: Scope) -> Iterator[Step]:
    """All that may."""
    for who, record in enumerate(state.members):
        if record is None:
            continue
        if goes_on(state, who, record.history) and not record.is_over:
            if scope.joins and state.join is None:
                yield from _join(state, scope, who, record)
            for at, ballot in enumerate(scope.ballots):
                if ballot.epoch == len(record.history):
                    yield from _prepare(state, who, at, ballot, record)
                    yield from _promise(state, scope, who, at, record)
                    yield from _propose(state, scope, who, at, ballot, record)
                    yield from _accept(state, scope, who, at, record)
        if len(record.history) < scope.last:
            yield from _learn(state, scope, who, record)
        yield from _fail(state, scope, who, record)


def _join(state: State, scope: Scope, contact: int, record: Record) -> Iterator[Step]:
    if (contact == X) != (state.lets_in > 0):
        return
    for now in seen(record, state):
        number = state.lets_in or now.delivered
        learner = Record(
            history=now.history,
            delivered=number,
            durable=number,
            frozen=None if scope.without == "a joiner inherits a freeze" else now.frozen,
            knows=True,
        )
        # An admission leaves behind what it rests on.
        after = noted(now, scope, knows=True)
        behind = state.member(contact, after, join=Join(contact, number))
        yield f"{contact} lets the learner in, at {number} of X", behind.member(LEARNER, learner)


def _prepare(state: State, who: int, at: int, ballot: Ballot, record: Record) -> Iterator[Step]:
    votes = state.ballots[at]
    if ballot.owner == who and votes.wanted is None and record.promised <= at:
        for want in ballot.wants:
            told = state.votes(at, votes._replace(wanted=want))
            yield f"{who} prepares ballot {at + 1} for {Value(want, UNENDED)}", told


def _promise(state: State, scope: Scope, who: int, at: int, record: Record) -> Iterator[Step]:
    votes = state.ballots[at]
    if votes.wanted is None or record.promised > at:
        return
    for now in seen(record, state):
        frozen = now.frozen
        if scope.without == "a freeze lasts" and X not in votes.wanted:
            frozen = None
        is_open = now.is_unfinished and scope.without != "a cut is stated anew"
        if (X in votes.wanted or is_open) and frozen is None and who != X:
            frozen = now.delivered
        after = noted(now, scope, promised=at + 1, frozen=frozen)
        if scope.without == "a promise is durable with its data":
            after = after._replace(durable=record.durable)
        has = (0, False) if who == X else (now.delivered, now.knows)  # nobody asks what X has
        promise = Promise(now.accepted, *has)
        promises = (*votes.promises[:who], promise, *votes.promises[who + 1 :])
        told = state.votes(at, votes._replace(promises=promises)).member(who, after)
        yield f"{who} promises ballot {at + 1}, with {now.delivered} of X", told


def _propose(
    state: State, scope: Scope, who: int, at: int, ballot: Ballot, record: Record
) -> Iterator[Step]:
    """From any of the promises that were made: what has come may be less."""
    votes = state.ballots[at]
    if ballot.owner != who or votes.wanted is None or votes.value is not None:
        return
    is_out = is_none(state.join, record.history)
    for value in values_of(votes, record.history, is_out, scope.without):
        told = state.votes(at, votes._replace(value=value))
        yield f"{who} proposes in ballot {at + 1}: {value}", told


@cache
def values_of(votes: Votes, history: History, is_out: bool, without: str) -> Collection[Value]:
    """The changes that some of the promises allow. is_out: the learner never was a member."""
    made = {other: promise for other, promise in enumerate(votes.promises) if promise is not None}
    few = chain.from_iterable(combinations(made, number) for number in range(1, len(made) + 1))
    some = [{other: made[other] for other in names} for names in few]
    assert votes.wanted is not None
    values = {value_of(each, votes.wanted, history, is_out, without) for each in some}
    return [value for value in values if value is not None]


def value_of(
    promises: dict[int, Promise],
    want: frozenset[int],
    history: History,
    is_out: bool,
    without: str,
) -> Value | None:
    """The change that these promises allow; None: they do not suffice."""
    if not is_majority(frozenset(promises), history):
        return None
    before = [promise.accepted for promise in promises.values() if promise.accepted is not None]
    if before and without != "what was accepted is adopted":
        return max(before)[1]
    cut = cut_of(history)
    is_open = without != "a cut is stated anew" and any(
        promise.delivered < cut for promise in promises.values()
    )
    if not want and not is_open:
        return Value(want, UNENDED)
    on = VOTERS - gone(history) - want
    stay = (promise for other, promise in promises.items() if other not in want)
    names = not is_out and any(promise.knows for promise in stay)
    if names and without != "all who go on promise":
        on |= {LEARNER}
    if not on <= promises.keys():
        return None
    is_stated = X in want or is_open
    cut = max(promises[other].delivered for other in on) if is_stated else UNENDED
    return Value(want, cut, names)


def _accept(state: State, scope: Scope, who: int, at: int, record: Record) -> Iterator[Step]:
    votes = state.ballots[at]
    has = record.accepted is not None and record.accepted[0] > at
    may = votes.value is not None and who in VOTERS and not has
    if may and (record.promised <= at + 1 or scope.without == "a promise binds"):
        after = noted(
            record, scope, promised=max(record.promised, at + 1), accepted=(at + 1, votes.value)
        )
        told = state.votes(at, votes._replace(accepted=votes.accepted | {who}))
        yield f"{who} accepts in ballot {at + 1}", told.member(who, after)


def chosen(state: State, scope: Scope, history: History) -> set[Value]:
    """What a majority has accepted behind this history."""
    return {
        votes.value
        for ballot, votes in zip(scope.ballots, state.ballots, strict=True)
        if ballot.epoch == len(history) and votes.value is not None
        if is_majority(votes.accepted, history)
    }


def _learn(state: State, scope: Scope, who: int, record: Record) -> Iterator[Step]:
    for value in chosen(state, scope, record.history):
        history = (*record.history, value)
        after = noted(record, scope, history=history, promised=0, accepted=None, frozen=None)
        yield f"{who} learns: {value}", state.member(who, after)


def _fail(state: State, scope: Scope, who: int, record: Record) -> Iterator[Step]:
    if state.crashes:
        for left in range(record.durable, record.delivered):
            has_let_in = state.join is not None and who in (state.join.contact, LEARNER)
            fallen = record._replace(delivered=left, knows=has_let_in)
            crashed = state.member(who, fallen, crashes=state.crashes - 1)
            yield f"{who} crashes, and has {left} of X", crashed
    if state.losses and record.before is not None:
        back = record.before._replace(delivered=record.before.durable)
        yield f"{who} is set back", state.member(who, back, losses=state.losses - 1, back=who)
    if who == state.back and not record.is_over and _is_betrayed(state, scope, who, record):
        yield f"{who} hears that it was set back", state.member(who, record._replace(is_over=True))


def _is_betrayed(state: State, scope: Scope, who: int, record: Record) -> bool:
    """Whether something of it is in flight that its disk does not know."""
    return any(
        (votes.promises[who] is not None and record.promised <= at)
        or (who in votes.accepted and (record.accepted is None or record.accepted[0] <= at))
        for at, (ballot, votes) in enumerate(zip(scope.ballots, state.ballots, strict=True))
        if ballot.epoch == len(record.history)
    )


def tidied(state: State, scope: Scope) -> State:
    """The state without messages that nobody will look at any more."""
    if scope.losses:
        return state  # they prove that a disk was set back
    ballots = list(state.ballots)
    for at, (ballot, votes) in enumerate(zip(scope.ballots, ballots, strict=True)):
        if votes.wanted is None:
            continue
        is_over = all(
            len(record.history) > ballot.epoch
            or (len(record.history) == ballot.epoch and record.promised > at + 1)
            for record in state.members[: len(VOTERS)]
            if record is not None
        )
        if len(votes.accepted) * 2 > len(VOTERS):
            ballots[at] = votes._replace(promises=_NONE, accepted=VOTERS)
        elif is_over:
            ballots[at] = Votes(votes.wanted, _NONE, votes.value and _OVER)
        elif votes.value is not None:
            ballots[at] = votes._replace(promises=_NONE)
    return state._replace(ballots=tuple(ballots))


_NONE = (None,) * 4
_OVER = Value(frozenset(), UNENDED)

# What must hold


def wrong(state: State, scope: Scope) -> str | None:
    """What is wrong, if anything is."""
    histories = {record.history for record in state.members if record is not None}
    for history in histories:
        values = chosen(state, scope, history)
        if len(values) > 1:
            return "two changes of one epoch"
        for value in values:
            if (why := _wrong_behind(state, (*history, value))) is not None:
                return why
    longest = max(histories, key=len)
    if any(history != longest[: len(history)] for history in histories):
        return "two changes of one epoch"
    return None


def _wrong_behind(state: State, history: History) -> str | None:
    """What is wrong with a change that somebody may learn now."""
    cut = cut_of(history)
    if cut == UNENDED or X not in gone(history):
        return None
    stay = [
        record
        for who, record in enumerate(state.members)
        if record is not None and goes_on(state, who, history) and who != state.back
    ]
    if any(max(record.delivered, record.most) > cut for record in stay):
        return "somebody who goes on is beyond the cut, or may get there"
    if cut and all(record.delivered < cut for record in stay):
        return "nobody who goes on has all of the cut"
    return None


@dataclass
class Explored:
    """states: how many there are. fine: how many of them are wrong in a way that was to be expected. failure, trace:
    the first thing that is wrong otherwise, and how it came to it.
    """

    states: int = 0
    fine: Counter[str] = field(default_factory=Counter)
    failure: str = ""
    trace: list[str] = field(default_factory=list)


def explore(
    scope: Scope,
    is_fine: Callable[[State], bool] = lambda state: False,
    told: Callable[[int, int], None] = lambda states, left: None,
) -> Explored:
    """All states of the scope, or those up to a failure. told: called with how many there were, and are next.

    States are known by their hashes, of 64 bits: with a hundred million of them, two are taken for one in one of four
    thousand explorations.
    """
    found = Explored()
    layer = begin(scope)
    came = {hash(first) for first in layer}
    depth = 0
    while layer:
        depth += 1
        following: list[State] = []
        for state in layer:
            found.states += 1
            for _, step in steps(state, scope):
                after = tidied(step, scope)
                key = hash(after)
                if key in came:
                    continue
                came.add(key)
                if (why := wrong(after, scope)) is None:
                    following.append(after)
                elif is_fine(after):
                    found.fine[why] += 1
                else:
                    found.failure = why
                    found.trace = _way_to(key, scope)
                    return found
        layer = following
        told(found.states, len(layer))
    return found


def _way_to(key: int, scope: Scope) -> list[str]:
    """The steps to a state, found by going there once more."""
    ways: dict[int, tuple[int, str]] = {}
    layer = begin(scope)
    known = {hash(first) for first in layer}
    while key not in ways:
        following: list[State] = []
        for state in layer:
            name = hash(state)
            for label, step in steps(state, scope):
                after = tidied(step, scope)
                if (reached := hash(after)) not in known:
                    known.add(reached)
                    ways[reached] = name, label
                    following.append(after)
        layer = following
    labels: list[str] = []
    while key in ways:
        key, label = ways[key]
        labels.append(label)
    return labels[::-1]
