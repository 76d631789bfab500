"""Values that are written under one key in one message: one effect, as long as nothing comes between them."""

from types import SimpleNamespace
from typing import Any

import pytest

from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Plan
from crdtcast.adapters.redis.group.preimages import Aside
from crdtcast.adapters.redis.server.raw_client import packed
from crdtcast.adapters.redis.store.effects import (
    NEVER,
    WHOLE,
    Assign,
    Effect,
    Inc,
    KillSlots,
    One,
    RedisType,
    Reg,
    Until,
)
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.unstable import UnstableLog
from crdtcast.adapters.redis.types.hashes import Hash
from crdtcast.adapters.redis.types.native import NOTHING
from crdtcast.adapters.redis.types.sets import Set
from crdtcast.adapters.redis.types.strings import String
from crdtcast.causality.tags import Dot, Tag

HASH, SET, STRING = Hash.type, Set.type, RedisType.STRING
TAG = Tag(Dot("a.1", 1), (), {})


class Batch(LocalBatch):
    """The first message of a region in which these keys are known."""

    def __init__(self) -> None:
        self.space = Keyspace(15)
        self.space.types |= {b"h": Hash.here, b"k": String.here, b"s": Set.here, b"new": NOTHING}
        engine: Any = SimpleNamespace(me="a.1", vector={}, send=lambda payload: TAG)
        super().__init__(Plan(15), self.space, engine, lambda: 1000)

    def effects(self) -> list[Effect]:
        """All of its message; the log must be what they make of an empty one."""
        ((_, _, event),) = self.end()
        again = UnstableLog()
        for place, effect in enumerate(event.effects):
            again.apply(effect, TAG, event.timestamp, place)
        for key in self.space.types:
            assert self.space.log.key(key) == again.key(key)
            assert self.space.log.deadlines.of(key) == again.deadlines.of(key)
        return event.effects


def test_writes_to_one_hash_become_one_effect_of_last_values() -> None:
    batch = Batch()
    places = [batch.write(b"h", HASH, [field, b"1"]) for field in (b"f", b"g")]
    places.append(batch.write(b"h", HASH, [b"f", b"2", b"e", b"3"]))
    assert len(set(places)) == 3, "each has a reply of its own"
    assert batch.effects() == [Reg(b"h", HASH, (b"f", b"2", b"g", b"1", b"e", b"3"))]


def test_repeated_set_of_a_string_is_one_effect_with_last_value() -> None:
    batch = Batch()
    for value in (b"1", b"2", b"3"):
        batch.assign(b"k", value)
    assert batch.effects() == [Assign(b"k", b"3")]
    assert batch.space.known(b"k") == 3
    assert sum(b"SET" in piece for piece in batch.plan.pieces) == 1, "the server gets the last"


def test_repeated_set_keeps_the_last_deadline() -> None:
    batch = Batch()
    for value, at in ((b"1", 100), (b"2", NEVER), (b"text", 200)):
        batch.assign(b"k", value, at)
    assert batch.effects() == [Assign(b"k", b"text", 200)]
    assert batch.space.dates.at(b"k") == 200
    assert [piece for piece in batch.plan.pieces if b"SET" in piece] == [_set(b"text")]


def test_set_after_a_deadline_was_asked_for_ends_it() -> None:
    batch = Batch()
    batch.assign(b"k", b"1", 100)
    batch.assign(b"k", b"2", 200)
    batch.show([b"k"])
    assert batch.space.dates.at(b"k") == 200
    batch.assign(b"k", b"3")
    assert batch.effects() == [Assign(b"k", b"3")]
    assert batch.space.dates.at(b"k") == NEVER


@pytest.mark.parametrize("keys", [[b"k"], [b"h", b"k"], []], ids=["it", "two", "all"])
def test_value_that_something_may_see_is_written(keys: list[bytes]) -> None:
    batch = Batch()
    for value in (b"1", b"2"):
        batch.assign(b"k", value)
    batch.show(keys)
    for value in (b"3", b"4"):
        batch.assign(b"k", value)
    assert batch.effects() == [Assign(b"k", b"4")]
    assert batch.plan.pieces == [_set(b"2"), _set(b"4")]


def _set(value: bytes) -> bytes:
    return packed(["SET", "k", value.decode()])


def test_increment_between_two_sets_keeps_its_place() -> None:
    batch = Batch()
    batch.assign(b"k", b"5")
    batch.increment(b"k", 2)
    batch.assign(b"k", b"6")
    batch.until(b"k", 99)
    batch.assign(b"k", b"7", 100)
    batch.assign(b"k", b"8")
    for value in (b"1", b"2"):
        batch.write(b"h", HASH, [b"f", value])
        batch.remove(b"h", HASH, [b"f"])
    assert batch.effects() == [
        Assign(b"k", b"5"),
        Inc(b"k", STRING, WHOLE, 2),
        Assign(b"k", b"6"),
        Until(b"k", 99),
        Assign(b"k", b"8"),
        Reg(b"h", HASH, (b"f", b"1")),
        KillSlots(b"h", HASH, (b"f",)),
        Reg(b"h", HASH, (b"f", b"2")),
        KillSlots(b"h", HASH, (b"f",)),
    ]


def test_write_of_another_type_separates_two_sets() -> None:
    batch = Batch()
    batch.assign(b"s", b"text")
    batch.add(b"s", SET, [b"x"])
    batch.assign(b"s", b"more")
    batch.write(b"s", HASH, [b"f", b"1"])
    batch.assign(b"s", b"last")
    assert batch.effects() == [
        Assign(b"s", b"text"),
        One(b"s", SET, (b"x",)),
        Assign(b"s", b"more"),
        Reg(b"s", HASH, (b"f", b"1")),
        Assign(b"s", b"last"),
    ]


def test_only_the_value_before_the_effect_is_kept_aside() -> None:
    batch = Batch()
    batch.space.aside = Aside(15)
    for field in (b"f", b"f", b"g"):
        batch.write(b"h", HASH, [field, b"1"])
    for _ in range(3):
        batch.assign(b"k", b"1")
    batch.end()
    pieces = batch.plan.pieces
    assert pieces[0].endswith(b"\r\n2\r\n$1\r\nf\r\n$1\r\ng\r\n"), "two slots, in one go"
    assert sum(b"COPY" in piece for piece in pieces) == 1
