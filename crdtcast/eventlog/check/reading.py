"""One file of an event log, line by line; it may be gzipped."""

import gzip
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from crdtcast.eventlog.format import GZIP, SCHEMA_VERSION, Event, EventKind, parse_line
from crdtcast.exceptions import UnusableInputError

_OF_MESSAGES = frozenset(
    {
        EventKind.SEND,
        EventKind.DELIVER,
        EventKind.STABLE,
        EventKind.JOIN,
        EventKind.LEFT,
        EventKind.EVICT,
    }
)


def events_of(path: Path) -> Iterator[tuple[int, Event | None]]:
    """The lines of a file with their numbers; None for a line that is not an event."""
    try:
        with opened(path) as file:
            number = 0
            try:
                for number, line in enumerate(file, 1):
                    yield number, _event(path, number, line)
            except (EOFError, zlib.error):  # a gzip file that ends too early, or is damaged
                yield number + 1, None
    except OSError as error:  # also if a *.gz file is not gzip
        raise UnusableInputError(f"cannot read {path}: {error}") from error


def opened(path: Path) -> gzip.GzipFile | BufferedReader:
    """The file, decompressed when it is read."""
    return gzip.open(path) if path.name.endswith(GZIP) else open(path, "rb")


def _event(path: Path, number: int, line: bytes) -> Event | None:
    event = parse_line(line) if line.endswith(b"\n") else None
    if event is None:
        return None
    if event.version > SCHEMA_VERSION:
        raise UnusableInputError(
            f"cannot check {path}, line {number}: it has schema version {event.version}, and this "
            f"program reads {SCHEMA_VERSION}: use the version of crdtcast that wrote it"
        )
    if event.kind in _OF_MESSAGES and (event.counter is None or event.origin is None):
        return None
    if event.kind == EventKind.VIEW and None in (event.epoch, event.view, event.before):
        return None
    return event
