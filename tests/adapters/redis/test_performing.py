"""What of a parked message goes out again, slot by slot, over a keyspace without a server."""

from types import SimpleNamespace
from typing import Any

import pytest

from crdtcast.adapters.redis.commit.batch import LocalBatch
from crdtcast.adapters.redis.commit.plan import Plan
from crdtcast.adapters.redis.group.parked_message import Performing, Theirs
from crdtcast.adapters.redis.group.rebase import Mine, Part, Removal, Write
from crdtcast.adapters.redis.store.effects import WHOLE, Inc, KillSlots, One, RedisType, Reg
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.types.hashes import Hash
from crdtcast.adapters.redis.types.sets import Set
from crdtcast.adapters.redis.types.strings import String
from crdtcast.causality.tags import Dot, Tag

HASH, SET = RedisType.HASH, RedisType.SET
MINE_AT, OTHER = 100, Dot("b.1", 7)


class Batch(LocalBatch):
    """Prepared over what the server is said to hold; what it would send is `effects`."""

    def __init__(self) -> None:
        self.space = Keyspace(15)
        self.space.types |= {b"h": Hash.here, b"s": Set.here, b"n": 5}
        engine: Any = SimpleNamespace(me="a.2", vector={"a.2": 0, "b.1": 7})
        super().__init__(Plan(15), self.space, engine, lambda: 1000)

    @property
    def effects(self) -> list[object]:
        self._seal(b"s")
        self._seal(b"n")
        self._seal(b"h")
        return list(self._effects)


def performed(
    part: Part, theirs: Theirs, batch: Batch, home: dict[str, int] | None = None
) -> Part | None:
    mine = Mine((part,), home or {}, MINE_AT, rebased=True)
    return Performing(mine, batch, theirs, set()).perform(part)


def written(batch: Batch, timestamp: int, value: bytes = b"theirs") -> None:
    """Another member's value is unstable in field f."""
    batch.space.log.write(b"h", HASH, {b"f": value}, Tag(OTHER, (), {}), timestamp, 0)


@pytest.mark.parametrize(
    ("taken", "theirs", "unstable_at", "goes"),
    [
        ({b"f": b"0"}, b"0", None, True),
        ({}, None, None, True),
        ({b"f": b"0"}, b"1", None, False),
        ({b"f": b"0"}, None, None, False),
        ({}, b"1", None, False),
        ({b"f": b"0"}, b"theirs", MINE_AT - 1, True),
        ({b"f": b"0"}, b"theirs", MINE_AT + 1, False),
        (None, b"theirs", MINE_AT - 1, True),
        (None, b"theirs", MINE_AT + 1, False),
        (None, b"theirs", None, False),
        (None, None, None, False),
    ],
)
def test_value_is_resent_only_over_the_same_or_an_older_value(
    taken: dict[bytes, bytes] | None, theirs: bytes | None, unstable_at: int | None, goes: bool
) -> None:
    batch = Batch()
    if unstable_at is not None:
        written(batch, unstable_at)
    part = Write(b"h", HASH, {b"f": b"mine"}, taken)
    found: Theirs = {(b"h", HASH, b"f"): theirs}
    left = performed(part, found, batch)
    assert left == (None if goes else part)
    assert batch.effects == ([Reg(b"h", HASH, (b"f", b"mine"))] if goes else [])
    assert found[b"h", HASH, b"f"] == (b"mine" if goes else theirs)


def test_number_resent_over_a_text_counts() -> None:
    batch = Batch()
    batch.space.types[b"t"] = String.here
    part = Write(b"t", RedisType.STRING, {WHOLE: b"7"}, {WHOLE: b"text"})
    assert performed(part, {(b"t", RedisType.STRING, WHOLE): b"text"}, batch) is None
    assert batch.space.known(b"t") == 7


def test_fields_of_a_resent_write_are_decided_one_by_one() -> None:
    batch = Batch()
    part = Write(b"h", HASH, {b"f": b"1", b"g": b"2"}, {b"f": b"0", b"g": b"0"})
    theirs: Theirs = {(b"h", HASH, b"f"): b"0", (b"h", HASH, b"g"): b"theirs"}
    left = performed(part, theirs, batch)
    assert isinstance(left, Write) and left.values == {b"g": b"2"}
    assert str(left) == "HSET b'h' b'g'"
    assert batch.effects == [Reg(b"h", HASH, (b"f", b"1"))]


def test_resent_removal_takes_only_the_values_it_had_seen() -> None:
    batch = Batch()
    taken = {HASH: {b"f": b"0", b"g": b"0", b"gone": b"0"}}
    part = Removal(b"h", HASH, (b"f", b"g", b"gone", b"never"), taken)
    theirs: Theirs = {
        (b"h", HASH, b"f"): b"0",
        (b"h", HASH, b"g"): b"theirs",
        (b"h", HASH, b"gone"): None,
    }
    left = performed(part, theirs, batch)
    assert left is not None and str(left) == "HDEL b'h' b'g'"
    assert batch.effects == [KillSlots(b"h", HASH, (b"f",))]


def test_resent_removal_takes_members_whose_adds_it_has_all_seen() -> None:
    batch = Batch()
    batch.space.log.one(b"s", SET, (b"x", b"y"), Tag(OTHER, (), {}), 0)
    batch.space.log.one(b"s", SET, (b"y",), Tag(Dot("b.1", 8), (), {"b.1": 7}), 0)
    part = Removal(b"s", None, None, {SET: dict.fromkeys((b"x", b"y", b"z"), b"")})
    assert performed(part, {}, batch, home={"b.1": 7}) is None
    (effect,) = batch.effects
    assert effect == KillSlots(b"s", SET, (b"x", b"z"))


def test_a_number_that_hides_something_is_not_removed() -> None:
    batch = Batch()
    part = Removal(b"n", None, None, {RedisType.STRING: {WHOLE: b"5"}})
    theirs: Theirs = {(b"n", RedisType.STRING, WHOLE): b"5"}
    batch.space.hidden[b"n"] = {SET}
    assert performed(part, theirs, batch) == part
    batch.space.hidden.clear()
    assert performed(part, theirs, batch) is None
    assert theirs[b"n", RedisType.STRING, WHOLE] is None


def test_adds_and_increments_are_always_resent() -> None:
    batch = Batch()
    batch.space.will_count(b"h", HASH, b"f")
    batch.space.learn_number(b"h", HASH, b"f", b"7")
    theirs: Theirs = {(b"h", HASH, b"f"): b"7"}
    parts = [Inc(b"h", HASH, b"f", 2), One(b"s", SET, (b"m",)), Inc(b"n", RedisType.STRING, b"", 3)]
    assert [performed(part, theirs, batch) for part in parts] == [None] * 3  # type: ignore[arg-type]
    assert batch.effects == parts
    assert theirs == {(b"h", HASH, b"f"): b"9"}
