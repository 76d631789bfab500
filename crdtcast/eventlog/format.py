"""The event log as files: columns, kinds, names of segments, reading lines. Its writer is `crdtcast.eventlog.writer`.

JSON lines, one event a line, every line complete in itself. A segment is written as `….jsonl.open` and renamed to
`….jsonl` when it is sealed. A crash leaves at most one torn line, the last one of an open segment.
"""

import enum
import json
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

from crdtcast.causality.tags import Dot

SCHEMA_VERSION = 1
SEALED = ".jsonl"
OPEN = ".jsonl.open"
GZIP = ".gz"
"""May follow either ending, for readers."""
FORCED = "forced"


class EventKind(enum.StrEnum):
    """The kind of a line.

    SEGMENT is the first line of each file and sums up the lines before it. A JOIN follows the line of the message that
    admits the member. A VIEW stands where its member applies a decision. A LEFT or EVICT follows the VIEW or DELIVER
    with which all messages that count of a removed incarnation are delivered.
    """

    SEND = "SEND"
    DELIVER = "DELIVER"
    STABLE = "STABLE"
    STATE = "STATE"
    GC = "GC"
    SEGMENT = "SEGMENT"
    START = "START"
    STOP = "STOP"
    JOIN = "JOIN"
    VIEW = "VIEW"
    LEFT = "LEFT"
    EVICT = "EVICT"


class LoggedCut(NamedTuple):
    """The end of a removed incarnation; `how` is "left", "evicted" or "forced"."""

    origin: str
    counter: int
    how: str

    @property
    def dot(self) -> Dot:
        """Its last message that counts."""
        return Dot(self.origin, self.counter)


@dataclass(frozen=True, slots=True)
class LoggedView:
    """The view that a member is in, if the group's members can change: its voters, and the format level."""

    epoch: int
    name: str
    voters: tuple[str, ...]
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line. The fields are the columns, in order; a column that is missing in the line is None.

    `seq` is dense from 1 for each incarnation. `ts` is in microseconds, for lag and plots, never for order. `deps` is
    the transmitted reduced context of a SEND; of a START or SEGMENT the dots up to which stability was reported.
    `vector` is what START began from, what was delivered at a SEGMENT, or the cut of a STATE. `op` is JSON text: the
    operations of a SEND (see `Privacy`), or the members of a START or SEGMENT. These are names if members are fixed,
    incarnation ids if they can change. `level` of these two is the format level in force there, if the group has one. A
    SEND with `reissues` sends again what an earlier incarnation had sent as that message, and the group has not.

    JOIN: `member` has joined, by the operation `origin`, `counter`; `replaces` are the incarnations that it replaces,
    if any. LEFT, EVICT: `origin` has ended at this member; its messages up to `counter` count and are delivered; `op`
    is "forced" if less than a quorum decided that.

    VIEW: a decision has ended the view called `before`; the next one, of `epoch`, is called `view`. `cuts`: the ends of
    incarnations that are removed, or were removed before and have not ended everywhere; `out`: those removed now;
    `votes`: those that get a vote; `level`: the format level that it raises; `op` is "forced" as above; `sent`: how
    many messages the member of this log had sent. A START or SEGMENT has `epoch`, `view` and `voters`, and in `cuts`
    the removed incarnations that have not ended at this member.
    """

    version: int
    group: str
    replica: str
    incarnation: str
    seq: int
    ts: int
    kind: str
    origin: str | None = None
    counter: int | None = None
    deps: tuple[Dot, ...] | None = None
    vector: dict[str, int] | None = None
    object: str | None = None
    op: str | None = None
    digest: str | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None
    entries: int | None = None
    member: str | None = None
    replaces: tuple[str, ...] | None = None
    reissues: Dot | None = None
    level: int | None = None
    epoch: int | None = None
    view: str | None = None
    before: str | None = None
    voters: tuple[str, ...] | None = None
    cuts: tuple[LoggedCut, ...] | None = None
    out: tuple[str, ...] | None = None
    votes: tuple[str, ...] | None = None
    sent: int | None = None

    @property
    def is_forced(self) -> bool:
        """Of a VIEW or EVICT: whether less than a quorum decided it."""
        return self.op == FORCED

    @property
    def logged_view(self) -> LoggedView | None:
        """The view of a START or SEGMENT, if the line has one."""
        if self.epoch is None or self.view is None or self.level is None:
            return None
        return LoggedView(self.epoch, self.view, self.voters or (), self.level)

    @property
    def dot(self) -> Dot:
        """The message of a SEND, DELIVER, STABLE or JOIN; the last message that counts of a LEFT or EVICT."""
        assert self.origin is not None and self.counter is not None
        return Dot(self.origin, self.counter)


COLUMNS = tuple(field.name for field in fields(Event))


def segment_prefix(group: str, replica: str) -> str:
    """The prefix of the names of all segments of one replica; special characters of a group are percent-encoded."""
    return f"{quote(group, safe='')}--{replica}--"


def segment_name(group: str, replica: str, incarnation: str, first_seq: int) -> str:
    """Name of a sealed segment. Sorted by name, the segments of one incarnation are in the order
    of `seq`."""
    return f"{segment_prefix(group, replica)}{incarnation}--{first_seq:012d}{SEALED}"


def parse_line(line: bytes) -> Event | None:
    """The event of one line without its newline, or None if the line is torn or not an event.

    Unknown columns are ignored: a later version of the schema may add some.
    """
    try:
        row: Any = json.loads(line)
        if b"\\u" in line:
            # Half of a surrogate pair is valid JSON but no valid text: it cannot be printed.
            json.dumps(row, ensure_ascii=False).encode()
        known = {name: row[name] for name in COLUMNS if name in row}
        if known.get("deps") is not None:
            known["deps"] = tuple(Dot(dep["origin"], dep["counter"]) for dep in known["deps"])
        for name in _LISTS:
            if known.get(name) is not None:
                known[name] = tuple(known[name])
        if known.get("cuts") is not None:
            known["cuts"] = tuple(LoggedCut(**cut) for cut in known["cuts"])
        if known.get("reissues") is not None:
            known["reissues"] = Dot(**known["reissues"])
        event = Event(**known)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return event if _is_newer(event) or _is_well_typed(event) else None


def _is_newer(event: Event) -> bool:
    """Whether a later program wrote it, so that its columns may differ."""
    return type(event.version) is int and event.version > SCHEMA_VERSION


_MUST_BE_TEXT = ("group", "replica", "incarnation", "kind")
_MAY_BE_TEXT = ("origin", "object", "op", "digest", "member", "view", "before")
_LISTS = ("replaces", "voters", "out", "votes")
_MUST_BE_NUMBERS = ("version", "seq", "ts")
_MAY_BE_NUMBERS = ("counter", "bytes_before", "bytes_after", "entries", "level", "epoch", "sent")
_BEYOND = 2**63


def _is_well_typed(event: Event) -> bool:
    value = partial(getattr, event)
    dots = [*(event.deps or ()), *([event.reissues] if event.reissues else ())]
    vector = {} if event.vector is None else event.vector
    if type(vector) is not dict:
        return False
    texts = [*map(value, _MUST_BE_TEXT), *(dot.origin for dot in dots)]
    texts += [text for text in map(value, _MAY_BE_TEXT) if text is not None]
    texts += [text for name in _LISTS for text in value(name) or ()]
    numbers = [*map(value, _MUST_BE_NUMBERS), *vector.values(), *(dot.counter for dot in dots)]
    for cut in event.cuts or ():
        texts += (cut.origin, cut.how)
        numbers.append(cut.counter)
    numbers += [number for number in map(value, _MAY_BE_NUMBERS) if number is not None]
    return all(type(text) is str for text in texts) and all(
        type(number) is int and -_BEYOND <= number < _BEYOND for number in numbers
    )


def listed_members(event: Event | None) -> list[str]:
    """The members that a START or SEGMENT lists: incarnation ids if they can change, else names."""
    return members_in(None if event is None else event.op)


def members_in(op: str | None) -> list[str]:
    """The members that a column `op` lists."""
    try:
        found = json.loads(op) if op else []
    except (ValueError, RecursionError):
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def view_after(view: LoggedView, event: Event) -> LoggedView:
    """The view that a VIEW line makes from the one before it."""
    voters = {*view.voters, *(event.votes or ())} - {*(event.out or ())}
    return LoggedView(
        event.epoch or 0, event.view or "", tuple(sorted(voters)), max(view.level, event.level or 0)
    )
