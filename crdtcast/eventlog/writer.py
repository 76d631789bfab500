"""Writer of a replica's event log: what the application saw, in its order. The format is `crdtcast.eventlog.format`.

Rule: nothing in this module may hurt the node. Lines are built as strings, because each message passes this code. A
write that the disk refuses is tried again; the memory for such lines is bounded. Dropped lines show as a hole in
`seq`, because `seq` counts events, not lines.
"""

import enum
import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from crdtcast.causality.member_id import name_of
from crdtcast.causality.tags import Dot, Tag, Vector, merge_into
from crdtcast.eventlog.format import (
    FORCED,
    OPEN,
    SCHEMA_VERSION,
    SEALED,
    Event,
    EventKind,
    LoggedCut,
    LoggedView,
    listed_members,
    parse_line,
    segment_name,
    segment_prefix,
    view_after,
)
from crdtcast.eventlog.owner import LogOwner
from crdtcast.exceptions import ConfigurationError

_WARN_EVERY_US = 60_000_000
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_REFUSALS = _FULL | {errno.EIO}
_SENT_AT_ONCE = 1000
_DOT = attrgetter("dot")


class Privacy(enum.Enum):
    """What a SEND records of its operations: nothing, BLAKE2b hashes of object and operation, or everything.

    HASHED also hashes the object names of STATE lines; the other two write them as they are.
    """

    OFF = "off"
    HASHED = "hashed"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Rotation:
    """When a segment is sealed: at the first flush at which it has this size, or this age in seconds."""

    size: int = 16 * 2**20
    seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class LogTail:
    """Where the log of a replica's newest incarnation ends; `incarnation` is None if there is no log yet.

    `vector` covers what was logged as sent or delivered (and what START began from), `stable` what was logged as
    stable. `members`, `view` and `cuts` (removed incarnations that have not ended) are as logged last. A node that
    restarts compares them with its own state, and logs what its last commit had not logged. `torn` is the number of
    lines cut off.
    """

    incarnation: str | None = None
    seq: int = 0
    vector: dict[str, int] = field(default_factory=dict)
    stable: dict[str, int] = field(default_factory=dict)
    torn: int = 0
    members: tuple[str, ...] = ()
    view: LoggedView | None = None
    cuts: Mapping[str, LoggedCut] = field(default_factory=dict)


ROTATION = Rotation()


class EventLog:
    """Appends the events of one incarnation to segments in `directory`.

    Events are buffered; `flush` passes them to the operating system. Flush *before* the messages and digests of these
    events leave the process: then a log never knows less than other members.

    Not thread-safe. Only the constructor raises if the disk is full or failing.

    :param clock_us: wall clock in microseconds, for the column `ts` and for rotation.
    :param buffer_bytes: how much is kept while the disk refuses writes; events beyond it are dropped and counted.
    :param log: called with one sentence when the disk refuses (at most once a minute) and when it
        takes writes again.
    :raises ConfigurationError: if the directory cannot be created or written to.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        group: str,
        replica: str,
        incarnation: str,
        clock_us: Callable[[], int],
        rotation: Rotation = ROTATION,
        privacy: Privacy = Privacy.OFF,
        log: Callable[[str], object] = lambda message: None,
        buffer_bytes: int = 8 * 2**20,
    ) -> None:
        self.lost: int = 0
        """Events dropped so far because the buffer was full."""
        self._directory = Path(directory)
        self._group = group
        self._replica = replica
        self._incarnation = incarnation
        self._clock_us = clock_us
        self._segment_bytes = rotation.size
        self._segment_us = int(rotation.seconds * 1_000_000)
        self._buffer_limit = buffer_bytes
        self._privacy = privacy
        self._log = log
        tail = LogTail()
        check_directory(self._directory)
        self._owner = LogOwner(self._directory / f".{segment_prefix(group, replica)}owner")
        self._displaced = False
        with self._owner.taking():
            try:
                tail = self.recover(self._directory, replica, group=group, incarnation=incarnation)
            except OSError as error:
                _object(self._directory, error)
        self._seq = tail.seq
        self._vector = dict(tail.vector)
        self._stable = dict(tail.stable)
        self._members = list(tail.members)
        self._view = tail.view
        self._cuts = dict(tail.cuts)
        self._level = None if tail.view is None else tail.view.level
        self._heads: dict[str, str] = {}
        self._line_head = (
            f'{{"version":{SCHEMA_VERSION},"group":{json.dumps(group)},'
            f'"replica":{json.dumps(replica)},"incarnation":{json.dumps(incarnation)},"seq":'
        )
        # The last events, if they are plain SENDs: their lines are made together.
        self._sent: list[Tag] = []
        self._buffer: list[str] = []
        self._buffered = 0  # bytes in _buffer; lines are ASCII
        self._unwritten = b""  # the rest of a write that the disk took only in part
        self._file: int | None = None
        self._path = Path()
        self._begins_segment = True
        self._segment_size = 0
        self._segment_start = 0
        self._refused_since: int | None = None
        self._warned_at: int | None = None

    @property
    def seq(self) -> int:
        """Number of the last event."""
        return self._seq + len(self._sent)

    @property
    def vector(self) -> Vector:
        """Messages that are sent or delivered according to this log, including the vector of its START."""
        self._add_sent()
        return self._vector

    @property
    def told_stable(self) -> Vector:
        """Messages that are stable according to this log."""
        return self._stable

    @property
    def has_unwritten(self) -> bool:
        """Whether some lines are buffered."""
        return bool(self._buffered or self._sent)

    @property
    def members(self) -> Sequence[str]:
        """The members, according to this log."""
        return self._members

    @property
    def view(self) -> LoggedView | None:
        """The view of this log's member, according to this log."""
        return self._view

    @property
    def cuts(self) -> Mapping[str, LoggedCut]:
        """Removed incarnations that have not ended yet, according to this log."""
        return self._cuts

    # --- events ---------------------------------------------------------------------------------

    def start(
        self,
        vector: Vector,
        members: Iterable[str],
        stable: Vector | None = None,
        level: int | None = None,
        *,
        view: LoggedView | None = None,
        cuts: Iterable[LoggedCut] = (),
    ) -> None:
        """The replica begins, or continues after a restart, with everything under `vector` delivered.

        vector: of the snapshot, if a member joins.
        members: names of the group's members; if members can change, the ids of all incarnations that are members in
            that state, including its own.
        stable: what was reported as stable before, if known. Only with it can the audit see that a message from before
            the start never becomes stable.
        level: the format level in force, if the group has one.
        view: if members can change, the view of that state, with its level.
        cuts: removed incarnations that have not ended at this member.
        """
        self._members = sorted(members)
        self._view = view
        self._cuts = {cut.origin: cut for cut in cuts}
        self._level = level if view is None else view.level
        told = "" if stable is None else f'"deps":{self._dots(stable.items())},'
        self._append(f'"kind":"START",{told}{self._state_of_group(vector)}')
        merge_into(self._vector, vector)
        merge_into(self._stable, stable or {})

    def stop(self, unstable: int | None = None) -> None:
        """Log a clean end, and seal the segment. `unstable` counts messages that are not stable yet, 0 at rest."""
        left = "" if unstable is None else f',"entries":{unstable}'
        self._append(f'"kind":"STOP"{left}')
        self.close()

    def send(
        self,
        tag: Tag,
        object_ops: Sequence[tuple[str | bytes, object]] | None = None,
        *,
        reissues: Dot | None = None,
    ) -> None:
        """Log that the replica broadcast a message (and so delivered it to itself).

        object_ops: (object, operation) pairs.
        reissues: the message of an earlier incarnation whose operations this one sends again.
        """
        if object_ops is None and reissues is None:
            self._sent.append(tag)
            if len(self._sent) > _SENT_AT_ONCE:
                self._add_sent()
            return
        origin, counter = tag.dot
        told = self._operations(object_ops) if object_ops else ""
        if reissues is not None:
            told += f',"reissues":{json.dumps(reissues._asdict())}'
        head = self._heads.get(origin) or self._head(origin)
        self._append(f'"kind":"SEND",{head}{counter},"deps":{self._dots(tag.context)}{told}')
        self._vector[origin] = counter

    def deliver(self, dot: Dot) -> None:
        """Log that the application received a message of another member."""
        origin, counter = dot
        self._append(f'"kind":"DELIVER",{self._heads.get(origin) or self._head(origin)}{counter}')
        self._vector[origin] = counter

    def stable(self, dot: Dot) -> None:
        """Log that the application was notified that no message concurrent with this one can be delivered here any
        more.
        """
        origin, counter = dot
        self._append(f'"kind":"STABLE",{self._heads.get(origin) or self._head(origin)}{counter}')
        self._stable[origin] = counter

    def deliver_all(self, dots: Sequence[Dot]) -> None:
        """`deliver` each of them; lines go to this log, even if a subclass holds single ones back."""
        if self._append_all("DELIVER", dots):
            self._vector.update(dots)
        else:
            for dot in dots:
                EventLog.deliver(self, dot)

    def stable_all(self, dots: Sequence[Dot]) -> None:
        """`stable` with each of them; lines go to this log, even if a subclass holds single ones back."""
        if self._append_all("STABLE", dots):
            self._stable.update(dots)
        else:
            for dot in dots:
                EventLog.stable(self, dot)

    def joined(self, member: str, dot: Dot, *, replaces: Iterable[str] = ()) -> None:
        """Log that the operation `dot`, just delivered or sent here, makes the incarnation `member` a member.

        replaces: the incarnations, or the prefixes of their ids, that it replaces.
        """
        replaced = list(replaces)
        told = f',"replaces":{json.dumps(replaced)}' if replaced else ""
        self._change(EventKind.JOIN, dot, f',"member":{json.dumps(member)}{told}')
        self._members = sorted({*self._members, member})

    def decided(
        self,
        view: LoggedView,
        before: str,
        *,
        cuts: Iterable[LoggedCut] = (),
        out: Iterable[str] = (),
        votes: Iterable[str] = (),
        level: int | None = None,
        forced: bool = False,
    ) -> None:
        """Log that a decision has ended the view called `before`, and that `view` is the next one.

        cuts: where removed incarnations end, including earlier ones that have not ended everywhere.
        out: the incarnations that it removes.
        votes: members that get a vote.
        level: the new format level, if it is raised.
        forced: whether less than a quorum decided.
        """
        cuts = list(cuts)
        self._add_sent()
        sent = self._vector.get(self._incarnation, 0)
        told = f'"epoch":{view.epoch},"view":{json.dumps(view.name)},"before":{json.dumps(before)}'
        told += (
            f',"cuts":{_cuts(cuts)},"out":{json.dumps(list(out))},"votes":{json.dumps(list(votes))}'
        )
        told += "" if level is None else f',"level":{level}'
        told += f',"op":"{FORCED}"' if forced else ""
        self._append(f'"kind":"VIEW",{told},"sent":{sent}')
        self._view, self._level = view, view.level
        self._cuts.update((cut.origin, cut) for cut in cuts if cut.origin in self._members)

    def left(self, dot: Dot) -> None:
        """Log that the origin of `dot` has left and ended at this member: `dot` is its last message, and delivered."""
        self._ended(EventKind.LEFT, dot)

    def evicted(self, incarnation: str, cut: int, *, forced: bool = False) -> None:
        """Log that `incarnation` was evicted and has ended at this member: its first `cut` messages count, and all are
        delivered.

        forced: whether less than a quorum decided.

        If `incarnation` is this log's own, its membership has ended.
        """
        self._ended(EventKind.EVICT, Dot(incarnation, cut), f',"op":"{FORCED}"' if forced else "")

    def _ended(self, kind: EventKind, dot: Dot, told: str = "") -> None:
        self._change(kind, dot, told)
        self._members = [member for member in self._members if member != dot.origin]
        self._cuts.pop(dot.origin, None)

    def state(self, object: str | bytes, vector: Vector, digest: str) -> None:
        """Log the `digest` of the value of `object` after all operations under the cut `vector`, and no others.

        Two replicas that log the same object and vector must log the same digest.
        """
        self._append(
            f'"kind":"STATE","object":{json.dumps(self._object(object))},'
            f'"vector":{self._map(vector)},"digest":{json.dumps(digest)}'
        )

    def gc(self, bytes_before: int, bytes_after: int, entries: int) -> None:
        """Log real sizes of metadata (PO-Logs, store, rows) around a compaction, and the `entries` left after it."""
        self._append(
            f'"kind":"GC","bytes_before":{bytes_before},"bytes_after":{bytes_after},"entries":{entries}'
        )

    # --- lines ----------------------------------------------------------------------------------

    def _append(self, told: str) -> None:
        """Buffer one line. Callers update `_vector` or `_stable` afterwards: the first line of a segment sums up only
        what came before it."""
        self._add_sent()
        if self._begins_segment:
            self._begin_segment()
        self._seq += 1
        line = f'{self._line_head}{self._seq},"ts":{self._clock_us()},{told}}}\n'
        size = self._buffered + len(line)
        if size > self._buffer_limit:
            self.flush()
            size = self._buffered + len(line)
            if size > self._buffer_limit:
                self.lost += 1
                return
        self._buffer.append(line)
        self._buffered = size

    def _begin_segment(self) -> None:
        """Recovery reads the last segment only, so each segment begins with the sum of the earlier ones."""
        self._begins_segment = False
        self._segment_size = 0
        self._segment_start = self._clock_us()
        self._path = self._directory / segment_name(
            self._group, self._replica, self._incarnation, self._seq + 1
        )
        told = self._dots(self._stable.items())
        self._append(f'"kind":"SEGMENT","deps":{told},{self._state_of_group(self._vector)}')

    def _add_sent(self) -> None:
        """Buffer the lines of messages sent since the last line, with one timestamp."""
        if not self._sent:
            return
        sent, self._sent = self._sent, []
        if self._begins_segment:
            self._begin_segment()
        heads, make_head = self._heads, self._head
        first, middle = self._line_head, f',"ts":{self._clock_us()},"kind":"SEND",'
        lines: list[str] = []
        for seq, tag in enumerate(sent, self._seq + 1):
            origin, counter = tag.dot
            context = tag.context
            if len(context) == 1:  # as mostly: all that it depends on comes before one message
                ((depended, number),) = context
                deps = f"[{{{heads.get(depended) or make_head(depended)}{number}}}]"
            else:
                deps = self._dots(context)
            head = heads.get(origin) or make_head(origin)
            lines.append(f'{first}{seq}{middle}{head}{counter},"deps":{deps}}}\n')
        if self._buffer_all(lines):
            self._vector.update(map(_DOT, sent))
            return
        for tag in sent:
            origin, counter = tag.dot
            head = heads[origin]
            self._append(f'"kind":"SEND",{head}{counter},"deps":{self._dots(tag.context)}')
            self._vector[origin] = counter

    def _append_all(self, kind: str, dots: Sequence[Dot]) -> bool:
        """Buffer a line for each of these messages, with one timestamp. Returns whether there was room; else does
        nothing.
        """
        self._add_sent()
        heads = self._heads
        for origin in dict(dots).keys() - heads.keys():
            self._head(origin)
        if self._begins_segment:
            self._begin_segment()
        first, ts = self._line_head, self._clock_us()
        middle = f',"ts":{ts},"kind":"{kind}",'
        lines = [
            f"{first}{seq}{middle}{heads[origin]}{counter}}}\n"
            for seq, (origin, counter) in enumerate(dots, self._seq + 1)
        ]
        return self._buffer_all(lines)

    def _buffer_all(self, lines: list[str]) -> bool:
        """Buffer lines that are numbered already. Returns whether there was room; else does nothing."""
        size = sum(map(len, lines))
        if self._buffered + size > self._buffer_limit:
            return False
        self._seq += len(lines)
        self._buffer += lines
        self._buffered += size
        return True

    def _change(self, kind: EventKind, dot: Dot, told: str = "") -> None:
        head = self._heads.get(dot.origin) or self._head(dot.origin)
        self._append(f'"kind":"{kind}",{head}{dot.counter}{told}')

    def _head(self, origin: str) -> str:
        head = self._heads[origin] = f'"origin":{json.dumps(origin)},"counter":'
        return head

    def _dots(self, dots: Iterable[tuple[str, int]]) -> str:
        heads = self._heads
        parts = [f"{{{heads.get(o) or self._head(o)}{counter}}}" for o, counter in dots]
        return f"[{','.join(parts)}]"

    def _map(self, vector: Vector) -> str:
        return json.dumps({o: counter for o, counter in vector.items() if counter})

    def _state_of_group(self, vector: Vector) -> str:
        told = f'"vector":{self._map(vector)},"op":{json.dumps(json.dumps(self._members))}'
        if self._level is not None:
            told += f',"level":{self._level}'
        if (view := self._view) is not None:
            told += f',"epoch":{view.epoch},"view":{json.dumps(view.name)}'
            told += f',"voters":{json.dumps(view.voters)},"cuts":{_cuts(self._cuts.values())}'
        return told

    def _object(self, name: str | bytes) -> str:
        text = name if isinstance(name, str) else name.decode("utf-8", "backslashreplace")
        return _hash(text) if self._privacy is Privacy.HASHED else text

    def _operations(self, object_ops: Sequence[tuple[str | bytes, object]]) -> str:
        if self._privacy is Privacy.OFF:
            return ""
        pairs: list[tuple[str, object]] = []
        for name, operation in object_ops:
            text = json.dumps(operation, default=_plain, separators=(",", ":"))
            told = _hash(text) if self._privacy is Privacy.HASHED else json.loads(text)
            pairs.append((self._object(name), told))
        objects = {name for name, _ in pairs}
        one = f',"object":{json.dumps(objects.pop())}' if len(objects) == 1 else ""
        return f'{one},"op":{json.dumps(json.dumps(pairs, separators=(",", ":")))}'

    # --- files ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write buffered lines to the operating system, and seal the segment if it is big or old enough. If another
        process has opened this log since, drop them: that process writes the rest.
        """
        self._flush(end=False)

    def close(self) -> None:
        """Flush and seal. A later event starts a new segment."""
        self._flush(end=True)

    def abandon(self) -> None:
        """Drop unwritten lines and leave the segment unchanged: another process continues this log."""
        self._sent.clear()
        self._buffer.clear()
        self._buffered = 0
        self._unwritten = b""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _flush(self, *, end: bool) -> None:
        self._add_sent()
        if not self._buffered and self._file is None:
            return
        with self._owner.writing() as mine:
            if not mine:
                self._give_way()
                return
            if self._buffered:
                try:
                    self._write()
                except OSError as error:
                    self._refused(error)
                    return
                if self._refused_since is not None:
                    self._taken_again()
            if self._file is not None and (
                end
                or self._segment_size >= self._segment_bytes
                or self._clock_us() - self._segment_start >= self._segment_us
            ):
                self._seal()

    def _give_way(self) -> None:
        self.abandon()
        if not self._displaced:
            self._displaced = True
            self._log(
                f"event log: another process now writes the log of {self._incarnation} in "
                f"{self._directory}; this one stops writing it"
            )

    def _write(self) -> None:
        if self._file is None:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Private, because the log may contain everything that the journal holds.
            self._file = os.open(
                _opened(self._path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
        while self._unwritten or self._buffer:
            if not self._unwritten:
                self._unwritten = "".join(self._buffer).encode("ascii")
                self._buffer.clear()
            # A disk that fills up takes only a part. The rest must follow it byte for byte, so that no line is torn.
            written = os.write(self._file, self._unwritten)
            self._unwritten = self._unwritten[written:]
            self._buffered -= written
            self._segment_size += written

    def _seal(self) -> None:
        assert self._file is not None
        try:
            os.close(self._file)
            os.rename(_opened(self._path), self._path)
        except OSError as error:
            # The lines are written. Readers accept open segments, too, and recovery seals this one.
            self._warn(f"event log: cannot seal {self._path}: {error}")
        self._file = None
        self._begins_segment = True

    def _refused(self, error: OSError) -> None:
        now = self._clock_us()
        if self._refused_since is None:
            self._refused_since = now
        remedy = "free space on that disk" if error.errno in _FULL else "fix the cause"
        self._warn(
            f"event log: cannot write {self._path}: {error.strerror or error}; {remedy}. The node goes "
            f"on and tries again at every commit; {self._buffered:,} bytes are waiting, {self.lost:,} "
            "events are lost so far"
        )

    def _warn(self, sentence: str) -> None:
        now = self._clock_us()
        if self._warned_at is None or now - self._warned_at >= _WARN_EVERY_US:
            self._warned_at = now
            self._log(sentence)

    def _taken_again(self) -> None:
        assert self._refused_since is not None
        seconds = (self._clock_us() - self._refused_since) / 1_000_000
        self._refused_since = self._warned_at = None
        lost = f"{self.lost} events were lost (a hole in seq)" if self.lost else "nothing was lost"
        self._log(f"event log: {self._path} is writable again after {seconds:.1f} s; {lost}")

    # --- restart --------------------------------------------------------------------------------

    @classmethod
    def recover(
        cls,
        directory: Path | str,
        replica: str,
        *,
        group: str | None = None,
        incarnation: str | None = None,
    ) -> LogTail:
        """Seal the segment that a crash left open, cut torn last lines off, and return where the log of the incarnation
        (by default the newest one) ends.

        Reads only the last segment of that incarnation. group: None stands for any group.

        Raises OSError if the directory cannot be read or written.
        """
        segments: dict[str, list[Path]] = {}
        torn = 0
        directory = Path(directory)
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            found = _incarnation_of(path.name, replica, group)
            if found is None:
                continue
            if path.name.endswith(OPEN):
                torn += _cut_torn_lines(path)
                if path.stat().st_size == 0:
                    path.unlink()
                    continue
                sealed = path.with_name(path.name.removesuffix(OPEN) + SEALED)
                path.rename(sealed)
                path = sealed
            segments.setdefault(found, []).append(path)
        wanted = incarnation or max(segments, default="")
        if wanted not in segments:
            return LogTail(torn=torn)
        seq = 0
        vector: dict[str, int] = {}
        stable: dict[str, int] = {}
        members: set[str] = set()
        view: LoggedView | None = None
        cuts: dict[str, LoggedCut] = {}
        for event in _events(max(segments[wanted])):
            seq = max(seq, event.seq)
            if event.kind in (EventKind.SEND, EventKind.DELIVER):
                merge_into(vector, dict([event.dot]))
            elif event.kind == EventKind.STABLE:
                merge_into(stable, dict([event.dot]))
            elif event.kind in (EventKind.SEGMENT, EventKind.START):
                merge_into(vector, event.vector or {})
                merge_into(stable, dict(event.deps or ()))
                members = set(listed_members(event))
                view = event.logged_view
                cuts = {cut.origin: cut for cut in event.cuts or ()}
            elif event.kind == EventKind.JOIN and event.member is not None:
                members.add(event.member)
            elif event.kind == EventKind.VIEW and view is not None:
                view = view_after(view, event)
                cuts.update((cut.origin, cut) for cut in event.cuts or () if cut.origin in members)
            elif event.kind in (EventKind.LEFT, EventKind.EVICT):
                members.discard(event.dot.origin)
                cuts.pop(event.dot.origin, None)
        return LogTail(wanted, seq, vector, stable, torn, tuple(sorted(members)), view, cuts)


def check_directory(directory: Path) -> None:
    """Create it if it is missing. A full disk is accepted: it may have room later.

    :raises ConfigurationError: if it cannot be created, or not be written to.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        _object(directory, error)
    else:
        if not os.access(directory, os.W_OK | os.X_OK):
            _object(directory, OSError(errno.EACCES, "not writable"))


def _object(directory: Path, error: OSError) -> None:
    if error.errno not in _REFUSALS:
        raise ConfigurationError(
            f"cannot keep an event log in {directory}: {error.strerror or error}: use a directory "
            "that this user may write to"
        ) from error


def _opened(sealed: Path) -> Path:
    return sealed.with_name(sealed.name.removesuffix(SEALED) + OPEN)


def _incarnation_of(name: str, replica: str, group: str | None) -> str | None:
    """The incarnation in a segment's name if it is one of this replica (and group), else None."""
    stem = name.removesuffix(OPEN).removesuffix(SEALED)
    incarnation = stem.rpartition("--")[0].rpartition("--")[2]
    if "." not in incarnation or name == stem:
        return None
    if group is None:
        return incarnation if name_of(incarnation) == replica else None
    # A node's name may contain "--", so the known prefix is removed instead of splitting at "--".
    prefix = segment_prefix(group, replica)
    incarnation = stem.removeprefix(prefix).rpartition("--")[0]
    known = stem.startswith(prefix) and name_of(incarnation) == replica
    return incarnation if known else None


def _cut_torn_lines(path: Path) -> int:
    """Cut lines off the end until the last one is whole; returns how many."""
    content = path.read_bytes()
    end = len(content)
    torn = 0
    while end:
        whole = content.endswith(b"\n", 0, end)
        begin = content.rfind(b"\n", 0, end - 1 if whole else end) + 1
        if whole and parse_line(content[begin : end - 1]) is not None:
            break
        torn += 1
        end = begin
    if end < len(content):
        os.truncate(path, end)
    return torn


def _events(path: Path) -> Iterable[Event]:
    with open(path, "rb") as segment:
        for line in segment:
            event = parse_line(line)
            if event is not None:
                yield event


def _cuts(cuts: Iterable[LoggedCut]) -> str:
    return json.dumps([cut._asdict() for cut in cuts])


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _plain(value: object) -> object:
    """The JSON form of other values: bytes become text."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)
