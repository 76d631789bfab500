"""What travels in a join and for a comparison, and the gate that holds back what is not synced."""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.commit.durability_barrier import DurabilityBarrier
from crdtcast.adapters.redis.deadlines.atoms import Deadline
from crdtcast.adapters.redis.store.databases import name_of
from crdtcast.adapters.redis.store.effects import NEVER, WHOLE, RedisType
from crdtcast.adapters.redis.store.slot_value import Atom, Only, Register
from crdtcast.adapters.redis.store.unstable import SlotLog
from crdtcast.adapters.redis.transfer.key_rows import Row, RowsPart
from crdtcast.adapters.redis.transfer.row_writes import commands_for
from crdtcast.adapters.redis.transfer.state_messages import Ending, Slice, States
from crdtcast.causality.messages import Digest, DigestKind, Transmit
from crdtcast.causality.tags import Dot
from crdtcast.exceptions import RemoteProtocolError

STRING, HASH, SET = RedisType.STRING, RedisType.HASH, RedisType.SET
WORDS = st.binary(max_size=4)
NAMES = st.builds(name_of, st.integers(0, 255), WORDS)
NUMBERS = st.integers(0, 2**60)
CONTENTS = st.fixed_dictionaries(
    {},
    optional={
        STRING: st.builds(lambda text: {WHOLE: text}, WORDS),
        HASH: st.dictionaries(WORDS, WORDS, min_size=1, max_size=3),
        SET: st.dictionaries(WORDS, st.just(b""), min_size=1, max_size=3),
        RedisType.DEADLINE: st.builds(lambda at: {WHOLE: b"%d" % at}, st.integers(0, NEVER)),
    },
)
SLOTS = st.dictionaries(st.sampled_from((HASH, SET)), st.lists(WORDS, max_size=3), max_size=2)
PARTS = st.builds(RowsPart, SLOTS, st.frozensets(st.sampled_from((STRING, HASH, SET))), st.just(0))
DOTS = st.builds(Dot, st.sampled_from(("a.1", "b.22", "")), NUMBERS)
ATOMS = st.builds(Atom, DOTS, NUMBERS)
REGISTERS = st.builds(Register, DOTS, NUMBERS, NUMBERS, WORDS)
DELTAS = st.integers(-(2**70), 2**70) | st.sampled_from((Fraction(1, 4), Fraction(-3, 2)))
LOGS = st.builds(
    SlotLog,
    st.dictionaries(WORDS, st.dictionaries(ATOMS, DELTAS, min_size=1, max_size=2), max_size=2),
    st.dictionaries(WORDS, st.lists(ATOMS | REGISTERS, min_size=1).map(tuple), max_size=2),
)
DEADLINES = st.builds(
    Deadline, st.integers(0, NEVER), NUMBERS, DOTS, NUMBERS, st.sampled_from(list(Only))
)
ROWS = st.lists(
    st.builds(Row, NAMES, CONTENTS, st.none() | PARTS)
    | st.builds(lambda k, text: Row(k, {STRING: {WHOLE: text}}, RowsPart(at=3)), NAMES, WORDS),
    max_size=4,
)
"""For a joiner."""
STATES = st.lists(
    st.builds(
        Row,
        NAMES,
        CONTENTS,
        st.none() | PARTS,
        st.just(""),
        st.dictionaries(st.sampled_from((STRING, HASH, SET)), LOGS, max_size=2),
        st.lists(DEADLINES, max_size=2).map(tuple),
    )
    | st.builds(lambda key, foreign: Row(key, None, foreign=foreign), NAMES, st.text(max_size=3)),
    max_size=4,
)
"""For a member."""
MESSAGES = st.one_of(
    st.builds(
        Slice,
        NUMBERS,
        NUMBERS,
        st.booleans(),
        ROWS,
        st.dictionaries(st.text(max_size=4), NUMBERS, max_size=2),
        st.lists(st.binary(max_size=4), max_size=2).map(tuple),
    ),
    st.builds(Ending, st.just(b"entry"), NUMBERS, ROWS),
    st.builds(
        States,
        st.dictionaries(st.text(max_size=4), NUMBERS, max_size=2),
        STATES,
        st.lists(NAMES, max_size=2),
        st.lists(NAMES, max_size=2),
    ),
)


@given(MESSAGES)
def test_state_messages_survive_encoding(message: Slice | Ending | States) -> None:
    assert type(message).decode(message.encode()) == message


def places(raw: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the fields of a message are."""
    inner = raw.items() if isinstance(raw, dict) else enumerate(raw)
    for place, field in inner:
        yield (*path, place)
        if isinstance(field, dict | list):
            yield from places(field, (*path, place))


_ROWS = {Slice: 5, Ending: 4, States: 3}
"""Where a message has its rows."""
OTHERS = [None, True, -1, 1.5, b"\xff", "x", [], {}, [None], {None: None}]
"""What stands in the place of a field."""


@given(MESSAGES, st.data())
def test_a_row_with_a_field_of_another_type_is_refused(
    message: Slice | Ending | States, data: st.DataObject
) -> None:
    raw = msgpack.unpackb(message.encode(), strict_map_key=False)
    *path, last = data.draw(st.sampled_from(sorted(places(raw), key=repr)))
    inner = raw
    for place in path:
        inner = inner[place]
    right = inner[last]
    inner[last] = data.draw(
        st.sampled_from([x for x in OTHERS if x == -1 or type(x) is not type(right)])
    )
    try:
        again = type(message).decode(msgpack.packb(raw))
    except RemoteProtocolError:
        return
    assert again != message
    assert path[:-1] == [_ROWS[type(message)]]
    assert (last, inner[last]) in ((1, "x"), (2, None)), (
        "foreign instead of a value, all instead of a part"
    )


@given(MESSAGES, st.data())
def test_damaged_bytes_are_a_message_or_refused(
    message: Slice | Ending | States, data: st.DataObject
) -> None:
    raw = bytearray(message.encode())
    place = data.draw(st.integers(0, len(raw) - 1))
    match data.draw(st.sampled_from(("change", "cut", "repeat"))):
        case "change":
            raw[place] ^= data.draw(st.integers(1, 255))
        case "cut":
            del raw[place:]
        case "repeat":
            raw[place:place] = raw[: data.draw(st.integers(1, len(raw)))]
    try:
        again = type(message).decode(bytes(raw))
    except RemoteProtocolError:
        return
    assert type(message).decode(again.encode()) == again


@given(st.binary(max_size=40))
def test_invalid_message_is_refused(raw: bytes) -> None:
    for kind in (Slice, Ending, States):
        with pytest.raises(RemoteProtocolError):
            kind.decode(raw)


@pytest.mark.parametrize(
    "row",
    [
        Row(b"\xff", {}),
        Row(b"\xff\0k", {SET: {b"x": b""}}, RowsPart()),
        Row(b"k", {SET: {b"x": b""}}, RowsPart(at=3)),
        Row(b"k", {STRING: {b"slot": b"x"}}),
        Row(b"k", {RedisType.DEADLINE: {b"slot": b"5"}}),
        Row(b"k", {RedisType.DEADLINE: {WHOLE: b"5 "}}),
        Row(b"k", {RedisType.DEADLINE: {WHOLE: b"%d" % (NEVER + 1)}}),
        Row(b"k", {SET: {}}),
        Row(b"k", {}, deadlines=(Deadline(NEVER + 1, 1, Dot("a", 1), 0, Only.ALWAYS),)),
    ],
    ids=repr,
)
def test_impossible_row_is_refused(row: Row) -> None:
    """A name of no key, a part of a value that has none, a slot of a type that has one, a deadline that is none."""
    with pytest.raises(RemoteProtocolError):
        States.decode(States({}, [row]).encode())


def test_a_joiner_takes_no_row_that_is_for_members_only() -> None:
    log = {SET: SlotLog(None, {b"x": (Atom(Dot("a", 1), 0),)})}
    for row in (Row(b"k", None), Row(b"k", {}, log=log)):
        assert States.decode(States({}, [row]).encode()).rows == [row]
        with pytest.raises(RemoteProtocolError, match="members only"):
            Slice.decode(Slice(0, 1, True, [row], {}).encode())


def test_message_of_another_version_is_refused() -> None:
    good = Slice(0, 1, True, [Row(b"k", {STRING: {WHOLE: b"1"}})], {}).encode()
    with pytest.raises(RemoteProtocolError, match="keys' of format level 2"):
        Slice.decode(good.replace(b"crdtcast keys\x01", b"crdtcast keys\x02"))


def test_copied_values_replace_old_and_hidden_ones() -> None:
    hiding: dict[bytes, set[RedisType]] = {}
    first = list(
        commands_for(
            [Row(b"k", {RedisType.STRING: {WHOLE: b"5"}, RedisType.SET: {b"m": b""}})], 15, hiding
        )
    )
    assert first == [
        [b"DEL", b"k"],
        [b"SELECT", b"15"],
        [b"DEL", b"hidden:set:k"],
        [b"SELECT", b"0"],
        [b"SET", b"k", b"5"],
        [b"SELECT", b"15"],
        [b"SADD", b"hidden:set:k", b"m"],
        [b"SELECT", b"0"],
    ]
    assert hiding == {b"k": {RedisType.SET}}
    again = list(commands_for([Row(b"k", {RedisType.SET: {b"a": b"", b"b": b""}})], 15, hiding))
    assert again == [
        [b"DEL", b"k"],
        [b"SELECT", b"15"],
        [b"DEL", b"hidden:set:k"],
        [b"SELECT", b"0"],
        [b"SADD", b"k", b"a", b"b"],
    ]
    assert not hiding


def test_pages_of_a_large_key_add_up() -> None:
    rows = [
        Row(b"k", {}),
        Row(b"k", {STRING: {WHOLE: b"abc"}}, RowsPart()),
        Row(b"k", {STRING: {WHOLE: b"de"}}, RowsPart(at=3)),
        Row(b"k", {SET: {b"x": b""}}, RowsPart({SET: [b"y"]}, frozenset((SET,)))),
    ]
    assert Slice.decode(Slice(0, 1, False, rows, {}).encode()).rows == rows
    hiding: dict[bytes, set[RedisType]] = {}
    assert list(commands_for(rows, 15, hiding)) == [
        [b"DEL", b"k"],
        [b"SETRANGE", b"k", b"0", b"abc"],
        [b"SETRANGE", b"k", b"3", b"de"],
        [b"SELECT", b"15"],
        [b"SADD", b"hidden:set:k", b"x"],
        [b"SREM", b"hidden:set:k", b"y"],
        [b"SELECT", b"0"],
    ]
    assert hiding == {b"k": {SET}}
    elsewhere = name_of(3, b"\xffk")
    assert list(commands_for([Row(elsewhere, {SET: {b"x": b""}}, RowsPart())], 15, {})) == [
        [b"SELECT", b"3"],
        [b"SADD", b"\xffk", b"x"],
        [b"SELECT", b"0"],
    ]


def effect(name: str) -> Transmit:
    return Transmit(name, Digest(DigestKind.NEWS, {}, {}, 0))


def test_messages_wait_until_their_commit_is_synced() -> None:
    sent: list[str | None] = []

    def transmit(effects: Iterable[Transmit]) -> None:
        sent.extend(each.to for each in effects)

    gate = DurabilityBarrier(transmit)
    gate.add([effect("0")], 0)
    gate.release()
    assert sent == ["0"]
    gate.add([effect("1"), effect("1")], 1)
    gate.add([], 2)
    gate.add([effect("2")], 2)
    gate.release()
    assert sent == ["0"]
    assert not gate.is_releasing
    gate.synced(1)
    assert gate.is_releasing
    gate.release()
    assert sent == ["0", "1", "1"]
    gate.synced(0)
    gate.add([effect("3")], 3)
    gate.synced(3)
    gate.release()
    assert sent == ["0", "1", "1", "2", "3"]
    gate.add([effect("lost")], 4)
    gate.begin(3)
    gate.synced(4)
    gate.release()
    assert sent[-1] == "3"
