"""The event log writer against real files: columns, rotation, torn lines, a disk that fills up."""

import errno
import json
import os
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import GroupEngine
from crdtcast.engine.operations import Join, encode
from crdtcast.eventlog import owner
from crdtcast.eventlog.format import COLUMNS, Event, EventKind, LoggedCut, LoggedView
from crdtcast.eventlog.group_log import GroupLog
from crdtcast.eventlog.writer import EventLog, LogTail, Privacy, Rotation
from crdtcast.exceptions import ConfigurationError, UnusableInputError
from tests.log_reader import LogReader

ME, OTHER = "a.000000000001", "b.000000000001"


class Clock:
    """Microseconds that pass only when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def opened(directory: Path, **options: object) -> EventLog:
    settings: dict[str, object] = {
        "group": "g",
        "replica": "a",
        "incarnation": ME,
        "clock_us": Clock(),
    }
    return EventLog(directory, **{**settings, **options})  # type: ignore[arg-type]


def test_only_this_user_may_read_a_log(tmp_path: Path) -> None:
    log = opened(tmp_path / "logs")
    log.start({}, ["a"])
    log.flush()
    owner, segment = sorted((tmp_path / "logs").iterdir())
    modes = [path.stat().st_mode & 0o777 for path in (owner, segment, segment.parent)]
    assert modes == [0o600, 0o600, 0o700]


def events(directory: Path) -> list[Event]:
    reader = LogReader(directory)
    result = list(reader)
    assert reader.torn == 0
    return result


def names(directory: Path) -> list[str]:
    """Of the segments; what is hidden tells whose the log is."""
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def test_every_event_kind_survives_the_log(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.start({OTHER: 2, ME: 0}, ["b", "a"], stable={OTHER: 1})
    log.send(Tag(Dot(ME, 1), (Dot(OTHER, 2),)))
    log.deliver(Dot(OTHER, 3))
    log.stable(Dot(OTHER, 2))
    log.state("cart:ä", {OTHER: 3, ME: 0}, "d1g")
    log.gc(900, 100, 3)
    log.stop(unstable=2)

    told = events(tmp_path)
    assert [event.seq for event in told] == list(range(1, 9))
    assert {(e.version, e.group, e.replica, e.incarnation, e.ts) for e in told} == {
        (1, "g", "a", ME, 1_000_000)
    }
    first, start, send, deliver, stable, state, gc, stop = told
    assert (first.kind, first.vector, json.loads(first.op or "")) == (
        EventKind.SEGMENT,
        {},
        ["a", "b"],
    )
    assert (start.kind, start.vector, start.deps) == (EventKind.START, {OTHER: 2}, (Dot(OTHER, 1),))
    assert (send.kind, send.dot, send.deps, send.op) == (
        EventKind.SEND,
        Dot(ME, 1),
        (Dot(OTHER, 2),),
        None,
    )
    assert (deliver.kind, deliver.dot) == (EventKind.DELIVER, Dot(OTHER, 3))
    assert (stable.kind, stable.dot) == (EventKind.STABLE, Dot(OTHER, 2))
    assert (state.object, state.vector, state.digest) == ("cart:ä", {OTHER: 3}, "d1g")
    assert (gc.bytes_before, gc.bytes_after, gc.entries) == (900, 100, 3)
    assert (stop.kind, stop.entries) == (EventKind.STOP, 2)
    assert names(tmp_path) == [f"g--a--{ME}--000000000001.jsonl"]
    assert len(COLUMNS) == 29


@pytest.mark.parametrize("buffer_bytes", [2**20, 700])
def test_lines_written_together_equal_lines_written_singly(
    tmp_path: Path, buffer_bytes: int
) -> None:
    """Also where a segment begins with them, and where the buffer has no room for all."""
    logs = [
        opened(tmp_path / name, rotation=Rotation(size=1500), buffer_bytes=buffer_bytes)
        for name in ("single", "several")
    ]
    for log in logs:
        log.start({}, [ME, OTHER])
    for n in range(0, 40, 4):
        dots = [Dot(origin, n + i) for i in range(1, 5) for origin in (OTHER, "c.000000000001")]
        single, several = logs
        for dot in dots:
            single.deliver(dot)
        for dot in dots:
            single.stable(dot)
        several.deliver_all(dots)
        several.stable_all(dots)
        several.stable_all([])
        for log in logs:
            log.flush()
        assert single.vector == several.vector
        assert single.told_stable == several.told_stable
    for log in logs:
        log.stop()
    told = [events(tmp_path / name) for name in ("single", "several")]
    assert told[0] == told[1]
    assert len(told[0]) > 160
    if buffer_bytes > 700:
        assert names(tmp_path / "single") == names(tmp_path / "several")


def test_membership_changes_and_resends_are_logged(tmp_path: Path) -> None:
    third = "c.000000000002+b.000000000001+4"
    log = opened(tmp_path)
    log.start({}, [ME, OTHER])
    log.deliver(Dot(OTHER, 4))
    log.joined(third, Dot(OTHER, 4), replaces=["c.000000000001"])
    log.send(Tag(Dot(ME, 1)), reissues=Dot("a.000000000000", 7))
    log.left(Dot(OTHER, 5))
    log.evicted(third, 3)
    log.close()
    log.joined(third, Dot(OTHER, 4))
    log.close()

    _, start, _, join, send, left, evict, segment, again = events(tmp_path)
    assert json.loads(start.op or "") == [ME, OTHER]
    assert (join.kind, join.dot, join.member, join.replaces) == (
        EventKind.JOIN,
        Dot(OTHER, 4),
        third,
        ("c.000000000001",),
    )
    assert (send.kind, send.dot, send.reissues) == (
        EventKind.SEND,
        Dot(ME, 1),
        ("a.000000000000", 7),
    )
    assert (left.kind, left.dot) == (EventKind.LEFT, Dot(OTHER, 5))
    assert (evict.kind, evict.dot) == (EventKind.EVICT, Dot(third, 3))
    assert json.loads(segment.op or "") == [ME], "a segment begins with the members of that time"
    assert (again.member, again.replaces) == (third, None)
    assert EventLog.recover(tmp_path, "a").vector == {OTHER: 4, ME: 1}


def test_view_is_logged_and_recovered(tmp_path: Path) -> None:
    third, fourth = "c.000000000002", "d.000000000003"
    founded = LoggedView(0, "aa", (ME, OTHER, third), 1)
    changed = LoggedView(1, "bb", (ME, OTHER, fourth), 2)
    cuts = [LoggedCut(third, 3, "forced"), LoggedCut("e.000000000004", 9, "left")]
    log = opened(tmp_path)
    log.start({}, [ME, OTHER, third, fourth], view=founded)
    log.send(Tag(Dot(ME, 1)))
    log.decided(changed, "aa", cuts=cuts, out=[third], votes=[fourth], level=2, forced=True)
    log.flush()
    tail = EventLog.recover(tmp_path, "a")
    # Of those who were no members here, or are none any more, nothing is to come.
    assert (tail.view, tail.cuts) == (changed, {third: cuts[0]})
    log.close()
    log.evicted(third, 3, forced=True)
    log.close()

    _, start, _, view, segment, evicted = events(tmp_path)
    assert (start.logged_view, start.cuts) == (founded, ())
    assert (view.epoch, view.view, view.before, view.level) == (1, "bb", "aa", 2)
    assert (view.cuts, view.out, view.votes, view.sent) == (tuple(cuts), (third,), (fourth,), 1)
    assert view.is_forced and evicted.is_forced
    assert (segment.logged_view, segment.cuts) == (changed, (cuts[0],))
    tail = EventLog.recover(tmp_path, "a")
    assert (tail.view, tail.cuts, tail.members) == (changed, {}, (ME, OTHER, fourth))


@pytest.mark.parametrize(
    ("privacy", "object_", "op"),
    [
        (Privacy.OFF, None, None),
        (Privacy.FULL, "k", '[["k",["add","\\\\xff"]],["k",["clear"]]]'),
        (Privacy.HASHED, "hash", "hashes"),
    ],
)
def test_privacy_decides_how_operations_are_logged(
    tmp_path: Path, privacy: Privacy, object_: str | None, op: str | None
) -> None:
    log = opened(tmp_path, privacy=privacy)
    log.send(Tag(Dot(ME, 1)), [("k", ["add", b"\xff"]), (b"k", ["clear"])])
    log.state("k", {ME: 1}, "d")
    log.close()
    _, send, state = events(tmp_path)
    if privacy is Privacy.HASHED:
        pairs = json.loads(send.op or "")
        assert len({pairs[0][0], pairs[1][0], send.object, state.object}) == 1
        assert len(pairs[0][1]) == 32 and pairs[0][1] != pairs[1][1]
        assert "add" not in (send.op or "") and state.object != "k"
    else:
        assert (send.object, send.op, state.object) == (object_, op, "k")


def test_segments_rotate_by_size_and_each_sums_up_those_before(tmp_path: Path) -> None:
    log = opened(tmp_path, rotation=Rotation(size=1000))
    log.start({}, ["a", "b"])
    for counter in range(1, 41):
        log.deliver(Dot(OTHER, counter))
        if counter % 3 == 0:
            log.stable(Dot(OTHER, counter - 2))
        log.flush()
    files = names(tmp_path)
    assert len(files) > 3 and [name.endswith(".open") for name in files] == [False] * (
        len(files) - 1
    ) + [True]
    log.close()
    told = events(tmp_path)
    assert [event.seq for event in told] == list(range(1, len(told) + 1))
    for name in names(tmp_path)[1:]:
        first = json.loads((tmp_path / name).read_text().splitlines()[0])
        assert first["kind"] == "SEGMENT" and first["seq"] == int(name.split("--")[3].split(".")[0])
        before = [e for e in told if e.seq < first["seq"] and e.kind == EventKind.DELIVER]
        assert first["vector"] == {OTHER: before[-1].counter}


def test_segments_rotate_by_age_even_when_nothing_happens(tmp_path: Path) -> None:
    clock = Clock()
    log = opened(tmp_path, clock_us=clock, rotation=Rotation(seconds=10))
    log.start({}, ["a"])
    log.flush()
    clock.now += 9_999_999
    log.flush()
    assert names(tmp_path)[0].endswith(".open")
    clock.now += 1
    log.flush()
    assert names(tmp_path) == [f"g--a--{ME}--000000000001.jsonl"]


@pytest.mark.parametrize(
    "torn", [b'{"version":1,"gro', b"\x00\x00\x00", b"{}\n[1]\nnull\n{", b'{"a":1}\n']
)
def test_recovery_cuts_torn_lines_and_a_restarted_node_goes_on(tmp_path: Path, torn: bytes) -> None:
    log = opened(tmp_path)
    log.start({OTHER: 7}, ["a", "b"], stable={OTHER: 6})
    log.send(Tag(Dot(ME, 1), (Dot(OTHER, 7),)))
    log.close()
    log.deliver(Dot(OTHER, 8))
    log.stable(Dot(OTHER, 7))
    log.flush()
    last = tmp_path / names(tmp_path)[-1]
    assert last.name.endswith(".open")
    whole = last.read_bytes()
    with open(last, "ab") as segment:
        segment.write(torn)
    reader = LogReader(tmp_path)
    assert max(event.seq for event in reader) == log.seq
    assert reader.torn == len(torn.splitlines())

    tail = EventLog.recover(tmp_path, "a")
    members = ("a", "b")
    assert tail == LogTail(
        ME, log.seq, {OTHER: 8, ME: 1}, {OTHER: 7}, len(torn.splitlines()), members
    )
    assert (tmp_path / names(tmp_path)[-1]).read_bytes() == whole
    assert EventLog.recover(tmp_path, "a") == LogTail(
        ME, log.seq, tail.vector, tail.stable, members=members
    )

    again = opened(tmp_path)
    again.start({OTHER: 9, ME: 1}, ["a", "b"])
    again.stop()
    told = events(tmp_path)
    assert [event.seq for event in told] == list(range(1, len(told) + 1))
    assert told[-3].vector == {OTHER: 8, ME: 1} and told[-3].deps == (Dot(OTHER, 7),)


def test_a_new_incarnation_counts_from_one_and_is_the_newest(tmp_path: Path) -> None:
    for incarnation in (ME, "a.000000000002"):
        log = opened(tmp_path, incarnation=incarnation)
        log.start({ME: 5}, ["a"])
        log.flush()
    tail = EventLog.recover(tmp_path, "a", group="g")
    assert (tail.incarnation, tail.seq, tail.vector) == ("a.000000000002", 2, {ME: 5})
    assert all(name.endswith(".jsonl") for name in names(tmp_path))
    older = EventLog.recover(tmp_path, "a", group="g", incarnation=ME)
    assert (older.incarnation, older.vector) == (ME, {ME: 5})
    assert EventLog.recover(tmp_path, "a", group="g", incarnation="a.3") == LogTail()


def test_recovered_tail_knows_the_members(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.start({}, [ME, OTHER, "c.1"])
    log.send(Tag(Dot(ME, 1), ()))
    log.joined("d.1", Dot(ME, 1))
    log.evicted(OTHER, 4)
    log.left(Dot("c.1", 2))
    log.flush()
    assert EventLog.recover(tmp_path, "a").members == (ME, "d.1")


@pytest.mark.parametrize("op", ["{", "7", "[[]]", "[" * 100_000])
def test_invalid_member_list_recovers_no_members(tmp_path: Path, op: str) -> None:
    log = opened(tmp_path)
    log.start({}, [ME])
    log.flush()
    (segment,) = tmp_path.glob("*.open")
    row = json.loads(segment.read_text().splitlines()[-1])
    with open(segment, "a") as lines:
        lines.write(json.dumps({**row, "seq": row["seq"] + 1, "op": op}) + "\n")
    assert EventLog.recover(tmp_path, "a").members == ()


def test_logs_of_other_replicas_are_left_unchanged(tmp_path: Path) -> None:
    for group, replica in (("g", "x--a"), ("g--x", "a"), ("ö/g", "a"), ("g", "b")):
        log = opened(tmp_path, group=group, replica=replica, incarnation=f"{replica}.01")
        log.start({}, ["a"])
        log.flush()
    assert EventLog.recover(tmp_path, "a", group="g") == LogTail()
    assert all(name.endswith(".open") for name in names(tmp_path))
    assert EventLog.recover(tmp_path, "a", group="ö/g").seq == 2
    assert EventLog.recover(tmp_path / "absent", "a") == LogTail()


def test_an_open_segment_without_a_whole_line_disappears(tmp_path: Path) -> None:
    path = tmp_path / f"g--a--{ME}--000000000001.jsonl.open"
    path.write_bytes(b'{"version":')
    assert EventLog.recover(tmp_path, "a") == LogTail(torn=1)
    assert names(tmp_path) == []


@pytest.mark.parametrize("end", ["flush", "close", "stop"])
@pytest.mark.parametrize("began", [True, False])
def test_superseded_process_writes_no_line_after_its_end(
    tmp_path: Path, began: bool, end: str
) -> None:
    said = list[str]()
    first = opened(tmp_path, log=said.append)
    if began:
        first.start({}, ["a", "b"])
        first.deliver(Dot(OTHER, 1))
        first.flush()
    first.deliver(Dot(OTHER, 2))
    second = opened(tmp_path)
    first.deliver(Dot(OTHER, 3))
    getattr(first, end)()
    first.deliver(Dot(OTHER, 4))
    first.close()
    second.start({}, ["a", "b"])
    second.deliver(Dot(OTHER, 2))
    second.stop()
    told = events(tmp_path)
    assert [event.seq for event in told] == list(range(1, len(told) + 1))
    assert [event.counter for event in told if event.kind == EventKind.DELIVER] == [1, 2][
        not began :
    ]
    assert len(said) == 1 and "another process now writes the log of a.0" in said[0]


def test_process_paused_while_writing_does_not_block_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "_TAKING_PATIENCE", 0.0)
    waits = list[float]()
    clock = SimpleNamespace(sleep=waits.append, monotonic=time.monotonic)
    monkeypatch.setattr(owner, "time", clock)  # other threads of this process sleep, too
    first = opened(tmp_path)
    with first._owner.writing() as mine:
        assert mine
        second = opened(tmp_path)
        second.start({}, ["a"])
        second.flush()
        assert waits
        waits.clear()
        for counter in range(1, 4):  # the loop that writes it must not wait each time
            second.deliver(Dot(OTHER, counter))
            second.flush()
        second.stop()
        assert not waits
    first.start({}, ["b"])
    first.stop()
    assert [json.loads(event.op or "[]") for event in events(tmp_path)][1] == ["a"]


def test_a_log_goes_on_without_an_owner_that_cannot_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(os, "pwrite", Disk(room=0))
        log = opened(tmp_path)
    log.start({}, ["a"])
    log.stop()
    assert [event.kind for event in events(tmp_path)] == ["SEGMENT", "START", "STOP"]


class Disk:
    """Stands for `os.write`: takes `room` bytes, then refuses as a full disk does."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._write = os.write

    def __call__(self, file: int, content: bytes, offset: int = 0) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = self._write(file, content[: self.room])
        self.room -= written
        return written


def test_full_disk_is_retried_and_small_logs_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, said = Clock(), list[str]()
    log = opened(tmp_path, clock_us=clock, log=said.append)
    disk = Disk(room=777)
    monkeypatch.setattr(os, "write", disk)
    log.start({}, ["a"])
    for counter in range(1, 21):
        log.deliver(Dot(OTHER, counter))
        log.flush()
        clock.now += 1_000_000
    assert len(said) == 1 and "No space left on device" in said[0]
    clock.now += 60_000_000
    log.flush()
    assert len(said) == 2
    disk.room = 10**9
    log.flush()
    assert len(said) == 3 and "is writable again" in said[2] and "nothing was lost" in said[2]
    assert [e.counter for e in events(tmp_path) if e.kind == EventKind.DELIVER] == list(
        range(1, 21)
    )


def test_a_disk_full_for_long_drops_events_as_a_hole_in_seq(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = list[str]()
    log = opened(tmp_path, log=said.append, buffer_bytes=2000)
    disk = Disk(room=150)
    monkeypatch.setattr(os, "write", disk)
    log.start({}, ["a"])
    for counter in range(1, 101):
        log.deliver(Dot(OTHER, counter))
    assert 80 < log.lost < 100
    disk.room = 10**9
    log.flush()
    log.deliver(Dot(OTHER, 101))
    log.close()
    told = [event.seq for event in events(tmp_path)]
    assert told[-1] == 103 and told[:-1] == list(range(1, 103 - log.lost))
    assert len(said) == 2 and f"{log.lost} events were lost" in said[1]


def test_a_segment_that_cannot_be_created_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = opened(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(os, "open", refuse)
        log.start({}, ["a"])
        log.flush()
        log.stop()
    assert names(tmp_path) == []
    log.close()
    assert [event.kind for event in events(tmp_path)] == ["SEGMENT", "START", "STOP"]


def test_unusable_directories_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"cannot keep an event log in .*file"):
        opened(tmp_path / "file")
    with pytest.raises(UnusableInputError, match=r"cannot read event logs in .*absent"):
        list(LogReader(tmp_path / "absent"))


def test_deliveries_logged_together_give_the_lines_of_each(tmp_path: Path) -> None:
    kind, join = encode(Join("c.1", (), False, {"a.1": 0, "b.1": 2}))
    plain = [Message(Dot("b.1", n), (), b"") for n in (1, 2)]
    joined = [Message(Dot("b.1", 3), (), join, kind), Message(Dot("b.1", 4), (), b"")]
    written = []
    for directory in (tmp_path / "each", tmp_path / "together"):
        engine = GroupEngine.found("a.1", ["b.1"])
        log = EventLog(
            directory, group="g", replica="a", incarnation="a.1", clock_us=lambda: 1_700_000_000
        )
        with closing(log):
            told = GroupLog(engine, log)
            told.start()
            if directory.name == "each":
                for message in (*plain, *joined):
                    told.happened(message)
            else:
                told.delivered_all(plain)
                told.delivered_all(joined)
        (path,) = directory.glob("*.jsonl*")
        written.append(path.read_text())
    each, together = written
    assert each == together and '"kind":"JOIN"' in each
