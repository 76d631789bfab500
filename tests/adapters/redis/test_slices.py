"""What travels in a join, and the gate that holds back what is not synced."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.adapters.redis.databases import name_of
from crdtcast.adapters.redis.effects import WHOLE, RedisType
from crdtcast.adapters.redis.gate import Gate
from crdtcast.adapters.redis.slices import Ending, Row, Slice, commands_for
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.messages import Digest, DigestKind, Transmit

WORDS = st.binary(max_size=4)
ROWS = st.lists(
    st.builds(
        Row,
        st.builds(name_of, st.integers(0, 255), WORDS),
        st.fixed_dictionaries(
            {},
            optional={
                RedisType.STRING: st.builds(lambda text: {WHOLE: text}, WORDS),
                RedisType.SET: st.dictionaries(WORDS, st.just(b""), min_size=1, max_size=3),
            },
        ),
        st.just(0),
    ),
    max_size=4,
)


@given(
    place=st.integers(0, 9),
    total=st.integers(0, 9),
    done=st.booleans(),
    rows=ROWS,
    left_out=st.dictionaries(st.text(max_size=4), st.integers(0, 9), max_size=2),
)
def test_slices_travel_as_they_are(
    place: int, total: int, done: bool, rows: list[Row], left_out: dict[str, int]
) -> None:
    slice_ = Slice(place, total, done, rows, left_out)
    assert Slice.decode(slice_.encode()) == slice_


@given(clock=st.integers(0, 2**60), rows=ROWS)
def test_endings_travel_as_they_are(clock: int, rows: list[Row]) -> None:
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


def test_pages_of_a_text_are_written_behind_each_other() -> None:
    rows = [
        Row(b"k", {RedisType.STRING: {WHOLE: b"abc"}}),
        Row(b"k", {RedisType.STRING: {WHOLE: b"de"}}, 3),
    ]
    assert Slice.decode(Slice(0, 1, False, rows, {}).encode()).rows == rows
    assert list(commands_for(rows, 15, {})) == [
        (b"DEL", b"k"),
        (b"SET", b"k", b"abc"),
        (b"SETRANGE", b"k", b"3", b"de"),
    ]
    page = Row(b"k", {RedisType.SET: {b"x": b""}}, 3)
    with pytest.raises(RemoteProtocolError):
        Slice.decode(Slice(0, 1, False, [page], {}).encode())


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
