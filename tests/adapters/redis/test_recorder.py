"""What the event log says of a key's value: only what was read."""

import json
from collections.abc import Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.compare.digests import key_digest
from crdtcast.adapters.redis.ops.held_log import HeldLog
from crdtcast.adapters.redis.ops.recorder import Read, Recorder
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store.effects import WHOLE, RedisType
from crdtcast.adapters.redis.types.sets import Set
from crdtcast.adapters.redis.types.strings import String
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot
from crdtcast.eventlog.writer import EventLog
from crdtcast.exceptions import ServerError

WRONG_TYPE = ReplyError("WRONGTYPE")


class Told:
    """Stands for an event log."""

    seq = 0

    def __init__(self) -> None:
        self.states: list[tuple[bytes, str]] = []

    def state(self, key: bytes, vector: object, digest: str) -> None:
        self.states.append((key, digest))


def reads_of_a_quiet_set(log: Told) -> tuple[Recorder, list[Read]]:
    """The reads of key `s` and the recorder that asked for them. A second passes each time the clock is read."""
    recorder = Recorder(
        log,  # type: ignore[arg-type]
        clock=count(0.0, 1.0).__next__,
        metadata_db=15,
        store_bytes=lambda: (0, 0),
    )
    recorder.keyspace.types[b"s"] = Set.here
    recorder.touch_again(b"s")
    (size,) = recorder.reads()
    size[1](1)
    return recorder, recorder.reads()


@pytest.mark.parametrize(
    ("replies", "told"),
    [
        ([-1, [b"x"]], {RedisType.SET: {b"x": b""}}),
        ([-2, []], {}),
        ([ServerError("the connection broke")] * 2, None),
        ([-1, ServerError("the connection broke")], None),
        ([-1, WRONG_TYPE], None),
    ],
)
def test_unread_value_is_not_logged(replies: Sequence[object], told: Any) -> None:
    log = Told()
    _, reads = reads_of_a_quiet_set(log)
    names = [command[0] for command, _ in reads]
    assert names == [b"PEXPIRETIME", b"SMEMBERS"]
    for (_, take), reply in zip(reads, replies, strict=True):
        take(reply)
    assert log.states == ([] if told is None else [(b"s", key_digest(b"s", told))])


@pytest.mark.parametrize(
    ("replies", "told"),
    [
        ([-1, b"text", *[WRONG_TYPE] * 3], {RedisType.STRING: {WHOLE: b"text"}}),
        ([-1, *[WRONG_TYPE] * 4], None),
    ],
    ids=["a text", "a type of no gateway"],
)
def test_value_of_an_unexpected_type_is_read_as_a_whole(
    replies: Sequence[object], told: Any
) -> None:
    log = Told()
    recorder, reads = reads_of_a_quiet_set(log)
    for (_, take), reply in zip(reads, [-1, WRONG_TYPE], strict=True):
        take(reply)
    reads = recorder.reads()
    names = [command[0] for command, _ in reads]
    assert names == [b"PEXPIRETIME", b"GET", b"HGETALL", b"ZRANGE", b"SMEMBERS"]
    for (_, take), reply in zip(reads, replies, strict=True):
        take(reply)
    assert log.states == ([] if told is None else [(b"s", key_digest(b"s", told))])
    assert recorder.reads() == []


def test_key_that_hides_a_type_since_its_reads_is_logged_later() -> None:
    log = Told()
    recorder, reads = reads_of_a_quiet_set(log)
    recorder.keyspace.hidden[b"s"] = {RedisType.SET}  # a string has come with the same commit
    recorder.keyspace.types[b"s"] = String.here
    for (_, take), reply in zip(reads, [-1, WRONG_TYPE], strict=True):
        take(reply)
    assert not log.states
    reads = recorder.reads()
    replies = [-1, b"text", *[WRONG_TYPE] * 3, b"OK", [b"x"], b"OK"]
    for (_, take), reply in zip(reads, replies, strict=True):
        take(reply)
    both = {RedisType.STRING: {WHOLE: b"text"}, RedisType.SET: {b"x": b""}}
    assert log.states == [(b"s", key_digest(b"s", both))]


def test_stable_messages_are_kept_until_their_lines_are_synced(tmp_path: Path) -> None:
    first, second = Dot("a.1", 1), Dot("a.1", 2)
    log = HeldLog(tmp_path, group="g", replica="a", incarnation="a.1", clock_us=lambda: 0)
    with closing(log):
        recorder = Recorder(log, clock=lambda: 0.0, metadata_db=15, store_bytes=lambda: (0, 0))
        log.number = 1
        assert recorder.forgettable([first]) == [] and not recorder.has_forgettable
        log.number = 2
        assert recorder.forgettable([second]) == []
        recorder.synced(1)
        assert recorder.has_forgettable and recorder.forgettable([]) == [first]
        log.stable(first)
        recorder.synced(2)
        assert not recorder.has_forgettable, "the line is buffered only"
        recorder.flush()
        assert recorder.forgettable([]) == [second] and not recorder.has_forgettable


def test_late_stable_messages_are_kept_until_written(tmp_path: Path) -> None:
    """The process before this one has not written their lines, and this one may die as early."""
    late = Dot("b.1", 1)
    log = HeldLog(tmp_path, group="g", replica="a", incarnation="a.1", clock_us=lambda: 0)
    with closing(log):
        recorder = Recorder(log, clock=lambda: 0.0, metadata_db=15, store_bytes=lambda: (0, 0))
        log.number = 7  # commits of this process to a server that it has lost
        recorder.begin(
            log,
            recorder.keyspace,
            incarnation="a.1",
            members=["a.1", "b.1"],
            vector={"b.1": 1},
            stable={"b.1": 1},
            stored=[Message(late, (), b"")],
            reported=[],
            level=1,
        )
        assert recorder.forgettable([]) == [] and not recorder.has_forgettable
        recorder.synced(7)
        assert recorder.forgettable([]) == [], "the lines are buffered only"
        recorder.flush()
        assert recorder.forgettable([]) == [late]


def test_missing_lines_are_written_in_the_order_of_delivery(tmp_path: Path) -> None:
    """A message that is stable already may have been delivered behind one that is not."""
    mine, other, next_ = Dot("a.1", 1), Dot("b.1", 1), Dot("a.1", 2)
    stored = [
        Message(mine, (), b""),
        Message(other, (), b""),
        Message(next_, (mine, other), b""),
    ]
    log = EventLog(tmp_path, group="g", replica="a", incarnation="a.1", clock_us=lambda: 0)
    with closing(log):
        log.start({}, ["a.1", "b.1"], {}, 1)
        recorder = Recorder(log, clock=lambda: 0.0, metadata_db=15, store_bytes=lambda: (0, 0))
        recorder.begin(
            log,
            recorder.keyspace,
            incarnation="a.1",
            members=["a.1", "b.1"],
            vector={"a.1": 2, "b.1": 1},
            stable={"b.1": 1},
            stored=stored,
            reported=[],
            level=1,
        )
    (path,) = tmp_path.glob("*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    told = [
        Dot(line["origin"], line["counter"])
        for line in lines
        if line["kind"] in ("SEND", "DELIVER")
    ]
    assert told == [mine, other, next_]
