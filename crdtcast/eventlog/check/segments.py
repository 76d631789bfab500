"""Event logs on disk, one incarnation at a time: which files form a log, which logs are of one group, and the events
with their places.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from crdtcast.causality.member_id import name_of
from crdtcast.eventlog.check.reading import events_of
from crdtcast.eventlog.check.runs import Segments, runs
from crdtcast.eventlog.format import GZIP, OPEN, SEALED, Event, EventKind, listed_members
from crdtcast.exceptions import UnusableInputError

_ENDINGS = (SEALED, OPEN, SEALED + GZIP, OPEN + GZIP)


class LogLine(NamedTuple):
    """An event and its place: the number of the segment in `SegmentedLog.segments`, and of the line, from 1."""

    segment: int
    number: int
    event: Event


@dataclass(slots=True)
class SegmentedLog:
    """The log of one incarnation. `first` is its first event, `start` its first START, if it has one.

    `torn` counts the lines that are not events, as of the last complete reading.
    """

    group: str
    replica: str
    incarnation: str
    first: Event
    segments: list[Path] = field(default_factory=list)
    start: Event | None = None
    torn: int = 0

    def lines(self) -> Iterator[LogLine]:
        """All events in the order of the files. A torn line is skipped: then `seq` has a hole, unless it was the last
        line.

        :raises UnusableInputError: if a file cannot be read, holds two logs, or has a newer schema.
        """
        torn = 0
        for index, path in enumerate(self.segments):
            for number, event in events_of(path):
                if event is None:
                    torn += 1
                    continue
                if event.incarnation != self.incarnation or event.group != self.group:
                    raise UnusableInputError(
                        f"{path}, line {number} belongs to the log of {event.incarnation}, but "
                        f"the file to {self.incarnation}: keep each log in separate files"
                    )
                yield LogLine(index, number, event)
        self.torn = torn


@dataclass(frozen=True, slots=True)
class FoundSegments:
    """The logs by group, and by run if several runs lie side by side; and files named like logs, without an event."""

    groups: dict[tuple[str, str], list[SegmentedLog]]
    """(Name of the group, directory) -> logs; see `runs` for the directory."""
    foreign: tuple[Path, ...]


def find_logs(locations: Iterable[Path]) -> FoundSegments:
    """The logs in these files, and in these directories with their sub-directories.

    :raises UnusableInputError: if a location does not exist or cannot be read, a file given by name has no events,
        there are no events at all, or they have a newer schema.
    """
    named: dict[str, Segments] = {}
    firsts: dict[Path, Event] = {}
    foreign: list[Path] = []
    locations = list(locations)
    for path in _files(locations):
        first = next((event for _, event in events_of(path) if event is not None), None)
        if first is None:
            if path in locations:
                raise UnusableInputError(f"{path} is not an event log: no line of it is an event")
            foreign.append(path)
            continue
        present = named.setdefault(first.group, {})
        present.setdefault(first.incarnation, []).append((first.seq, path))
        firsts[path] = first
    groups: dict[tuple[str, str], list[SegmentedLog]] = {}
    for group, everything in sorted(named.items()):
        for run, incarnations in runs(everything).items():
            logs = []
            for incarnation, segments in sorted(incarnations.items()):
                paths = [path for _, path in sorted(segments)]
                first = firsts[paths[0]]
                log = SegmentedLog(group, first.replica, incarnation, first, paths)
                told = next(
                    (line.event for line in log.lines() if line.event.kind != EventKind.SEGMENT),
                    None,
                )
                if told is None:  # it ended before its START was written
                    foreign += paths
                    continue
                log.start = told if told.kind == EventKind.START else None
                logs.append(log)
            if logs:
                groups[group, run] = logs
    if not groups:
        where = ", ".join(map(str, locations))
        what = f"{foreign[0].name} has no events" if foreign else "no *.jsonl"
        raise UnusableInputError(f"no event logs in {where}: {what}")
    return FoundSegments(groups, tuple(foreign))


def founded_apart(logs: Sequence[SegmentedLog]) -> list[list[SegmentedLog]]:
    """The logs of each group, if several groups of one name were founded apart. Logs are linked by the members that
    STARTs list. Fixed members are listed by name, which links nothing: then all logs count as one group's.
    """
    linked: dict[str, str] = {}

    def root(one: str) -> str:
        while linked.setdefault(one, one) != one:
            linked[one] = one = linked[linked[one]]
        return one

    for log in logs:
        ids = [one for one in listed_members(log.start) if name_of(one)]
        if log.start is None or not ids:
            return [list(logs)]
        for one in (*ids, *(log.start.vector or ())):
            linked[root(one)] = root(log.incarnation)
    parts: dict[str, list[SegmentedLog]] = {}
    for log in logs:
        parts.setdefault(root(log.incarnation), []).append(log)
    return list(parts.values())


def _files(locations: list[Path]) -> Iterator[Path]:
    for location in locations:
        try:
            if location.is_file():
                yield location
            elif location.is_dir():
                inside = sorted(path for path in location.rglob("*") if path.is_file())
                yield from (path for path in inside if path.name.endswith(_ENDINGS))
            else:
                raise UnusableInputError(f"no event logs: {location} does not exist")
        except OSError as error:
            raise UnusableInputError(f"cannot read event logs in {location}: {error}") from error
