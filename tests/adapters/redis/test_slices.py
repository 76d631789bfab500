"""What travels in a join, and the gate that holds back what is not synced."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.databases import name_of
from crdtcast.adapters.redis.effects import NEVER, WHOLE, RedisType
from crdtcast.adapters.redis.gate import Gate
from crdtcast.adapters.redis.slices import Ending, Part, Patch, Row, Slice, commands_for
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.messages import Digest, DigestKind, Transmit

WORDS = st.binary(max_size=4)
NAMES = st.builds(name_of, st.integers(0, 255), WORDS)
CONTENTS = st.fixed_dictionaries(
    {},
    optional={
        RedisType.STRING: st.builds(lambda text: {WHOLE: text}, WORDS),
        RedisType.SET: st.dictionaries(WORDS, st.just(b""), min_size=1, max_size=3),
    },
)
PATCHES = st.builds(
    Patch,
    NAMES,
    st.sampled_from((RedisType.STRING, RedisType.SET)),
    CONTENTS,
    st.dictionaries(st.just(RedisType.HASH), st.lists(WORDS, max_size=3), max_size=1),
    st.just(0),
    st.sampled_from((NEVER, 5)),
)
ROWS = st.lists(st.builds(Row, NAMES, CONTENTS) | PATCHES, max_size=4)


@given(
    place=st.integers(0, 9),
    total=st.integers(0, 9),
    done=st.booleans(),
    rows=ROWS,
    left_out=st.dictionaries(st.text(max_size=4), st.integers(0, 9), max_size=2),
)
def test_slices_travel_as_they_are(
    place: int, total: int, done: bool, rows: list[Part], left_out: dict[str, int]
) -> None:
    slice_ = Slice(place, total, done, rows, left_out)
    assert Slice.decode(slice_.encode()) == slice_


@given(clock=st.integers(0, 2**60), rows=ROWS)
def test_endings_travel_as_they_are(clock: int, rows: list[Part]) -> None:
    ending = Ending(b"entry", clock, rows)
    assert Ending.decode(ending.encode()) == ending


@given(st.binary(max_size=40))
def test_anything_else_is_refused(raw: bytes) -> None:
    for kind in (Slice, Ending):
        with pytest.raises(RemoteProtocolError):
            kind.decode(raw)


def test_of_another_version_nothing_is_taken() -> None:
    good = Slice(0, 1, True, [Row(b"k", {RedisType.STRING: {WHOLE: b"1"}})], {}).encode()
    with pytest.raises(RemoteProtocolError, match="keys' of format level 2"):
        Slice.decode(good.replace(b"crdtcast keys\x01", b"crdtcast keys\x02"))


def test_values_replace_what_was_there_hidden_ones_too() -> None:
    hiding: dict[bytes, set[RedisType]] = {}
    first = list(
        commands_for(
            [Row(b"k", {RedisType.STRING: {WHOLE: b"5"}, RedisType.SET: {b"m": b""}})], 15, hiding
        )
    )
    assert first == [
        (b"DEL", b"k"),
        (b"SET", b"k", b"5"),
        (b"SELECT", b"15"),
        (b"DEL", b"hidden:set:k"),
        (b"SADD", b"hidden:set:k", b"m"),
        (b"SELECT", b"0"),
    ]
    assert hiding == {b"k": {RedisType.SET}}
    again = list(commands_for([Row(b"k", {RedisType.SET: {b"a": b"", b"b": b""}})], 15, hiding))
    assert again == [
        (b"DEL", b"k"),
        (b"SADD", b"k", b"a", b"b"),
        (b"SELECT", b"15"),
        (b"DEL", b"hidden:set:k"),
        (b"SELECT", b"0"),
    ]
    assert not hiding


def test_pages_of_a_large_key_are_written_beside_each_other() -> None:
    string, set_ = RedisType.STRING, RedisType.SET
    rows: list[Part] = [
        Row(b"k", {}),
        Patch(b"k", string, {string: {WHOLE: b"abc"}}),
        Patch(b"k", string, {string: {WHOLE: b"de"}}, at=3),
        Patch(b"k", string, {set_: {b"x": b""}}, {set_: [b"y"]}),
    ]
    assert Slice.decode(Slice(0, 1, False, rows, {}).encode()).rows == rows
    hiding: dict[bytes, set[RedisType]] = {}
    assert list(commands_for(rows, 15, hiding)) == [
        (b"DEL", b"k"),
        [b"SETRANGE", b"k", b"0", b"abc"],
        [b"SETRANGE", b"k", b"3", b"de"],
        (b"SELECT", b"15"),
        [b"SADD", b"hidden:set:k", b"x"],
        (b"SREM", b"hidden:set:k", b"y"),
        (b"SELECT", b"0"),
    ]
    assert hiding == {b"k": {set_}}
    elsewhere = name_of(3, b"\xffk")
    assert list(commands_for([Patch(elsewhere, set_, {set_: {b"x": b""}})], 15, {})) == [
        (b"SELECT", b"3"),
        [b"SADD", b"\xffk", b"x"],
        (b"SELECT", b"0"),
    ]
    page = Patch(b"k", set_, {set_: {b"x": b""}}, at=3)
    with pytest.raises(RemoteProtocolError):
        Slice.decode(Slice(0, 1, False, [page], {}).encode())
    for part in (Row(b"\xff", {}), Patch(b"\xff\0k", set_, {})):  # names of no key
        with pytest.raises(RemoteProtocolError):
            Slice.decode(Slice(0, 1, False, [part], {}).encode())


def effect(name: str) -> Transmit:
    return Transmit(name, Digest(DigestKind.NEWS, {}, {}, 0))


def test_what_rests_on_a_commit_waits_until_that_is_synced() -> None:
    sent: list[str | None] = []

    def transmit(effects: Iterable[Transmit]) -> None:
        sent.extend(each.to for each in effects)

    gate = Gate(transmit)
    gate.add([effect("0")], 0)
    gate.release()
    assert sent == ["0"]
    gate.add([effect("1"), effect("1")], 1)
    gate.add([], 2)
    gate.add([effect("2")], 2)
    gate.release()
    assert sent == ["0"]
    gate.synced(1)
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
