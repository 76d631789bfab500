"""Event logs on disk, one incarnation at a time: which files belong together, and their events with
the place of each. Knows segments that are sealed, still open, or gzipped.
"""

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from crdtcast.eventfiles import OPEN, SCHEMA_VERSION, SEALED, Event, Kind, parse_line
from crdtcast.exceptions import UnusableInputError

_GZIP = ".gz"
_ENDINGS = (SEALED, OPEN, SEALED + _GZIP, OPEN + _GZIP)
_OF_MESSAGES = frozenset({Kind.SEND, Kind.DELIVER, Kind.STABLE, Kind.JOIN, Kind.LEAVE, Kind.EVICT})
_BEFORE_START = 20  # lines looked at for a log's START


class Line(NamedTuple):
    """An event and its place: the number of the segment in `Log.segments`, and of the line, from 1."""

    segment: int
    number: int
    event: Event


@dataclass(slots=True)
class Log:
    """The log of one incarnation. `first` is its first event, `start` its first START, if it has one.

    `torn` counts the lines that are no events, as of the last complete reading.
    """

    group: str
    replica: str
    incarnation: str
    first: Event
    segments: list[Path] = field(default_factory=list)
    start: Event | None = None
    torn: int = 0

    def lines(self) -> Iterator[Line]:
        """All events in the order of the files. A torn line is skipped: `seq` then has a hole,
        unless it was the last line.

        :raises UnusableInputError: a file cannot be read, holds two logs, or is of a newer schema.
        """
        torn = 0
        for index, path in enumerate(self.segments):
            for number, event in _events(path):
                if event is None:
                    torn += 1
                    continue
                if event.incarnation != self.incarnation or event.group != self.group:
                    raise UnusableInputError(
                        f"{path}, line {number} belongs to the log of {event.incarnation}, the file "
                        f"to {self.incarnation}: keep each log in files of its own"
                    )
                yield Line(index, number, event)
        self.torn = torn


@dataclass(frozen=True, slots=True)
class Found:
    """What there is: the logs by group, and files that look like logs and hold no event."""

    groups: dict[str, list[Log]]
    foreign: tuple[Path, ...]


def find_logs(locations: Iterable[Path]) -> Found:
    """The logs in these files, and in these directories with their sub-directories.

    :raises UnusableInputError: a location is not there or cannot be read, a file that was named
        itself holds no events, there are no events at all, or they are of a newer schema.
    """
    logs: dict[tuple[str, str], list[tuple[int, Path]]] = {}
    firsts: dict[tuple[str, str], Event] = {}
    foreign: list[Path] = []
    locations = list(locations)
    for path in _files(locations):
        first = next((event for _, event in _events(path) if event is not None), None)
        if first is None:
            if path in locations:
                raise UnusableInputError(f"{path} is no event log: none of its lines is an event")
            foreign.append(path)
            continue
        key = first.group, first.incarnation
        logs.setdefault(key, []).append((first.seq, path))
        if key not in firsts or first.seq < firsts[key].seq:
            firsts[key] = first
    if not logs:
        where = ", ".join(map(str, locations))
        what = f"none of the lines of {foreign[0].name} is an event" if foreign else "no *.jsonl"
        raise UnusableInputError(f"no event logs in {where}: {what}")
    groups: dict[str, list[Log]] = {}
    for (group, incarnation), segments in sorted(logs.items()):
        first = firsts[group, incarnation]
        log = Log(group, first.replica, incarnation, first)
        log.segments = [path for _, path in sorted(segments)]
        log.start = _start(log)
        groups.setdefault(group, []).append(log)
    return Found(groups, tuple(foreign))


def _files(locations: list[Path]) -> Iterator[Path]:
    for location in locations:
        try:
            if location.is_file():
                yield location
            elif location.is_dir():
                inside = sorted(path for path in location.rglob("*") if path.is_file())
                yield from (path for path in inside if path.name.endswith(_ENDINGS))
            else:
                raise UnusableInputError(f"no event logs: {location} is not there")
        except OSError as error:
            raise UnusableInputError(f"cannot read event logs in {location}: {error}") from error


def _start(log: Log) -> Event | None:
    for count, line in enumerate(log.lines()):
        if line.event.kind == Kind.START:
            return line.event
        if line.event.kind != Kind.VIEW or count > _BEFORE_START:
            break
    return None


def _events(path: Path) -> Iterator[tuple[int, Event | None]]:
    """The lines of a file with their numbers; None for one that is no event."""
    try:
        with _opened(path) as file:
            number = 0
            try:
                for number, line in enumerate(file, 1):
                    yield number, _event(path, number, line)
            except EOFError:  # a gzip file that ends too early
                yield number + 1, None
    except OSError as error:  # also what is not gzip though it is called so
        raise UnusableInputError(f"cannot read {path}: {error}") from error


def _opened(path: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.open(path) if path.name.endswith(_GZIP) else open(path, "rb")


def _event(path: Path, number: int, line: bytes) -> Event | None:
    event = parse_line(line) if line.endswith(b"\n") else None
    if event is None or type(event.version) is not int:
        return None
    if event.version > SCHEMA_VERSION:
        raise UnusableInputError(
            f"{path}, line {number} is of schema version {event.version}; this program knows "
            f"{SCHEMA_VERSION}. Check it with the version of crdtcast that wrote it."
        )
    if type(event.seq) is not int or type(event.ts) is not int:
        return None
    if event.kind in _OF_MESSAGES and not (
        type(event.counter) is int and isinstance(event.origin, str)
    ):
        return None
    return event
