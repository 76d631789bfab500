"""Effects on real servers, compared after every step with a model that keeps the whole history.

Random schedules of three replicas: local commands, deliveries in causal order, stability as early as its definition
allows. The model's value of a key is a function of the visible effects and their causal order alone.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from random import Random
from typing import Any

import pytest
import redis

from crdtcast.adapters.redis.commands import WRITES
from crdtcast.adapters.redis.commands.table import Command
from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.lookup import Lookup
from crdtcast.adapters.redis.commit.plan import Plan, as_expected
from crdtcast.adapters.redis.recorded.answer import RecordedWork, store
from crdtcast.adapters.redis.recorded.record import (
    NO_LOOK,
    SCORE_SCRIPT,
    AskedCommand,
    RecordEntry,
    ServerRecord,
)
from crdtcast.adapters.redis.store import effects, unstable
from crdtcast.adapters.redis.store.databases import db_of, home_of, key_of, name_of, select
from crdtcast.adapters.redis.store.effects import (
    Effect,
    Inc,
    RedisType,
)
from crdtcast.adapters.redis.store.hiding import hidden_key
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.unstable import UnstableLog
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.exact_values import exact_key
from crdtcast.causality.tags import Dot, Tag, covers, dominates, merge_into
from crdtcast.exceptions import ServerError
from tests import servers
from tests.adapters.redis.history import Told, past_of
from tests.effort import seeds

pytestmark = pytest.mark.process

KEYS = (b"k", name_of(3, b"k"))
MEMBERS = (b"x", b"y", b"z")
VALUES = (b"1", b"2", b"three", b"4.50", b"-.5")
DECIMALS = (b"0.1", b"-0.1", b"0.9", b"1e-30", b"2.0e2", b"-7", b"123456789012345678901234567890.5")
SCORES = (b"1", b"-3", b"0.5", b"1e16", b"inf", b"-inf", b"1e300", b"7", b"0.1", b"-0")
STEPS = (b"1", b"-2", b"0.1", b"0.7", b"1e16", b"1e-9", b"inf", b"1e308", b"0.30000000000000004")
METADATA_DB = 15
COMMANDS = {row.name: Command.of(row) for row in WRITES.values()}


def is_of_one_database(args: tuple[bytes, ...]) -> bool:
    return len(set(map(db_of, COMMANDS[args[0].decode()].keys_of(args)))) == 1


@dataclass(eq=False)
class FakeRequest:
    """What a command's prepare needs of a request."""

    args: list[bytes]
    command: Command


@dataclass(eq=False)
class Sent:
    """One message with its true causal past."""

    tag: Tag
    decoded: list[Effect]
    timestamp: int = 0


@dataclass(eq=False)
class Replica:
    """A keyspace over a real server, and what it has delivered."""

    name: str
    connection: Any
    keyspace: Keyspace
    vector: dict[str, int] = field(default_factory=dict)
    context: dict[str, Dot] = field(default_factory=dict)
    delivered: list[Sent] = field(default_factory=list)
    stable: set[Dot] = field(default_factory=set)
    clock: int = 0

    def now(self) -> int:
        """A hybrid clock that is never wound: it only follows what it has seen."""
        self.clock += 1
        return self.clock

    @property
    def me(self) -> str:
        return self.name

    def send(self, payload: bytes) -> Tag:
        """Tag an own message, as the engine does."""
        dot = Dot(self.name, self.vector.get(self.name, 0) + 1)
        tag = Tag(dot, tuple(self.context.values()), dict(self.vector))
        event = effects.decode(payload)
        self.delivered.append(Sent(tag, event.effects, event.timestamp))
        self.vector[self.name] = dot.counter
        return tag

    def execute(self, plan: Plan) -> list[Any]:
        """Run a plan; every reply must be the expected one."""
        self.keyspace.settle(plan)
        plan.finish()
        if not plan.pieces:
            return []
        self.connection.send_packed_command(plan.pieces)
        replies = []
        for expect in plan.expected:
            try:
                replies.append(self.connection.read_response())
            except redis.ResponseError as error:
                replies.append(error)
            assert as_expected(replies[-1], expect), (replies[-1], expect)
        for key, place in plan.settling:
            self.keyspace.settled(key, replies[place])
        return replies

    def ask(self, *command: bytes) -> Any:
        """One command of the test's own; an error is a value."""
        self.connection.send_command(*command)
        try:
            return self.connection.read_response()
        except redis.ResponseError as error:
            return error

    def look_up(self, key: bytes, counted: tuple[RedisType, bytes] | None = None) -> None:
        """What the gateway's read before a batch does. counted: the type and slot in which a number grows."""
        lookup = Lookup()
        if self.keyspace.known(key) is None:
            lookup.types_of([key], self.keyspace, lambda key: None)
        if counted is not None and not self.keyspace.will_count(key, *counted):
            lookup.number(key, *counted, self.keyspace)
        if lookup.replies:
            self.connection.send_packed_command([lookup.payload])
            replies: list[Any] = []
            for _ in range(lookup.replies):
                try:
                    replies.append(self.connection.read_response())
                except redis.ResponseError as error:
                    replies.append(ServerError(str(error)))
            lookup.learn(replies)

    def commands(self, several: list[tuple[bytes, ...]]) -> list[Sent]:
        """Clients' commands, of one commit until the server has to decide one; returns the messages."""
        before = len(self.delivered)
        while several:
            done = self._commit(several) or self._record(several)
            several = several[done:]
        return self.delivered[before:]

    def _commit(self, several: list[tuple[bytes, ...]]) -> int:
        """How many of the commands were carried out: behind them the server has to decide."""
        plain = takewhile(lambda args: not COMMANDS[args[0].decode()].is_recorded, several)
        requests: list[Any] = [FakeRequest(list(a), COMMANDS[a[0].decode()]) for a in plain]
        for request in requests:
            command, args = request.command, request.args
            if command.looks:
                counted = command.counts_in
                slot = b"" if counted is None else args[command.counted_at]
                self.look_up(args[1], None if counted is None else (counted, slot))
        plan = Plan(METADATA_DB)
        batch = LocalBatch(plan, self.keyspace, self, self.now)
        done = 0
        for request in requests:
            if not request.command.prepare(batch, request):
                break
            done += 1
        batch.close()
        self.execute(plan)
        return done

    def _record(self, several: list[tuple[bytes, ...]]) -> int:
        """Let the server carry out commands, one at a time if a key hides something."""
        several = list(takewhile(is_of_one_database, several))
        if self.keyspace.hidden:
            del several[1:]
        asked = [self._asked(number, args) for number, args in enumerate(several)]
        dot = Dot(self.name, self.vector.get(self.name, 0) + 1)
        record = ServerRecord(dot, tuple(self.context.values()), self.now())
        told = self.ask(
            *(b"EVAL", SCORE_SCRIPT, b"0", b"%d" % METADATA_DB),
            *(record.header(), b"0", b"1000000", *asked),
        )
        assert isinstance(told, list), told
        work, plan = RecordedWork(), Plan(METADATA_DB)
        entries = list(map(RecordEntry.decode, asked, told[1:]))
        work.answered(self, self.keyspace, record.with_entries(entries))  # type: ignore[arg-type]
        if (pending := work.take()) is not None:
            store(pending, self.keyspace, plan)
        for args in several:
            for key in COMMANDS[args[0].decode()].keys_of(args):
                if key in self.keyspace.hidden:
                    self.keyspace.unsettled[key] = None
        self.execute(plan)
        return len(several)

    def _asked(self, number: int, args: tuple[bytes, ...]) -> bytes:
        command = COMMANDS[args[0].decode()]
        row = command.write
        assert row is not None
        names = {place: args[place] for place in command.places(args)}
        words = [key_of(word) if place in names else word for place, word in enumerate(args)]
        begins = [place for place in row.begins if args[place] not in self.keyspace.hidden]
        look = NO_LOOK if row.looks_at is None else row.looks_at(words)
        db = db_of(args[1])
        return AskedCommand(number, words, begins, False, look, db, names).encode()

    def use(self, payload: bytes) -> Tag:
        """Tag what the server has carried out."""
        return self.send(payload)

    def give_back(self) -> None:
        """Nothing was written."""

    def deliver(self, message: Sent) -> None:
        """A remote message, whose dependencies are here."""
        plan = Plan(METADATA_DB)
        for effect in message.decoded:
            counts = isinstance(effect, Inc) and effect.type is not RedisType.STRING
            self.look_up(effect.key, (effect.type, effect.slot) if counts else None)
        tag, sees_all = message.tag, dominates(message.tag.past, self.vector)
        self.keyspace.apply(message.decoded, tag, message.timestamp, plan, sees_all=sees_all)
        self.execute(plan)
        self.clock = max(self.clock, message.timestamp)
        merge_into(self.vector, {message.tag.dot.origin: message.tag.dot.counter})
        self.delivered.append(message)


def live_values(delivered: list[Sent], key: bytes) -> dict[RedisType, dict[bytes, bytes]]:
    """By definition: what the slots of a key are worth, by type."""
    return past_of(key, (Told(m.tag, m.timestamp, m.decoded) for m in delivered)).values


def check_value(
    replica: Replica, key: bytes, type_: RedisType, place: bytes, worth: dict[bytes, bytes]
) -> None:
    """What the server shows, and what it is worth exactly."""
    native = TYPES[type_]
    content = native.content(replica.ask(*native.reading(place)))
    assert content is not None
    if native.rounds:
        assert content == {slot: native.shown(value) for slot, value in worth.items()}
    assert replica.keyspace.exact.over(key, type_, content) == worth


def check_exact(replica: Replica) -> None:
    """The metadata has the exact values that are in memory."""
    names = replica.ask(b"KEYS", b"exact:*")
    exact = replica.keyspace.exact.slots
    assert {exact_key(type_, key) for key, type_ in exact} == set(names)
    for (key, type_), slots in exact.items():
        told = replica.ask(b"HGETALL", exact_key(type_, key))
        assert dict(zip(told[::2], told[1::2], strict=True)) == slots


def check(replica: Replica) -> None:
    """The server's native value is the model's, and the log is what a restart would make of the messages."""
    again = UnstableLog()
    for message in replica.delivered:
        if message.tag.dot not in replica.stable:
            for place, effect in enumerate(message.decoded):
                again.apply(effect, message.tag, message.timestamp, place)
    for key in KEYS:
        assert replica.keyspace.log.key(key) == again.key(key)
        assert replica.keyspace.log.deadlines.of(key) == again.deadlines.of(key)
        worth = live_values(replica.delivered, key)
        home = home_of(key)
        replica.ask(*select(home.db))
        kind = replica.ask(b"TYPE", home.key)
        visible, *hidden = sorted(worth) or [None]
        if visible is None:
            assert kind == b"none"
            continue
        assert kind == TYPES[visible].name
        check_value(replica, key, visible, home.key, worth[visible])
        replica.ask(b"SELECT", b"%d" % METADATA_DB)
        for type_ in hidden:
            check_value(replica, key, type_, hidden_key(type_, key), worth[type_])
    replica.ask(b"SELECT", b"%d" % METADATA_DB)
    check_exact(replica)
    replica.ask(*select(0))


def stabilise(replica: Replica, replicas: list[Replica]) -> None:
    """Grant stability as early as the definition allows, in delivery order."""
    for message in replica.delivered:
        tag = message.tag
        if tag.dot in replica.stable:
            continue
        for other in replicas:
            if not any(m.tag.dot == tag.dot for m in other.delivered):
                return
            sent_before = sum(
                m.tag.dot.origin == other.name
                for m in other.delivered[: [m.tag.dot for m in other.delivered].index(tag.dot)]
            )
            if replica.vector.get(other.name, 0) < sent_before:
                return
        replica.stable.add(tag.dot)
        replica.keyspace.log.stabilise(tag.dot)


def random_command(rng: Random) -> tuple[bytes, ...]:
    key = rng.choice(KEYS)
    some = rng.sample(MEMBERS, rng.randint(1, 2))
    return rng.choices(
        [
            (b"SADD", key, *some),
            (b"SREM", key, *some),
            (b"INCRBY", key, b"%d" % rng.choice((1, 2, 2**62, -(2**62), 2**63 - 1))),
            (b"DECR", key),
            (b"DEL", *KEYS) if rng.random() < 0.2 else (b"DEL", key),
            (
                b"SET",
                key,
                rng.choice((b"text", b"7", b"-1", b"007", b"", b"3.0", b"5.0e3", b"0.25")),
            ),
            (b"HSET", key, *(word for slot in some for word in (slot, rng.choice(VALUES)))),
            (b"HDEL", key, *some),
            (b"HINCRBY", key, some[0], b"%d" % rng.choice((1, -2, 2**62, 2**63 - 1))),
            (b"INCRBYFLOAT", key, rng.choice(DECIMALS)),
            (b"HINCRBYFLOAT", key, some[0], rng.choice(DECIMALS)),
            (b"ZADD", key, *(word for slot in some for word in (rng.choice(SCORES), slot))),
            (b"ZADD", key, rng.choice((b"GT", b"LT", b"NX", b"XX")), rng.choice(SCORES), some[0]),
            (b"ZINCRBY", key, rng.choice(STEPS), some[0]),
            (b"ZREM", key, *some),
            (b"MSET", *(word for each in KEYS for word in (each, rng.choice(VALUES)))),
        ],
        weights=(4, 3, 3, 1, 2, 2, 4, 3, 4, 3, 3, 3, 3, 4, 2, 1),
    )[0]


def random_score(rng: Random) -> tuple[bytes, ...]:
    """A write on one sorted set, with few members."""
    key, member = KEYS[0], rng.choice(MEMBERS[:2])
    return rng.choices(
        [
            (b"ZADD", key, rng.choice(SCORES), member),
            (b"ZADD", key, b"GT", rng.choice(SCORES), member),
            (b"ZADD", key, b"LT", rng.choice(SCORES), member),
            (b"ZADD", key, rng.choice((b"XX", b"NX")), rng.choice(SCORES), member),
            (b"ZADD", key, rng.choice((b"GT", b"XX", b"LT")), b"INCR", rng.choice(STEPS), member),
            (b"ZINCRBY", key, rng.choice(STEPS), member),
            (b"ZREM", key, member),
            (b"DEL", key),
        ],
        weights=(2, 6, 6, 1, 1, 6, 1, 0.3),
    )[0]


def run(
    replicas: list[Replica],
    seed: int,
    steps: int = 60,
    pick: Callable[[Random], tuple[bytes, ...]] = random_command,
) -> None:
    rng = Random(seed)
    messages: list[Sent] = []
    for _ in range(steps):
        replica = rng.choice(replicas)
        action = rng.random()
        waiting = [
            message
            for message in messages
            if not covers(replica.vector, message.tag.dot)
            and message.tag.dot.counter == replica.vector.get(message.tag.dot.origin, 0) + 1
            and all(replica.vector.get(o, 0) >= c for o, c in message.tag.past.items())
        ]
        if action < 0.4:
            several = [pick(rng) for _ in range(rng.choice((1, 1, 2, 6)))]
            messages += replica.commands(several)
        elif action < 0.85 and waiting:
            replica.deliver(rng.choice(waiting))
        else:
            stabilise(replica, replicas)
        check(replica)
    while True:
        missing = [
            (replica, message)
            for replica in replicas
            for message in messages
            if not covers(replica.vector, message.tag.dot)
            and all(replica.vector.get(o, 0) >= c for o, c in message.tag.past.items())
        ]
        if not missing:
            break
        replica, message = rng.choice(missing)
        replica.deliver(message)
        check(replica)
    for replica in replicas:
        stabilise(replica, replicas)
        check(replica)
        assert len(replica.keyspace.log) == 0
        replica.ask(b"SELECT", b"%d" % METADATA_DB)
        left = set(replica.ask(b"KEYS", b"*"))
        replica.ask(b"SELECT", b"0")
        allowed = {
            hidden_key(type_, key)
            for key in KEYS
            for type_ in sorted(live_values(replica.delivered, key))[1:]
        }
        assert left - {exact_key(type_, key) for key, type_ in exact_ones(replica)} <= allowed


def exact_ones(replica: Replica) -> set[tuple[bytes, RedisType]]:
    """Values with a slot that no native value gives back."""
    return {
        (key, type_)
        for key in KEYS
        for type_, content in live_values(replica.delivered, key).items()
        for worth in content.values()
        if TYPES[type_].shown(worth) != worth
    }


@contextmanager
def three_replicas() -> Iterator[list[Replica]]:
    """Over a server each."""
    lent = [servers.borrow() for _ in "abc"]
    made = []
    for name, server in zip("abc", lent, strict=True):
        connection = redis.Connection(host="127.0.0.1", port=server.port, protocol=2)
        connection.connect()
        replica = Replica(name, connection, Keyspace(METADATA_DB))
        made.append(replica)
    yield made
    for replica in made:
        replica.connection.disconnect()
    for server in lent:
        servers.give_back(server)


def reset(replicas: list[Replica]) -> None:
    for replica in replicas:
        replica.ask(b"FLUSHALL")
        replica.keyspace = Keyspace(METADATA_DB)
        replica.vector.clear()
        replica.context.clear()
        replica.delivered.clear()
        replica.stable.clear()
        replica.clock = 0


@pytest.fixture
def replicas() -> Iterator[list[Replica]]:
    with three_replicas() as made:
        yield made


@pytest.mark.parametrize("is_large", [False, True], ids=["indexed", "large"])
def test_native_values_match_the_model(
    replicas: list[Replica], is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """is_large: an add or kill of a member counts as one of very many, which no index has."""
    if is_large:
        monkeypatch.setattr(unstable, "_FEW", 0)
        monkeypatch.setattr(unstable, "_MANY", 1)
    for seed in seeds(40):
        reset(replicas)
        run(replicas, seed)


def test_scores_are_the_models(replicas: list[Replica]) -> None:
    """With conditions, increments and digits that a double loses."""
    for seed in seeds(80):
        reset(replicas)
        run(replicas, seed, pick=random_score)
