"""What own writes overwrite is kept as it was before each effect, whatever its message has done before."""

from collections.abc import Iterator, Mapping
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Plan
from crdtcast.adapters.redis.group.preimages import Aside, taken_name
from crdtcast.adapters.redis.store.databases import name_of
from crdtcast.adapters.redis.store.effects import (
    Assign,
    Effect,
    Inc,
    KillKey,
    KillSlots,
    RedisType,
    Reg,
    pairs_of,
)
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.types.hashes import Hash
from crdtcast.adapters.redis.types.sorted_sets import SortedSet
from crdtcast.causality.tags import Dot, Tag
from tests import servers
from tests.adapters.redis.stage import DirectServer
from tests.effort import seeds

pytestmark = pytest.mark.process

ELSEWHERE = name_of(3, b"h")
KEYS = {b"h": Hash, b"i": Hash, ELSEWHERE: Hash, b"z": SortedSet}
SLOTS = (b"f", b"g", b"new")


@pytest.fixture(scope="module")
def server() -> Iterator[DirectServer]:
    borrowed = servers.borrow()
    direct = DirectServer(borrowed.port)
    yield direct
    direct.close()
    servers.give_back(borrowed)


class Batch(LocalBatch):
    """One commit of a region that knows these keys."""

    def __init__(self) -> None:
        self.space = Keyspace(15)
        self.space.types |= {key: native.here for key, native in KEYS.items()}
        self.space.aside = Aside(15)
        self._vector: dict[str, int] = {}
        engine: Any = SimpleNamespace(me="a.1", vector=self._vector, send=self._send)
        super().__init__(Plan(15), self.space, engine, lambda: 1000)

    def _send(self, payload: bytes) -> Tag:
        self._vector["a.1"] = counter = self._vector.get("a.1", 0) + 1
        return Tag(Dot("a.1", counter), (), dict(self._vector))

    def act(self, rng: Random) -> None:
        key = rng.choice(list(KEYS))
        native, slots = KEYS[key], rng.sample(SLOTS, rng.choice((1, 2)))
        match rng.choices(
            ("write", "remove", "count", "kill", "assign", "close"), weights=(10, 6, 2, 1, 1, 2)
        )[0]:
            case "write":
                words = [word for slot in slots for word in (slot, b"%d" % rng.randrange(100))]
                self.write(key, native.type, words)
            case "remove":
                self.remove(key, native.type, slots)
            case "count":
                self.space.types.setdefault(key, native.here)
                if self.space.number(key, native.type, slots[0]) is not None:
                    self.increase(key, native.type, slots[0], 5)
            case "kill":
                self.kill_key(key)
            case "assign":
                self.assign(key, b"text")
            case "close":
                self.close()


def overwritten(effects: list[Effect], at: dict[bytes, dict[bytes, bytes]]) -> Iterator[Any]:
    """Of each effect that writes or removes slots: its place, and what it ended. at: what keys hold; it is updated."""
    for place, effect in enumerate(effects):
        match effect:
            case Reg(key, _, words):
                values = pairs_of(words)
                yield place, {slot: at[key][slot] for slot in values if slot in at[key]}
                at[key] |= values
            case KillSlots(key, _, slots):
                yield place, {slot: at[key][slot] for slot in slots if slot in at[key]}
                at[key] = {slot: value for slot, value in at[key].items() if slot not in slots}
            case KillKey(key) | Assign(key):
                at[key] = {}
            case Inc(key, _, slot, delta):
                at[key][slot] = b"%d" % (int(at[key].get(slot, b"0")) + int(delta))


def execute(server: DirectServer, pieces: list[bytes]) -> None:
    server.exchange(b"".join(pieces), len(pieces))


@pytest.mark.parametrize("seed", seeds(200))
def test_what_each_effect_overwrites_is_kept(server: DirectServer, seed: int) -> None:
    rng = Random(seed)
    server.ask(b"FLUSHALL")
    before: Mapping[bytes, dict[bytes, bytes]] = {key: {b"f": b"101", b"g": b"102"} for key in KEYS}
    begin = Plan(15)
    for key, native in KEYS.items():
        begin.on_key(key, 0, native.write, *native.words(before[key]))
    begin.finish()
    execute(server, begin.pieces)
    batch = Batch()
    for slot in (b"f", b"g") if rng.random() < 0.5 else ():
        batch.space.learn_number(b"h", RedisType.HASH, slot, before[b"h"][slot])
    for _ in range(rng.randrange(1, 20)):
        batch.act(rng)
    sent = batch.end()
    batch.plan.finish()
    execute(server, batch.plan.pieces)
    at = {key: dict(content) for key, content in before.items()}
    for tag, _, event in sent:
        for place, expected in overwritten(event.effects, at):
            told = server.ask_metadata(b"HGETALL", taken_name(tag.dot, place))
            kept = dict(zip(told[::2], told[1::2], strict=True))
            assert kept == expected, (tag.dot, place, event.effects)
