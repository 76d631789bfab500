"""The event log as files: columns, kinds, names of segments, reading lines. Its writer is
`crdtcast.eventlog`.

JSON lines, one event a line, every line complete in itself. A segment is written as
`….jsonl.open` and renamed to `….jsonl` when it is sealed; a crash leaves at most one torn line,
the last one of an open segment.
"""

import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crdtcast.exceptions import UnusableInputError
from crdtcast.tags import Dot

SCHEMA_VERSION = 1
SEALED = ".jsonl"
OPEN = ".jsonl.open"
GZIP = ".gz"
"""May end the name of either, for those who read."""


class Kind(enum.StrEnum):
    """What a line tells. FROZEN is reserved.

    An operation on the membership is a message like any other, with a SEND or DELIVER line. JOIN,
    LEAVE, EVICT and RAISE come behind the line of the message that brought them about, LEVEL
    behind the STABLE of its raise.
    """

    SEND = "SEND"
    DELIVER = "DELIVER"
    STABLE = "STABLE"
    STATE = "STATE"
    GC = "GC"
    VIEW = "VIEW"
    START = "START"
    STOP = "STOP"
    JOIN = "JOIN"
    LEAVE = "LEAVE"
    EVICT = "EVICT"
    RAISE = "RAISE"
    LEVEL = "LEVEL"
    FROZEN = "FROZEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line. The fields are the columns, in order; a column that is missing in the line is None.

    `seq` is dense from 1 for each incarnation. `ts` is in microseconds, for lag and plots, never
    for order. `deps` is the transmitted reduced context of a SEND, and of a START or VIEW the
    dots up to which stability had been told. `vector` is what START began from, what had been
    delivered at a VIEW, the cut of a STATE. `op` holds, as JSON text, the operations of a SEND
    (see `Privacy`) and the members of a START or VIEW: names, or incarnation ids where members
    come and go.

    JOIN: `member` has joined, by the operation `origin`, `counter`; `replaces` are the
    incarnations whose place it takes, if any. LEAVE: `origin` has left, with its message `counter`. EVICT:
    `origin` is evicted, its messages up to `counter` count; `op` is "forced" if that was done without
    a majority. RAISE: the operation `origin`, `counter` asks for the format level `level`; LEVEL: it
    has brought that level into force at this member. `level` of a START or VIEW: the one in force
    there, if the group has one. A SEND with `reissues` sends again
    what an earlier incarnation had sent as that message, and the group has not.
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

    @property
    def dot(self) -> Dot:
        """The message of a SEND, DELIVER, STABLE, JOIN, LEAVE, RAISE or LEVEL; of an EVICT the last that counts."""
        assert self.origin is not None and self.counter is not None
        return Dot(self.origin, self.counter)


COLUMNS = tuple(field.name for field in fields(Event))


def segment_prefix(group: str, replica: str) -> str:
    """What the names of all segments of one replica begin with; a group's odd characters are
    percent-encoded."""
    return f"{quote(group, safe='')}--{replica}--"


def segment_name(group: str, replica: str, incarnation: str, first_seq: int) -> str:
    """Name of a sealed segment. Sorted by name, the segments of one incarnation are in the order
    of `seq`."""
    return f"{segment_prefix(group, replica)}{incarnation}--{first_seq:012d}{SEALED}"


def parse_line(line: bytes) -> Event | None:
    """The event of one line without its newline, or None if the line is torn or not ours at all.

    Columns this version does not know are ignored; a later version of the schema may add some.
    """
    try:
        row: Any = json.loads(line)
        if b"\\u" in line:
            # Half of a surrogate pair is JSON and no text: nothing could be printed with it.
            json.dumps(row, ensure_ascii=False).encode()
        known = {name: row[name] for name in COLUMNS if name in row}
        if known.get("deps") is not None:
            known["deps"] = tuple(Dot(dep["origin"], dep["counter"]) for dep in known["deps"])
        if known.get("replaces") is not None:
            known["replaces"] = tuple(known["replaces"])
        if known.get("reissues") is not None:
            known["reissues"] = Dot(**known["reissues"])
        event = Event(**known)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return event if _is_newer(event) or _is_well_typed(event) else None


def _is_newer(event: Event) -> bool:
    """Whether a later program has written it, whose columns may be others."""
    return type(event.version) is int and event.version > SCHEMA_VERSION


_MUST_BE_TEXT = ("group", "replica", "incarnation", "kind")
_MAY_BE_TEXT = ("origin", "object", "op", "digest", "member")
_MUST_BE_NUMBERS = ("version", "seq", "ts")
_MAY_BE_NUMBERS = ("counter", "bytes_before", "bytes_after", "entries", "level")
_BEYOND = 2**63


def _is_well_typed(event: Event) -> bool:
    value = partial(getattr, event)
    dots = [*(event.deps or ()), *([event.reissues] if event.reissues else ())]
    vector = {} if event.vector is None else event.vector
    if type(vector) is not dict:
        return False
    texts = [*map(value, _MUST_BE_TEXT), *(dot.origin for dot in dots), *(event.replaces or ())]
    texts += [text for text in map(value, _MAY_BE_TEXT) if text is not None]
    numbers = [*map(value, _MUST_BE_NUMBERS), *vector.values(), *(dot.counter for dot in dots)]
    numbers += [number for number in map(value, _MAY_BE_NUMBERS) if number is not None]
    return all(type(text) is str for text in texts) and all(
        type(number) is int and -_BEYOND <= number < _BEYOND for number in numbers
    )


def listed_members(event: Event | None) -> list[str]:
    """The members that a START or VIEW lists: incarnation ids where they come and go, else names."""
    return members_in(None if event is None else event.op)


def members_in(op: str | None) -> list[str]:
    """The same, from its column `op`."""
    try:
        found = json.loads(op) if op else []
    except (ValueError, RecursionError):
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


class LogReader:
    """Reads a directory of segments sequentially: incarnation by incarnation, each in the order
    of its `seq`.

    `torn` counts the lines skipped so far. The pure-Python sibling of the Spark ingest, for
    oracles and small logs.
    """

    def __init__(self, directory: Path | str) -> None:
        self.torn = 0
        self._directory = Path(directory)

    def __iter__(self) -> Iterator[Event]:
        try:
            names = sorted(
                entry.name
                for entry in self._directory.iterdir()
                if entry.name.endswith((SEALED, OPEN))
            )
        except OSError as error:
            raise UnusableInputError(
                f"cannot read event logs in {self._directory}: {error}"
            ) from error
        for name in names:
            with open(self._directory / name, "rb") as segment:
                for line in segment:
                    event = parse_line(line) if line.endswith(b"\n") else None
                    if event is None:
                        self.torn += 1
                    else:
                        yield event
