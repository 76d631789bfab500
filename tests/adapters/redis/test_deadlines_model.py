"""Whole gateways under random schedules with deadlines: after each step a key is what its history says."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from crdtcast.adapters.redis.deadlines.index import BUCKET_PREFIX, LOOKED, ORPHANS, unpinned
from crdtcast.adapters.redis.store import effects
from crdtcast.adapters.redis.store.databases import name_of
from crdtcast.adapters.redis.store.effects import NEVER
from crdtcast.adapters.redis.store.metadata import STORE, decode_store
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.exact_values import exact_key
from crdtcast.causality.tags import Tag
from crdtcast.engine.operations import OperationKind
from tests import servers
from tests.adapters.redis.history import Past, Told, past_of
from tests.adapters.redis.stage import Site, Stage
from tests.effort import seeds

pytestmark = pytest.mark.process

SESSION, LIMITER = b"session", name_of(0, b"\xfflimiter")
KEYS = (name_of(3, b"k"), name_of(3, b"l"), SESSION, LIMITER)
MEMBERS = (b"x", b"y", b"z")
SCORES = (b"1", b"-3", b"0.5", b"1e16", b"inf", b"7", b"10000000000000000")
STEPS = (b"1", b"0.7", b"0.1", b"1e16", b"-2", b"-inf", b"1e-9")
UNIT_MS = 1_000_000
"""Of time: far longer than a test takes, so that the servers' own clocks stand still beside it."""
STEP_MS = 10_000
"""Each step in time is longer than the one before by so much, so that it ends at no deadline."""
QUIET = {b"fence", b"state", b"durable", LOOKED}
"""Names of the metadata database of a quiet site without deadlines."""


ANY, ON_SESSION, ON_LIMITER = (1, 0, 0, 0), (0, 3, 3, 0), (0, 0, 0, 1)
"""How often a client does: any command, a visit of the session at its site, and elsewhere, a count of the limiter."""


class History:
    """All messages that were ever sent, and which of them each site has."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.told: dict[Any, Told] = {}

    def learn(self) -> None:
        for site in self.stage.sites.values():
            for message in site.sent:
                if message.dot not in self.told and message.kind == OperationKind.APPLICATION:
                    event = effects.decode(message.payload)
                    tag = self._tag(message.dot, message.context)
                    self.told[message.dot] = Told(tag, event.timestamp, event.effects)

    def _tag(self, dot: Any, context: Any) -> Any:
        past: dict[str, int] = {dot.origin: dot.counter - 1}
        for each in context:
            before = self.told[each].tag
            for origin, counter in (*before.past.items(), each):
                past[origin] = max(past.get(origin, 0), counter)
        return Tag(dot, tuple(context), past)

    def of(self, site: Site, key: bytes) -> Past:
        vector = site.engine.vector
        seen = [t for dot, t in self.told.items() if vector.get(dot.origin, 0) >= dot.counter]
        return past_of(key, seen)


def check(history: History, site: Site) -> None:
    """The server's keys are what the messages say, as far as its clock lets them be seen."""
    ask = site.server.ask_about
    orphans = set(site.server.ask_metadata(b"HKEYS", ORPHANS))
    assert orphans == set(site.committer.keyspace.dates.orphans)
    for key in KEYS:
        past, now = history.of(site, key), site.now()
        kind = ask(key, b"TYPE")
        if kind == b"none":
            assert not past.values or past.at <= site.latest, (key, past, now)
            continue
        assert past.at > now, (key, past, now)
        assert past.values, (key, past)
        visible = min(past.values)
        assert kind == TYPES[visible].name, (key, past)
        native, exact = TYPES[visible], site.committer.keyspace.exact
        content = native.content(ask(key, native.read, *native.read_behind))
        assert content is not None
        for slot, worth in past.values[visible].items() if native.rounds else ():
            assert content[slot] == native.shown(worth), (key, past, content)
        assert exact.over(key, visible, content) == past.values[visible], (key, past, content)
        until = ask(key, b"PEXPIRETIME")
        at = NEVER if until < 0 else until + site.committer.keyspace.dates.offset_ms
        assert at == past.at, (key, past, at)


def check_index(site: Site) -> None:
    """A key that is there stands in the bucket of its deadline, and in no other."""
    offset = site.committer.keyspace.dates.offset_ms
    for bucket in site.server.ask_metadata(b"KEYS", BUCKET_PREFIX + b"*"):
        for key in site.server.ask_metadata(b"HKEYS", bucket):
            native = site.server.ask_about(key, b"PEXPIRETIME")
            second = (unpinned(native) + offset) // 1000
            assert native == -2 or bucket == BUCKET_PREFIX + b"%d" % second, (key, native)


def check_order(history: History, site: Site) -> None:
    """What is stored, and told in event logs, stands in an order in which a message has seen all that is before it."""
    rows = site.server.ask_metadata(b"HGETALL", STORE)
    before: dict[str, int] = {}
    for message in decode_store(dict(zip(rows[::2], rows[1::2], strict=True))):
        if message.dot.origin == site.engine.me and message.dot in history.told:
            past = history.told[message.dot].tag.past
            unseen = {o: n for o, n in before.items() if n > past.get(o, 0)}
            assert not unseen, (message.dot, past, unseen)
        before[message.dot.origin] = message.dot.counter


def exact_names(site: Site) -> set[bytes]:
    """Where the metadata keeps digits: as they are in memory, and of keys that are there."""
    exact = site.committer.keyspace.exact.slots
    for (key, type_), slots in exact.items():
        told = site.server.ask_metadata(b"HGETALL", exact_key(type_, key))
        assert dict(zip(told[::2], told[1::2], strict=True)) == slots
    return {exact_key(type_, key) for key, type_ in exact}


class Session:
    """Logged in at one site, which moves the deadline ahead before it is over; others add members, and may move it."""

    def __init__(self, home: Site, rng: Random) -> None:
        self.home, self.rng = home, rng
        self.logins = self.promised = 0

    def visit(self, ttl: bytes) -> None:
        """The user's next request: the session is there, or over."""
        login = b"login %d" % self.logins
        is_there = self.home.server.ask(b"SISMEMBER", SESSION, login) == 1
        if self.home.latest < self.promised:
            assert is_there, "logged out"
        if is_there and self.rng.random() < 0.7:
            assert self.home.call((b"EXPIRE", SESSION, ttl)) == [1]
        else:
            self.logins += 1
            login = b"login %d" % self.logins
            self.home.call((b"SADD", SESSION, login), (b"EXPIRE", SESSION, ttl))
        self.promised = self.home.now() + int(ttl) * 1000 - 1000

    def visit_elsewhere(self, site: Site, ttl: bytes) -> None:
        """It never shortens the deadline, nor leaves none."""
        if self.rng.random() < 0.6:
            site.call((b"SADD", SESSION, site.name.encode()), (b"EXPIRE", SESSION, ttl, b"NX"))
        else:
            site.call((b"EXPIRE", SESSION, ttl, b"GT"))


class Limiter:
    """INCR, and EXPIRE by the one that got 1: never may a number stay without a deadline."""

    def __init__(self) -> None:
        self.pending: list[Site] = []

    def count(self, site: Site) -> None:
        if site.call((b"INCR", LIMITER)) == [1]:
            self.pending.append(site)

    def expire(self, ttl: bytes) -> None:
        while self.pending:
            self.pending.pop().call((b"EXPIRE", LIMITER, ttl))


class Schedule:
    """One seed."""

    def __init__(
        self, ports: list[int], seed: int, focus: tuple[int, ...] = (), *, scores: bool = False
    ) -> None:
        """scores: most commands are those of sorted sets."""
        self.rng = rng = Random(seed)
        self.steps = 0
        skews = [rng.randint(-200, 200) for _ in ports]
        self.stage = Stage(ports, skews)
        self.history = History(self.stage)
        for site in self.sites:
            site.latest = site.now()
        self.session = Session(rng.choice(self.sites), rng)
        self.limiter = Limiter()
        self.focus = focus or rng.choice((ANY, ANY, ON_SESSION, ON_LIMITER))
        self.scores = scores
        self.records = rng.choice((0, 6, 30))
        """How often the server decides."""
        self.conditions = rng.choice(((b"NX", b"XX", b"GT", b"LT"), (b"LT",)))

    @property
    def sites(self) -> list[Site]:
        return list(self.stage.sites.values())

    def run(self, steps: int = 50) -> None:
        for _ in range(steps):
            site = self.rng.choice(self.sites)
            self.act(site)
            self.look()
            check(self.history, site)
            check_index(site)
        self.settle()
        self.limiter.expire(self.ttl())
        for _ in range(3):
            self.pass_time(100)
            self.settle()
        for site in self.sites:
            for key in KEYS:
                past = self.history.of(site, key)
                assert not past.values or (past.at == NEVER and key in KEYS[:2]), (key, past)
            names = set(site.server.ask_metadata(b"KEYS", b"*"))
            kept = exact_names(site)
            assert {n for n in names if not n.startswith(b"hidden:")} <= QUIET | kept, names
            assert len(site.committer.keyspace.log) == 0

    def look(self) -> None:
        self.stage.collect()
        self.history.learn()
        for site in self.sites:
            check_order(self.history, site)

    def act(self, site: Site) -> None:
        rng, stage = self.rng, self.stage
        match rng.choices(
            ("client", "arrive", "time", "expire", "tick", "cut", "restart", "crash"),
            weights=(30, 40, 8, 8, 20, 3, 2, 3),
        )[0]:
            case "client":
                self.client(site)
            case "arrive":
                for _ in range(rng.choice((1, 1, 2, 4))):
                    if links := stage.waiting():
                        stage.arrive(link := rng.choice(links))
                        if rng.random() < 0.7:
                            stage.sites[link[1]].run()
            case "time":
                self.pass_time(rng.choice((1, 2, 4)))
            case "expire":
                site.expire(rng.choice((0, 0, 3 * UNIT_MS)))
            case "tick":
                site.tick()
            case "cut":
                stage.cut = {rng.choice(list(stage.sites))} if not stage.cut else set()
            case "restart":
                stage.restart(site.name)
            case "crash" if self.focus == ANY:
                commands = [self.command() for _ in range(rng.choice((1, 2)))]
                site.crash(commands, rng.choice((0, 1, 1, 2)), unheard=rng.random() < 0.5)
                stage.restart(site.name)

    def client(self, site: Site) -> None:
        rng = self.rng
        match rng.choices(("any", "session", "elsewhere", "limiter"), weights=self.focus)[0]:
            case "any":
                site.call(*(self.command() for _ in range(rng.choice((1, 1, 2, 3)))))
            case "session":
                self.session.visit(self.ttl())
            case "elsewhere":
                self.session.visit_elsewhere(site, self.ttl())
            case "limiter":
                if rng.random() < 0.3:
                    self.limiter.expire(self.ttl())
                self.limiter.count(site)

    def ttl(self) -> bytes:
        return b"%d" % (self.rng.choice((2, 4, 6, 20)) * UNIT_MS // 1000)

    def pass_time(self, units: int) -> None:
        self.steps += 1
        for site in self.sites:
            site.advance(units * UNIT_MS + self.steps * STEP_MS)
            site.latest = site.now()

    def command(self) -> tuple[bytes, ...]:
        rng = self.rng
        key, some = rng.choice(KEYS[:2]), rng.sample(MEMBERS, rng.choice((1, 1, 2)))
        ttl = self.ttl()
        if self.scores and rng.random() < 0.7:
            return self.score(key, some)
        return rng.choices(
            (
                (b"SADD", key, *some),
                (b"SREM", key, *some),
                (b"INCRBY", key, b"%d" % rng.choice((1, 5, -2))),
                (b"DEL", key),
                (b"SETEX", key, ttl, rng.choice((b"7", b"text"))),
                (b"SET", key, rng.choice((b"7", b"text"))),
                (
                    b"HSET",
                    key,
                    *(word for slot in some for word in (slot, rng.choice((b"7", b"v")))),
                ),
                (b"HINCRBY", key, some[0], b"3"),
                (b"INCRBYFLOAT", key, rng.choice((b"0.1", b"-2", b"1.9"))),
                (b"HINCRBYFLOAT", key, some[0], rng.choice((b"0.1", b"-2", b"1.9"))),
                (b"HDEL", key, *some),
                (b"EXPIRE", key, ttl),
                (b"EXPIRE", key, ttl, rng.choice(self.conditions)),
                (b"PERSIST", key),
                (b"GETEX", key, b"EX", ttl),
                self.recorded(key, ttl, some),
            ),
            weights=(6, 3, 4, 3, 3, 2, 4, 3, 2, 2, 3, 8, 6, 2, 1, self.records),
        )[0]

    def score(self, key: bytes, some: list[bytes]) -> tuple[bytes, ...]:
        """A command on a sorted set."""
        rng = self.rng
        other, score = KEYS[key == KEYS[0]], rng.choice(SCORES)
        condition = rng.choice((b"GT", b"LT", b"NX", b"XX"))
        return rng.choices(
            (
                (b"ZADD", key, *(w for slot in some for w in (rng.choice(SCORES), slot))),
                (b"ZADD", key, condition, score, some[0]),
                (b"ZADD", key, condition, b"INCR", rng.choice(STEPS), some[0]),
                (b"ZINCRBY", key, rng.choice(STEPS), some[0]),
                (b"ZREM", key, *some),
                (b"ZPOPMIN", key),
                (b"ZMPOP", b"2", key, other, b"MAX", b"COUNT", b"2"),
                (b"ZREMRANGEBYRANK", key, b"0", rng.choice((b"0", b"-1"))),
                (b"ZREMRANGEBYSCORE", key, b"-inf", b"(3"),
                (b"ZUNIONSTORE", other, b"2", key, other),
                (b"ZRANGESTORE", other, key, b"0", b"1"),
                (rng.choice((b"RENAME", b"COPY")), key, other),
                (b"EXPIRE", key, self.ttl()),
            ),
            weights=(8, 6, 1, 10, 3, 2, 1, 1, 1, 1, 1, 1, 3),
        )[0]

    def recorded(self, key: bytes, ttl: bytes, some: list[bytes]) -> tuple[bytes, ...]:
        """Commands that only the server can decide."""
        other = KEYS[key == KEYS[0]]
        return self.rng.choice(
            (
                (b"SPOP", key),
                (b"SPOP", key, b"2"),
                (b"SMOVE", key, other, some[0]),
                (b"GETDEL", key),
                (b"GETSET", key, b"11"),
                (b"SETNX", key, b"12"),
                (b"SET", key, b"13", b"NX", b"EX", ttl),
                (b"SET", key, b"14", b"XX", b"GET"),
                (b"SET", key, b"15", b"KEEPTTL"),
                (b"APPEND", key, b"6"),
                (b"HSETNX", key, some[0], b"17"),
                (b"RENAME", key, other),
                (b"RENAMENX", key, other),
                (b"COPY", key, other, b"REPLACE"),
                self.rng.choice(((b"FLUSHALL",), (b"FLUSHDB",), (b"FLUSHDB", name_of(3, b"")))),
            )
        )

    def settle(self) -> None:
        """All arrives, expires and becomes stable."""
        self.stage.cut = set()
        for _ in range(40):
            while links := self.stage.waiting():
                self.stage.arrive(links[0])
                self.stage.sites[links[0][1]].run()
                self.look()
            for site in self.sites:
                site.expire()
                site.tick()
                self.look()
                check(self.history, site)
            if not self.stage.waiting() and all(site.engine.quiet for site in self.sites):
                return
        raise AssertionError("never quiet")


@pytest.fixture(scope="module")
def ports() -> Iterator[list[int]]:
    borrowed = [servers.borrow() for _ in range(3)]
    yield [server.port for server in borrowed]
    for server in borrowed:
        servers.give_back(server)


FOUND = (70, 75, 85, 200, 408, 639, 1607880456, 1607881035)
"""Seeds that have shown a fault."""


@pytest.mark.parametrize("seed", sorted({*seeds(40), *FOUND}))
def test_keys_match_the_model_after_random_schedules(ports: list[int], seed: int) -> None:
    schedule = Schedule(ports, seed)
    try:
        schedule.run()
    finally:
        schedule.stage.close()


@pytest.mark.parametrize("seed", seeds(60))
def test_scores_are_what_their_history_says(ports: list[int], seed: int) -> None:
    schedule = Schedule(ports, seed, ANY, scores=True)
    try:
        schedule.run()
    finally:
        schedule.stage.close()
