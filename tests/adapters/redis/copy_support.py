"""A region that is copied while it is written, without sockets: a stand-in for a server, and one schedule by seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any
from zlib import crc32

from crdtcast.adapters.redis.ops.recorder import Read
from crdtcast.adapters.redis.store.databases import db_of, key_of, name_of
from crdtcast.adapters.redis.store.effects import (
    WHOLE,
    Effect,
    Expire,
    KillKey,
    KillSlots,
    One,
    Only,
    RedisType,
    Reg,
    Until,
)
from crdtcast.adapters.redis.store.hiding import hidden_key
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.transfer.key_rows import Row
from crdtcast.adapters.redis.transfer.region_copy import RegionCopy
from crdtcast.adapters.redis.transfer.row_writes import commands_for
from crdtcast.adapters.redis.types.exact_values import value_named
from crdtcast.adapters.redis.types.sorted_sets import SortedSet

OURS = 15
SET, HASH, STRING, ZSET = RedisType.SET, RedisType.HASH, RedisType.STRING, RedisType.ZSET
EXACT = b"10000000000000000.7"
"""A score that no double gives back."""
REMOVALS = {b"set": (b"SREM", SET), b"hash": (b"HDEL", HASH), b"zset": (b"ZREM", ZSET)}
Value = dict[bytes, bytes]
STEPS = 400


class CopyFailureError(Exception):
    """The copy is not what the giver holds."""


@dataclass
class FakeServer:
    """Holds sets, hashes and texts as slots; as much of a server as a copy uses."""

    dbs: dict[int, dict[bytes, tuple[bytes, Value]]] = field(
        default_factory=lambda: {db: {} for db in range(OURS + 1)}
    )
    until: dict[bytes, int] = field(default_factory=dict)
    """By name."""
    db: int = 0

    def call(self, *words: Any) -> Any:
        verb, *args = (b"%d" % word if isinstance(word, int) else bytes(word) for word in words)
        return getattr(self, "_" + verb.decode().lower())(*args)

    def call_on(self, verb: bytes, name: bytes, *words: Any) -> Any:
        """A command on a key, in its database."""
        before, self.db = self.db, db_of(name)
        reply = self.call(verb, key_of(name), *words)
        self.db = before
        return reply

    def held(self, name: bytes) -> tuple[bytes, Value]:
        """What a key holds, and its type."""
        return self.dbs[db_of(name)].get(key_of(name), (b"none", {}))

    def _held(self, key: bytes, kind: bytes) -> Value | None:
        """None for another type."""
        found, value = self.dbs[self.db].get(key, (kind, {}))
        return value if found == kind else None

    def _own(self, key: bytes, kind: bytes) -> Value:
        found, value = self.dbs[self.db].setdefault(key, (kind, {}))
        assert found == kind, (key, found, kind)
        return value

    def _shed(self, key: bytes) -> None:
        if key in self.dbs[self.db] and not self.dbs[self.db][key][1]:
            self._del(key)

    def _select(self, db: bytes) -> bytes:
        self.db = int(db)
        return b"OK"

    def _scan(self, cursor: bytes, *_: bytes) -> list[Any]:
        return _scanned(self.dbs[self.db], cursor, 2)

    def _type(self, key: bytes) -> bytes:
        return self.dbs[self.db].get(key, (b"none", {}))[0]

    def _memory(self, _: bytes, key: bytes, *__: bytes) -> int | None:
        if key not in self.dbs[self.db]:
            return None
        return sum(len(slot) + len(worth) for slot, worth in self.dbs[self.db][key][1].items())

    def _pexpiretime(self, key: bytes) -> int:
        return self.until.get(name_of(self.db, key), -1) if key in self.dbs[self.db] else -2

    def _del(self, *keys: bytes) -> int:
        for key in keys:
            self.dbs[self.db].pop(key, None)
            self.until.pop(name_of(self.db, key), None)
        return 1

    def _scard(self, key: bytes) -> Any:
        return _or_error(self._held(key, b"set"), len)

    def _hlen(self, key: bytes) -> Any:
        return _or_error(self._held(key, b"hash"), len)

    def _smembers(self, key: bytes) -> Any:
        return _or_error(self._held(key, b"set"), list)

    def _hgetall(self, key: bytes) -> Any:
        return _or_error(self._held(key, b"hash"), lambda v: [w for p in v.items() for w in p])

    def _hkeys(self, key: bytes) -> Any:
        return _or_error(self._held(key, b"hash"), list)

    def _get(self, key: bytes) -> Any:
        return _or_error(self._held(key, b"string"), lambda value: value.get(WHOLE))

    def _getrange(self, key: bytes, start: bytes, end: bytes) -> Any:
        value = self._held(key, b"string")
        return _or_error(value, lambda v: v.get(WHOLE, b"")[int(start) : int(end) + 1])

    def _strlen(self, key: bytes) -> Any:
        return _or_error(self._held(key, b"string"), lambda value: len(value.get(WHOLE, b"")))

    def _sscan(self, key: bytes, cursor: bytes, _: bytes, count: bytes) -> Any:
        value = self._held(key, b"set")
        return _or_error(value, lambda v: _scanned(v, cursor, int(count)))

    def _hscan(self, key: bytes, cursor: bytes, _: bytes, count: bytes) -> Any:
        return _or_error(self._held(key, b"hash"), lambda v: _pairs(v, cursor, int(count)))

    def _sismember(self, key: bytes, slot: bytes) -> Any:
        return _or_error(self._held(key, b"set"), lambda value: int(slot in value))

    def _hget(self, key: bytes, slot: bytes) -> Any:
        return _or_error(self._held(key, b"hash"), lambda value: value.get(slot))

    def _sadd(self, key: bytes, *slots: bytes) -> int:
        self._own(key, b"set").update(dict.fromkeys(slots, b""))
        return 0

    def _hset(self, key: bytes, *words: bytes) -> int:
        self._own(key, b"hash").update(zip(words[::2], words[1::2], strict=True))
        return 0

    def _zadd(self, key: bytes, *words: bytes) -> int:
        if self.db != OURS or key.startswith(b"hidden:"):  # else it is the index of deadlines
            self._own(key, b"zset").update(zip(words[1::2], words[::2], strict=True))
        return 0

    def _zrem(self, key: bytes, *slots: bytes) -> int:
        for slot in slots:
            self._own(key, b"zset").pop(slot, None)
        self._shed(key)
        return 0

    def _zcard(self, key: bytes) -> Any:
        return _or_error(self._held(key, b"zset"), len)

    def _zscore(self, key: bytes, slot: bytes) -> Any:
        return _or_error(self._held(key, b"zset"), lambda value: value.get(slot))

    def _zrange(self, key: bytes, *_: bytes) -> Any:
        return _or_error(self._held(key, b"zset"), lambda v: [w for p in v.items() for w in p])

    def _zscan(self, key: bytes, cursor: bytes, _: bytes, count: bytes) -> Any:
        return _or_error(self._held(key, b"zset"), lambda v: _pairs(v, cursor, int(count)))

    def _set(self, key: bytes, text: bytes) -> bytes:
        self._del(key)
        self.dbs[self.db][key] = b"string", {WHOLE: text}
        return b"OK"

    def _setrange(self, key: bytes, at: bytes, text: bytes) -> int:
        value = self._own(key, b"string")
        before = value.get(WHOLE, b"").ljust(int(at), b"\0")
        value[WHOLE] = before[: int(at)] + text + before[int(at) + len(text) :]
        return 0

    def _srem(self, key: bytes, *slots: bytes) -> int:
        for slot in slots:
            self._own(key, b"set").pop(slot, None)
        self._shed(key)
        return 0

    def _hdel(self, key: bytes, *slots: bytes) -> int:
        for slot in slots:
            self._own(key, b"hash").pop(slot, None)
        self._shed(key)
        return 0

    def _pexpireat(self, key: bytes, at: bytes) -> int:
        if key in self.dbs[self.db]:
            self.until[name_of(self.db, key)] = int(at)
        return 1

    def shown(self) -> dict[Any, Any]:
        """All that a copy has to bring."""
        hidden = {k: v for k, v in self.dbs[OURS].items() if k.startswith(b"hidden:")}
        clients = {db: keys for db, keys in self.dbs.items() if db != OURS}
        return {"keys": clients, "hidden": hidden, "until": self.until}

    def exact(self) -> dict[bytes, Value]:
        """The exact values that it keeps of sorted sets, as far as they count."""
        found: dict[bytes, Value] = {}
        for name, (_, kept) in self.dbs[OURS].items():
            if not name.startswith(b"exact:"):
                continue
            key, _ = value_named(name)
            held, value = self.held(key)
            told = {s: w for s, w in kept.items() if value.get(s) == SortedSet.shown(w)}
            if held == b"zset" and told:
                found[key] = told
        return found


def _pairs(value: Value, cursor: bytes, count: int) -> list[Any]:
    following, slots = _scanned(value, cursor, count)
    return [following, [word for slot in slots for word in (slot, value[slot])]]


def _scanned(slots: Any, cursor: bytes, count: int) -> list[Any]:
    """As a server goes over a table: in an order that no write changes."""
    places = sorted((crc32(slot) + 1, slot) for slot in slots)
    left = [place for place in places if place[0] > int(cursor)]
    some = left[:count]
    following = b"0" if len(left) <= count else b"%d" % some[-1][0]
    return [following, [slot for _, slot in some]]


def _or_error(value: Value | None, take: Callable[[Value], Any]) -> Any:
    return Exception("WRONGTYPE") if value is None else take(value)


class Region:
    """A giver that goes on writing. Writes are effects and what the server makes of them."""

    KEYS = (b"s", b"h", b"z", b"t", name_of(3, b"u"), name_of(3, b"s"), name_of(0, b"\xff\xfe"))

    def __init__(self, random: Random, copies: Sequence[RegionCopy] = ()) -> None:
        self.random = random
        self.server = FakeServer()
        self.keyspace = Keyspace(OURS)
        self.copies = list(copies)
        self.counts: Counter[str] = Counter()
        self.dropped: set[bytes] = set()
        """At their deadlines, and nobody has told of it yet."""

    def commit(self, only: bytes | None = None) -> list[Effect]:
        """Some writes of one commit."""
        effects: list[Effect] = []
        for _ in range(self.random.choice((1, 1, 2, 3))):
            effects += self._write(only or self.random.choice(self.KEYS))
        for copy in self.copies:
            copy.touched(effects)
        return effects

    def _write(self, key: bytes) -> list[Effect]:
        random, call = self.random, self.server.call_on
        what = random.choices(
            ("add", "remove", "kill", "set", "replace", "until", "drop", "put", "score"),
            (30, 15, 1, 1, 0.5, 3, 0.5, 10, 20),
        )[0]
        self.counts[what] += 1
        held, value = self.server.held(key)
        effects: list[Effect] = []
        if key in self.dropped:  # others hear of it with what comes next
            self.dropped.discard(key)
            effects += self._kill(key, Expire(key, True))
            held, value = b"none", {}
        slots = tuple(sorted({b"%d" % random.randrange(60) for _ in range(random.randint(1, 3))}))
        match what:
            case "add" if held in (b"set", b"none"):
                call(b"SADD", key, *slots)
                return [*effects, One(key, SET, slots)]
            case "put" if held in (b"hash", b"none", b"set") and (
                held != b"set" or _chance(random)
            ):
                words = tuple(w for slot in slots for w in (slot, random.choice((b"", b"xyz" * 9))))
                if held == b"set":
                    self._hide(key)
                call(b"HSET", key, *words)
                return [*effects, Reg(key, HASH, words)]
            case "score" if held in (b"zset", b"none") and key in (b"z", b"s"):
                content = {slot: random.choice((b"1", b"2.5", EXACT)) for slot in slots}
                call(b"ZADD", key, *SortedSet.words(content))
                self.keyspace.exact.written(key, ZSET, content)
                return [*effects, Reg(key, ZSET, tuple(w for p in content.items() for w in p))]
            case "remove" if held in REMOVALS and (key not in self.keyspace.hidden):
                known = tuple(random.sample(sorted(value), min(len(value), 2)))
                verb, type_ = REMOVALS[held]
                call(verb, key, *known)
                self.keyspace.exact.removed(key, type_, known)
                return [*effects, KillSlots(key, type_, known)]
            case "kill":
                return [*effects, *self._kill(key, KillKey(key))]
            case "set" if _chance(random):
                effects += self._kill(key, KillKey(key))
                text = b"%d" % random.randrange(100) * random.randrange(1, 60)
                call(b"SET", key, text)
                return [*effects, Reg(key, STRING, (WHOLE, text))]
            case "replace":
                effects += self._kill(key, KillKey(key))
                some = tuple(b"%d" % n for n in range(random.randrange(40)))
                if some:
                    call(b"SADD", key, *some)
                    effects.append(One(key, SET, some))
            case "until" if held != b"none":
                at = random.randrange(1_000, 2_000)
                call(b"PEXPIREAT", key, at)
                return [*effects, Until(key, at, Only.ALWAYS)]
            case "drop" if key in self.server.until:
                self.server.call_on(b"DEL", key)
                self.dropped.add(key)
        return effects

    def _kill(self, key: bytes, effect: Effect) -> list[Effect]:
        self.server.call_on(b"DEL", key)
        self.keyspace.exact.emptied(key)
        for type_ in self.keyspace.hidden.pop(key, ()):
            self.server.dbs[OURS].pop(hidden_key(type_, key), None)
        return [effect]

    def _hide(self, key: bytes) -> None:
        visible = self.server.dbs[db_of(key)].pop(key_of(key))
        self.server.dbs[OURS][hidden_key(SET, key)] = visible
        self.keyspace.hidden[key] = {SET}
        self.counts["hidden"] += 1

    def drop_one(self) -> None:
        """The server drops a key at its deadline, and nobody has told of it yet."""
        dated = sorted(self.server.until.keys() - self.keyspace.hidden.keys())
        if dated and self.random.random() < 0.3:
            key = self.random.choice(dated)
            self.server.call_on(b"DEL", key)
            self.dropped.add(key)

    def settle(self) -> None:
        """What the server has dropped is told."""
        for key in sorted(self.dropped):
            effects = self._kill(key, Expire(key, True))
            for copy in self.copies:
                copy.touched(effects)
        self.dropped.clear()


def _chance(random: Random) -> bool:
    return random.random() < 0.1


def run(seed: int) -> Counter[str]:
    """One schedule of a copy to its end. Raises CopyFailureError."""
    random = Random(seed)
    region = Region(random)
    for _ in range(random.choice((5, 60, 300))):
        region.commit()
    copy = RegionCopy(region.keyspace)
    region.copies.append(copy)
    busy = random.choice((0.2, 1, 3))
    hot = random.choice((None, None, b"s", b"h", Region.KEYS[3], Region.KEYS[5]))
    receiver, hiding = FakeServer(), dict[bytes, set[RedisType]]()

    def write(rows: Sequence[Row]) -> None:
        region.counts[f"{min(len(rows), 3)} rows"] += 1
        for words in commands_for(rows, OURS, hiding):
            receiver.call(*words)

    for _ in range(STEPS):
        write(take(copy.steps(), region, busy, hot))
        if not copy.is_enough:
            continue
        if random.random() < 0.7:
            region.commit(hot)
        if not copy.is_enough:
            continue
        region.settle()
        if random.random() < 0.8:  # the commit that holds the join
            region.commit(hot)
        region.settle()
        region.drop_one()
        reads, rows = copy.closing()
        _answer(region.server, reads)
        if random.random() < 0.5:  # it did not come through
            region.counts["taken back"] += 1
            copy.take_back()
            continue
        write(rows)
        for key in region.dropped & receiver.until.keys():
            receiver.call_on(b"DEL", key)  # at its deadline
        if receiver.shown() != region.server.shown():
            raise CopyFailureError(f"{receiver.shown()} instead of {region.server.shown()}")
        exact = region.keyspace.exact.slots
        wanted = {k: v for (k, _), v in exact.items() if region.server.held(k)[0] == b"zset"}
        if receiver.exact() != wanted:
            raise CopyFailureError(f"exactly {receiver.exact()} instead of {wanted}")
        return region.counts
    raise CopyFailureError("it does not come to an end")


def take(
    steps: Generator[list[list[bytes]], Sequence[Any], Any],
    region: Region,
    busy: float = 0,
    hot: bytes | None = None,
) -> Any:
    """Answer what is read, with commits in between. busy: about how many, before and after each read."""
    random = region.random
    try:
        commands = next(steps)
        while True:
            for _ in range(int(random.expovariate(1) * busy)):
                region.commit(hot)
            replies = [region.server.call(*words) for words in commands]
            for _ in range(int(random.expovariate(1) * busy)):
                region.commit(hot)  # before the copy gets to see them
            commands = steps.send(replies)
    except StopIteration as ended:
        return ended.value


def _answer(server: FakeServer, reads: Sequence[Read]) -> None:
    for command, take in reads:
        take(server.call(*command))
