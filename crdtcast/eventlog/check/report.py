"""A violation for people: the sentence, its place, the events that prove it, and the lines around each. For that the
logs are read again, up to the lines shown.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice

from crdtcast.causality.tags import Dot
from crdtcast.eventlog.check.segments import LogLine, SegmentedLog
from crdtcast.eventlog.check.violations import LogPlace, Problem, Violation
from crdtcast.eventlog.format import Event, EventKind

AROUND = 5
"""Lines shown before and after the marked one."""
_MOST = 4  # excerpts, and messages looked for
_ACTS = frozenset({EventKind.SEND, EventKind.DELIVER})


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A line to show: its log, how to recognise it, and why it is shown."""

    incarnation: str
    why: str
    fits: Callable[[LogLine], bool]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Some lines of a log.

    marked: the line that matters. If the log lacks it this is None, and `lines` are the log's last ones.
    lines: empty if they were shown before.
    """

    log: SegmentedLog
    why: str
    lines: tuple[LogLine, ...]
    marked: LogLine | None


def located(violation: Violation, logs: Iterable[SegmentedLog]) -> dict[str, object]:
    """The violation as plain values, with file and line; wall time and dots are text."""
    place = violation.place
    log = _log_of(place.incarnation, logs)
    return {
        "problem": violation.problem.value,
        "group": violation.group,
        "member": place.incarnation,
        "file": os.fspath(log.segments[place.segment]),
        "line": place.line,
        "time": wall_time(place.ts),
        "event": place.kind,
        "dot": None if violation.dot is None else str(violation.dot),
        "object": violation.object or None,
        "others": [str(dot) for dot in violation.others],
        "peers": list(violation.peers),
        "sentence": violation.sentence,
    }


def explained(violation: Violation, logs: Iterable[SegmentedLog]) -> Iterator[str]:
    """The lines of text that show a violation."""
    logs = list(logs)
    place = violation.place
    log = _log_of(place.incarnation, logs)
    yield f"{violation.problem.value}: {violation.sentence}"
    yield (
        f"  {place.kind} at {place.incarnation}, {wall_time(place.ts)}, "
        f"{log.segments[place.segment]}, line {place.line}"
    )
    for excerpt in excerpts(violation, logs):
        yield ""
        if excerpt.lines:
            yield f"{excerpt.why}:"
            yield from _shown(excerpt)
        elif excerpt.marked is not None:
            yield f"{excerpt.why}: line {excerpt.marked.number}, above"


def excerpts(violation: Violation, logs: Iterable[SegmentedLog]) -> Iterator[Excerpt]:
    """The event itself, then the events that prove it, each with the lines around it."""
    by_name = {log.incarnation: log for log in logs}
    marked: set[tuple[str, int, int]] = set()
    shown: set[tuple[str, int, int]] = set()
    for wanted in _wanted(violation):
        log = by_name.get(wanted.incarnation)
        if log is None:
            continue
        excerpt = _excerpt(log, wanted)
        keys = [(log.incarnation, line.segment, line.number) for line in excerpt.lines]
        line = excerpt.marked or excerpt.lines[-1]
        key = log.incarnation, line.segment, line.number
        if key in marked:
            continue
        marked.add(key)
        if key in shown and excerpt.marked is not None:
            excerpt = replace(excerpt, lines=())
        shown.update(keys)
        yield excerpt
        if len(marked) == _MOST:
            return


def _wanted(violation: Violation) -> Iterator[_Wanted]:
    place, dot = violation.place, violation.dot
    me = place.incarnation
    yield _Wanted(me, f"the event, at {me}", _at(place))
    if violation.object:
        for peer in violation.peers:
            fits = _tells(violation.object)
            yield _Wanted(peer, f"another value of {violation.object!r}, at {peer}", fits)
        return
    if dot is None:
        return
    for peer in violation.peers:
        if peer != me:
            yield _Wanted(peer, f"{dot} at {peer}", _about(dot))
    for other in (*violation.others[:_MOST], dot):
        here = place.kind in _ACTS and other == dot and violation.problem is not Problem.DUPLICATE
        if me in violation.peers and not here:
            yield _Wanted(me, f"{other} at {me}", _about(other, but=place))
        if other.origin != me or other != dot:
            yield _Wanted(other.origin, f"{other} is sent", _about(other))


def _at(place: LogPlace) -> Callable[[LogLine], bool]:
    return lambda line: (line.segment, line.number) == (place.segment, place.line)


def _about(dot: Dot, but: LogPlace | None = None) -> Callable[[LogLine], bool]:
    """Fits lines where the message is sent or delivered, and a START that begins with it, except the line `but`."""

    def fits(line: LogLine) -> bool:
        event = line.event
        if but is not None and _at(but)(line):
            return False
        if event.kind == EventKind.START:
            return (event.vector or {}).get(dot.origin, 0) >= dot.counter
        return event.kind in _ACTS and event.dot == dot

    return fits


def _tells(object: str) -> Callable[[LogLine], bool]:
    return lambda line: line.event.kind == EventKind.STATE and line.event.object == object


def _excerpt(log: SegmentedLog, wanted: _Wanted) -> Excerpt:
    before: deque[LogLine] = deque(maxlen=AROUND)
    lines = log.lines()
    for line in lines:
        if wanted.fits(line):
            after = islice(lines, AROUND)
            return Excerpt(log, wanted.why, (*before, line, *after), line)
        before.append(line)
    return Excerpt(log, f"{wanted.why}: missing from its log, which ends here", tuple(before), None)


def _shown(excerpt: Excerpt) -> Iterator[str]:
    file = None
    for line in excerpt.lines:
        if line.segment != file:
            file = line.segment
            yield f"  {excerpt.log.segments[file]}"
        mark = ">" if line is excerpt.marked else " "
        yield f"  {mark} {line.number:>6}  {wall_time(line.event.ts)[11:]}  {described(line.event)}"


def described(event: Event) -> str:
    """One event in a few words."""
    words = [event.kind]
    if event.origin is not None:
        words.append(str(event.dot))
    if event.kind == EventKind.SEND:
        words.append(f"after {{{_dots(event.deps or ())}}}")
        if event.reissues is not None:
            words.append(f"again, was {event.reissues}")
    elif event.kind == EventKind.JOIN:
        words.append(f"admits {event.member}")
    elif event.kind in (EventKind.START, EventKind.SEGMENT):
        words.append(f"with {{{_dots(Dot(*item) for item in (event.vector or {}).items())}}}")
        if event.view is not None:
            words.append(f"in view {event.view} of epoch {event.epoch}")
    elif event.kind == EventKind.VIEW:
        words.append(f"{event.view} of epoch {event.epoch} after {event.before}")
        words += [f"{cut.origin} {cut.how} with {cut.counter}" for cut in event.cuts or ()]
        words += [f"vote for {who}" for who in event.votes or ()]
        words += [] if event.level is None else [f"level {event.level}"]
        words += ["by force"] if event.is_forced else []
    elif event.kind == EventKind.STATE:
        words.append(f"{event.object} {event.digest}")
    elif event.kind in (EventKind.STOP, EventKind.GC) and event.entries is not None:
        words.append(f"{event.entries} left")
    return " ".join(words)


def _dots(dots: Iterable[Dot]) -> str:
    return ", ".join(sorted(str(dot) for dot in dots))


def wall_time(ts: int) -> str:
    """Microseconds since 1970 as UTC; the number itself if it is no date."""
    try:
        moment = datetime.fromtimestamp(ts // 1_000_000, tz=UTC)
    except (ValueError, OverflowError, OSError):
        return f"{ts} us"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{ts % 1_000_000:06d} UTC"


def _log_of(incarnation: str, logs: Iterable[SegmentedLog]) -> SegmentedLog:
    return next(log for log in logs if log.incarnation == incarnation)
