"""A key's state from a peer at one instant, brought to another instant: compared with the history of all effects.

The schedules are those of `test_keyspace_model`: three replicas, deliveries in causal order, stability as early as its
definition allows. Here they have no servers: a value is what the visible effects make of it.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.compare.key_states import Later, Value, decide, some_of, value_at
from crdtcast.adapters.redis.store.contents import Slots
from crdtcast.adapters.redis.store.effects import (
    NEVER,
    WHOLE,
    Assign,
    Effect,
    Expire,
    Inc,
    KillAll,
    KillData,
    KillKey,
    KillSlots,
    One,
    RedisType,
    Reg,
    Replace,
)
from crdtcast.adapters.redis.store.unstable import UnstableLog
from crdtcast.adapters.redis.transfer.key_rows import Row, RowsPart
from crdtcast.adapters.redis.transfer.row_reads import log_of_slots
from crdtcast.adapters.redis.transfer.state_messages import States
from crdtcast.causality.tags import Dot, Tag, dominates
from crdtcast.exceptions import RemoteProtocolError
from tests.adapters.redis.test_keyspace_model import Sent, live_values
from tests.effort import seeds

KEY = b"k"
MEMBERS = (b"x", b"y")


def worth(number: int | None, members: Collection[bytes] = ()) -> Value:
    contents: dict[RedisType, dict[bytes, bytes]] = {}
    if number is not None:
        contents[RedisType.STRING] = {WHOLE: b"%d" % number}
    if members:
        contents[RedisType.SET] = dict.fromkeys(members, b"")
    return Value(contents)


@dataclass(eq=False)
class Replica:
    """What it has delivered, its log, and which messages are stable there."""

    name: str
    vector: dict[str, int] = field(default_factory=dict)
    delivered: list[Sent] = field(default_factory=list)
    log: UnstableLog = field(default_factory=UnstableLog)
    stable: int = 0

    def write(self, timestamp: int, *effects: Effect) -> Sent:
        tag = Tag(Dot(self.name, self.vector.get(self.name, 0) + 1), (), dict(self.vector))
        sent = Sent(tag, list(effects), timestamp)
        self.take(sent)
        return sent

    def take(self, sent: Sent) -> None:
        for place, effect in enumerate(sent.decoded):
            self.log.apply(effect, sent.tag, sent.timestamp, place)
        self.vector[sent.tag.dot.origin] = sent.tag.dot.counter
        self.delivered.append(sent)

    def value(self) -> Value:
        return Value(live_values(self.delivered, KEY))

    def row(self) -> Row:
        row = Row(KEY, self.value().contents, log=self.log.key(KEY))
        (again,) = States.decode(States(self.vector, [row]).encode()).rows
        assert again == row
        return again

    def later(self) -> list[Later]:
        return [
            Later(e, s.tag, s.timestamp, place)
            for s in self.delivered
            for place, e in enumerate(s.decoded)
        ]


def effect(rng: Random) -> Effect:
    field, value = rng.choice(MEMBERS), rng.choice((b"5", b"text"))
    match rng.randrange(12):
        case 0:
            return KillKey(KEY) if rng.random() < 0.7 else KillAll(None)
        case 1:
            return KillSlots(KEY, RedisType.SET, (rng.choice(MEMBERS),))
        case 6:
            return KillSlots(KEY, RedisType.HASH, (field,))
        case 7 | 8:
            return Inc(KEY, RedisType.HASH, field, rng.randint(-3, 9))
        case 9 | 10:
            return Reg(KEY, RedisType.HASH, (field, value))
        case 11:
            if rng.randrange(2):
                return Assign(KEY, value)
            return Reg(KEY, RedisType.STRING, (WHOLE, value))
        case 2 | 3:
            return Inc(KEY, RedisType.STRING, WHOLE, rng.randint(-3, 9))
        case _:
            return One(KEY, RedisType.SET, (rng.choice(MEMBERS),))


def run(seed: int) -> list[tuple[Row, dict[str, int], Replica]]:
    """Random steps of three replicas; states are given on the way, and returned with the one that gets them."""
    rng = Random(seed)
    replicas = [Replica(name) for name in "abc"]
    sent: list[Sent] = []
    given: list[tuple[Row, dict[str, int], Replica]] = []
    for _ in range(40):
        one, other = rng.sample(replicas, 2)
        match rng.randrange(5):
            case 0 | 1:
                # A clock that follows what it has seen, or stands still.
                time = max((each.timestamp for each in one.delivered), default=0) + rng.randrange(2)
                sent.append(one.write(time, *(effect(rng) for _ in range(rng.randint(1, 2)))))
            case 2 | 3:
                for message in sent:
                    dot = message.tag.dot
                    if one.vector.get(dot.origin, 0) == dot.counter - 1 and dominates(
                        one.vector, message.tag.past
                    ):
                        one.take(message)
                        if rng.randrange(2):
                            break
            case _:
                given.append((one.row(), dict(one.vector), other))
        for replica in replicas:
            stabilise(replica, replicas)
    return given


def stabilise(replica: Replica, replicas: list[Replica]) -> None:
    """As early as the definition allows: nothing that comes here later is concurrent with it."""
    while replica.stable < len(replica.delivered):
        dot = replica.delivered[replica.stable].tag.dot
        for other in replicas:
            mine = [s.tag.dot for s in other.delivered]
            if dot not in mine:
                return
            before = sum(d.origin == other.name for d in mine[: mine.index(dot)])
            if replica.vector.get(other.name, 0) < before:
                return
        replica.log.stabilise(dot)
        replica.stable += 1


def wrong(seed: int, *, waits: bool = True, applies: bool = True) -> int:
    """How many states of a schedule come to another value than the receiver's history. waits, applies: the rules."""
    count = 0
    for row, vector, receiver in run(seed):
        if waits and not dominates(receiver.vector, vector):
            continue
        found = value_at(row, vector, receiver.later() if applies else [])
        count += found != receiver.value()
    return count


def test_state_of_a_peer_converges_to_the_history(seeds_of_states: list[int]) -> None:
    assert sum(wrong(seed) for seed in seeds_of_states) == 0


def wrong_slots(seed: int, *, of_the_log: bool = True) -> int:
    """How many states of some slots come to another value than these slots in the receiver's history."""
    rng = Random(seed)
    count = 0
    for row, vector, receiver in run(seed):
        if not dominates(receiver.vector, vector):
            continue
        slots: Slots = {
            RedisType.STRING: [WHOLE] * rng.randrange(2),
            RedisType.SET: rng.sample(MEMBERS, rng.randrange(len(MEMBERS))),
            RedisType.HASH: rng.sample(MEMBERS, rng.randrange(len(MEMBERS))),
        }
        assert row.contents is not None
        log = log_of_slots(row.log, slots) if of_the_log else {}
        part = Row(KEY, some_of(row.contents, slots), RowsPart(), log=log)
        expected = Value(some_of(receiver.value().contents, slots))
        count += value_at(part, vector, receiver.later(), slots) != expected
    return count


def test_state_of_some_slots_converges_to_their_history(
    seeds_of_states: list[int],
) -> None:
    assert sum(wrong_slots(seed) for seed in seeds_of_states) == 0
    assert sum(wrong_slots(seed, of_the_log=False) for seed in seeds_of_states) > 0


def test_state_read_before_its_vector_is_covered_is_detected(seeds_of_states: list[int]) -> None:
    assert sum(wrong(seed, waits=False) for seed in seeds_of_states) > 0


def test_state_without_later_effects_is_detected(seeds_of_states: list[int]) -> None:
    assert sum(wrong(seed, applies=False) for seed in seeds_of_states) > 0


def test_state_without_unstable_effects_is_detected(
    seeds_of_states: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(UnstableLog, "take", lambda *args: None)
    assert sum(wrong(seed) for seed in seeds_of_states) > 0


@pytest.fixture
def seeds_of_states() -> list[int]:
    found = list(seeds(300))
    print("seeds", found[0], "to", found[-1])
    return found


@given(st.binary(max_size=40))
def test_invalid_bytes_are_refused_as_a_state(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        States.decode(raw)


@pytest.mark.parametrize(
    "effect",
    [
        KillKey(KEY),
        KillData(KEY),
        KillAll(None),
        KillAll(0),
        Replace(KEY, NEVER),
        Expire(KEY, whole=False),
    ],
    ids=repr,
)
def test_removal_of_a_key_removes_all_it_had_seen(effect: Effect) -> None:
    row = Row(KEY, worth(7, MEMBERS).contents)
    tag = Tag(Dot("a", 2), (), {"a": 1})
    later = [Later(effect, tag, 5, 0)]
    assert value_at(row, {"a": 1}, later) == Value({})
    assert value_at(row, {"a": 2}, later) == worth(7, MEMBERS), "it is in the state already"


A, B = worth(1), worth(2)
X, Y = worth(None, {b"x"}), worth(None, {b"y"})


@pytest.mark.parametrize(
    ("votes", "members", "complete", "expected"),
    [
        ({"a": A, "b": B, "c": A}, 3, True, A),
        ({"a": A, "b": A}, 3, False, A),
        ({"a": A, "b": B}, 3, False, None),
        ({"a": A, "b": B}, 2, True, None),
        ({"a": A, "b": Value()}, 2, True, A),
        ({"a": X, "b": Y}, 2, True, worth(None, {b"x", b"y"})),
        ({"a": X, "b": A}, 2, True, worth(1, {b"x"})),
        ({"a": A, "b": B, "c": Value()}, 3, True, None),
        ({"a": Value(), "b": Value(), "c": A}, 3, True, Value()),
        ({}, 2, True, None),
        ({"b": A}, 2, True, A),
    ],
)
def test_votes_decide_which_state_is_right(
    votes: dict[str, Value], members: int, complete: bool, expected: Value | None
) -> None:
    assert decide(votes, members, complete=complete).value == expected
