"""Whatever a program gives to an operation, a peer sends or a disk gives back: it takes effect, or is
refused with one line and changes nothing.
"""

import itertools
import random
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import msgpack
import pytest

from crdtcast.causality.hlc import HLC
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import (
    AWMap,
    AWSet,
    LWWRegister,
    Number,
    PNCounter,
    PureOpCRDT,
    SharedText,
    Site,
)
from crdtcast.datatypes.canonical import canonical
from crdtcast.datatypes.maps import CATALOGUE, NestedMap
from crdtcast.exceptions import InvalidOperationError, RemoteProtocolError, UnusableInputError
from crdtcast.short_repr import shown

each_type = pytest.mark.parametrize("crdt", CATALOGUE.values(), ids=lambda crdt: crdt.TYPE)


class Name(str):
    pass


class Loud:
    def __repr__(self) -> str:
        return "one line\nand another"


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


CYCLE: list[Any] = ["update", "k", AWMap]
CYCLE.append(CYCLE)
NUMBERS: list[Any] = [
    0,
    1,
    -1,
    2,
    2**63 - 1,
    2**63,
    2**64,
    -(2**63),
    10**5000,
    1.5,
    -0.0,
    1e308,
    True,
    1j,
]
NUMBERS += [float("nan"), float("inf"), Decimal("1e400"), Decimal("1e401"), Decimal("sNaN")]
TEXTS = ["", "x", "L", "1e5", "Infinity", "\ud800", "\x00", "é" * 100, b"x", bytearray(b"x")]
IDENTITIES = [["a", 1, 0, 0], ("a", 1, 0, 0), [["a", 1, 0, 0, 1]], [["a", 1, 0, 0, 2**24 + 1]]]
LISTS = [[], ["x"], ("x", "x"), ["x", None], [10**5000], deep(32), deep(33), deep(5000), {1, "x"}]
DICTS = [{}, {"a": [1]}, {1: 2}, {"\ud800": 1}, {("a",): 1}]
NESTED = [["add", "x"], ("increment",), ["assign", (1,)], CYCLE, [["k", "set_aw", ["add", "x"]]]]
OTHERS = [
    None,
    AWSet,
    PNCounter,
    "counter_pn",
    "map_aw",
    "unheard_of",
    Name("x"),
    Loud(),
    iter("x"),
]
ODD = [*NUMBERS, *TEXTS, *IDENTITIES, *LISTS, *DICTS, *NESTED, *OTHERS]


def one_line(refusal: Exception) -> None:
    assert len(str(refusal)) < 500
    assert "\n" not in str(refusal)
    assert str(refusal).isprintable()


def alike(one: Any, other: Any) -> bool:
    """Equal to the last type, as 1 and True are not."""
    return repr(one) == repr(other)


class Member:
    """One object, its messages, and what is not stable yet."""

    def __init__(self, crdt: type[PureOpCRDT[Any]]) -> None:
        self.crdt = crdt()
        self.crdt.site = Site("a", HLC(lambda: 0))
        self.sent = 0

    def next_tag(self) -> Tag:
        self.sent += 1
        return Tag(Dot("a", self.sent), (), {"a": self.sent - 1})

    def settle(self) -> None:
        value = canonical(self.crdt.value)
        for counter in range(1, self.sent + 1):
            self.crdt.stable(Tag(Dot("a", counter), (), {"a": counter - 1}))
        assert canonical(self.crdt.value) == value
        assert self.crdt.log_size == 0


def calls(crdt: type[PureOpCRDT[Any]], source: random.Random) -> Iterator[tuple[Any, list[Any]]]:
    names = [*crdt.OPERATIONS, "unheard_of", Name("add"), None, ["add"]]
    while True:
        name = source.choice(names)
        declared = crdt.OPERATIONS.get(name) if isinstance(name, str) else None
        count = len(declared.arguments) if declared else 1
        count = source.randrange(4) if source.random() < 0.1 else count
        args = [source.choice(ODD) for _ in range(count)]
        if issubclass(crdt, NestedMap) and name == "update" and count == 3 and args[0] != "x":
            held = source.choice(list(CATALOGUE.values()))
            within, given = next(calls(held, source))
            args = ["k", held, [within, *given]]
        yield name, args


@each_type
def test_an_operation_takes_effect_or_is_refused_in_one_line(crdt: type[PureOpCRDT[Any]]) -> None:
    print("seed", crdt.TYPE)
    source = random.Random(crdt.TYPE)
    here, there = Member(crdt), Member(crdt)
    accepted = 0
    for (name, args), _ in zip(calls(crdt, source), range(600), strict=False):
        before = here.crdt.snapshot()
        try:
            prepared = here.crdt.prepare(name, *args)
        except InvalidOperationError as refusal:
            one_line(refusal)
            continue
        finally:
            assert here.crdt.snapshot() == before
        accepted += 1
        arrived = msgpack.unpackb(msgpack.packb(prepared))
        assert alike(arrived, prepared)
        here.crdt.effect(prepared, here.next_tag())
        there.crdt.effect(arrived, there.next_tag())
        assert here.crdt.digest() == there.crdt.digest()
        restored = crdt.restore(here.crdt.snapshot())
        assert restored.snapshot() == here.crdt.snapshot()
        if accepted % 5 == 0:
            here.settle()
            there.settle()
    assert accepted >= 5


@each_type
def test_arriving_operation_takes_effect_or_changes_nothing(crdt: type[PureOpCRDT[Any]]) -> None:
    print("seed", crdt.TYPE)
    source = random.Random(crdt.TYPE)
    here = Member(crdt)
    refused = 0
    for (name, args), _ in zip(calls(crdt, source), range(600), strict=False):
        arriving: Any = source.choice([[name, *args], [name, *args, 1], *args[:1]])
        before = here.crdt.snapshot()
        try:
            here.crdt.effect(arriving, here.next_tag())
        except RemoteProtocolError as refusal:
            one_line(refusal)
            refused += 1
            assert here.crdt.snapshot() == before
        here.crdt.digest()
    assert refused >= 5


def damaged(source: random.Random, part: Any) -> Any:
    """The same, but for one part somewhere."""
    if isinstance(part, list) and part and source.random() < 0.9:
        at = source.randrange(len(part))
        return [*part[:at], damaged(source, part[at]), *part[at + 1 :]]
    if isinstance(part, dict) and part:
        key = source.choice(list(part))
        return {**part, key: damaged(source, part[key])}
    return source.choice([None, True, -1, 2**64 - 1, 0.5, "", "x", b"x", [], [1], {}, {"x": 1}])


def holding(crdt: type[PureOpCRDT[Any]]) -> PureOpCRDT[Any]:
    """With something stable and something that is not."""
    source = random.Random(1)
    member = Member(crdt)
    for (name, args), number in zip(calls(crdt, source), range(400), strict=False):
        try:
            member.crdt.effect(member.crdt.prepare(name, *args), member.next_tag())
        except InvalidOperationError:
            continue
        if number < 200:
            member.settle()
    return member.crdt


@each_type
def test_a_damaged_snapshot_is_refused_or_can_be_read(crdt: type[PureOpCRDT[Any]]) -> None:
    source = random.Random(crdt.TYPE)
    snapshot = holding(crdt).snapshot()
    for number in range(200):
        if number % 4:
            damage = msgpack.packb(damaged(source, msgpack.unpackb(snapshot)))
        else:
            at = source.randrange(len(snapshot))
            damage = snapshot[:at] + bytes([source.randrange(256)]) + snapshot[at + 1 :]
        try:
            restored = crdt.restore(damage)
        except UnusableInputError as refusal:
            assert "\n" not in str(refusal)
        else:
            goes_on(restored, source)


def goes_on(crdt: PureOpCRDT[Any], source: random.Random) -> None:
    """Whatever may happen to an object happens, and nothing of it raises."""
    crdt.site = Site("b", HLC(lambda: 0))
    messages = unstable_messages(crdt)
    past: dict[str, int] = {}
    for tag in messages:
        past = {**past, **tag.past}
        past[tag.dot.origin] = max(past.get(tag.dot.origin, 0), tag.dot.counter)
    mine = past.get("b", 0)
    for name, args in itertools.islice(calls(type(crdt), source), 20):
        with suppress(InvalidOperationError):
            prepared = crdt.prepare(name, *args)
            mine += 1
            messages.append(Tag(Dot("b", mine), (), {**past, "b": mine - 1}))
            crdt.effect(prepared, messages[-1])
    crdt.digest()
    if source.random() < 0.5:
        crdt.forget(Tag(Dot("b", mine + 1), (), {**past, "b": mine}))
    for tag in messages:
        crdt.stable(tag)
    crdt.digest()
    assert type(crdt).restore(crdt.snapshot()) == crdt


def unstable_messages(crdt: PureOpCRDT[Any]) -> list[Tag]:
    """The messages in its log, and in those of the objects in a map, by origin and number."""
    tags = {entry.tag.dot: entry.tag for entry in crdt.log}
    if isinstance(crdt, NestedMap):
        for held in crdt._objects.values():
            tags |= {tag.dot: tag for tag in unstable_messages(held)}
    return [tags[dot] for dot in sorted(tags)]


def test_maps_too_deep_to_follow_are_refused_on_arrival() -> None:
    operation: list[Any] = ["reset"]
    for _ in range(400):
        operation = ["update", "k", AWMap.TYPE, operation]
    board = AWMap()
    with pytest.raises(RemoteProtocolError, match="nested deeper than 32"):
        board.effect(operation, Tag(Dot("a", 1)))
    assert board.untouched


@pytest.mark.parametrize(
    ("crdt", "stable"),
    [
        (Number, "one"),
        (Number, "NaN"),
        (Number, 1),
        (SharedText, [[0, {}], [["a", 1, 0, 0, [True]]]]),
    ],
)
def test_invalid_stable_part_of_a_snapshot_is_refused(
    crdt: type[PureOpCRDT[Any]], stable: Any
) -> None:
    with pytest.raises(UnusableInputError, match="cannot restore"):
        crdt.restore(msgpack.packb([1, crdt.TYPE, 1, stable, {}]))


@pytest.mark.parametrize(
    ("crdt", "stable", "content"),
    [(Number, None, ["one"]), (PNCounter, 0, "1"), (LWWRegister, [], ["x"])],
)
def test_invalid_log_entry_of_a_snapshot_is_refused(
    crdt: type[PureOpCRDT[Any]], stable: Any, content: Any
) -> None:
    log = {"a": [[1, {}, [[0, None, content]]]]}
    with pytest.raises(UnusableInputError, match="cannot restore"):
        crdt.restore(msgpack.packb([1, crdt.TYPE, 1, stable, log]))


@pytest.mark.parametrize(
    ("value", "short"),
    [
        ("\ud800\n", r"'\ud800\n'"),
        (10**5000, "of 16610 bits"),
        ([10**5000], "[of 16610 bits]"),
        (deep(5000), "[[[[[[[...]]]]]]]"),
        (Loud(), "one line and another"),
        (["x" * 50] * 5, "['" + "x" * 50 + "', '" + "x" * 1 + "..."),
    ],
    ids=lambda value: type(value).__name__,
)
def test_any_value_can_be_shown_in_one_line(value: Any, short: str) -> None:
    assert shown(value) == short
