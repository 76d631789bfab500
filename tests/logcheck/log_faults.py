"""Faults planted into clean logs, each with the place where a check has to find it.

Every function changes one thing in the logs of a group that came to rest (see
`tests.logcheck.event_logs`) and tells where. FAULTS names them.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from crdtcast.causality.tags import Dot
from crdtcast.eventlog.format import Event, EventKind
from tests.logcheck.event_logs import Logs


@dataclass(frozen=True, slots=True)
class Planted:
    """The finding that this fault is: which check, at which replica, about which message (as
    `origin:counter`) or, for a value, which object; empty if it is about neither."""

    check: str
    replica: str
    about: str = ""


Fault = Callable[[Logs, random.Random], Planted]


def plant(name: str, logs: Logs, seed: int) -> Planted:
    """Plant the fault of this name; `logs` are changed in place, and numbered again."""
    planted = FAULTS[name](logs, random.Random(seed))
    if name not in _KEEPS_HOLES:
        for incarnation, events in logs.items():
            logs[incarnation] = [replace(e, seq=seq) for seq, e in enumerate(events, 1)]
    return planted


# --- order --------------------------------------------------------------------------------------


def _swap(logs: Logs, draw: random.Random) -> Planted:
    """Two messages of one origin change places."""
    log, place = _some_delivery(logs, draw, followed=True)
    second = _next_of_origin(log, place)
    assert second is not None
    log[place], log[second] = log[second], log[place]
    return Planted("order", log[second].replica, str(log[second].dot))


def _drop(logs: Logs, draw: random.Random) -> Planted:
    """A delivery is missing, later ones of its origin are there."""
    log, place = _some_delivery(logs, draw, followed=True)
    return _removed("order", log, place)


def _drop_last(logs: Logs, draw: random.Random) -> Planted:
    """The last delivery of an origin is missing."""
    log, place = _some_delivery(logs, draw, followed=False)
    return _removed("order", log, place)


def _duplicate(logs: Logs, draw: random.Random) -> Planted:
    """A message is delivered again later."""
    log, place = _some_delivery(logs, draw, followed=None)
    log.insert(draw.randrange(place + 1, len(log)), log[place])
    return Planted("order", log[place].replica, str(log[place].dot))


def _never_sent(logs: Logs, draw: random.Random) -> Planted:
    """A message is delivered that its origin's log does not know."""
    log, place = _some_delivery(logs, draw, followed=False)
    event = replace(log[place], counter=log[place].dot.counter + 1)
    log.insert(draw.randrange(place + 1, len(log)), event)
    return Planted("order", event.replica, str(event.dot))


def _foreign_send(logs: Logs, draw: random.Random) -> Planted:
    """A replica claims to have sent another one's message."""
    log, place = _some_delivery(logs, draw, followed=None)
    log[place] = replace(log[place], kind=EventKind.SEND, deps=())
    return Planted("order", log[place].replica, str(log[place].dot))


def _rolled_back(logs: Logs, draw: random.Random) -> Planted:
    """The same incarnation starts again from before its last delivery of some origin."""
    log, place = _some_delivery(logs, draw, followed=None)
    dot = log[place].dot
    vector: dict[str, int] = {}
    for event in log[:place]:
        if event.kind in (EventKind.SEND, EventKind.DELIVER):
            vector[event.dot.origin] = event.dot.counter
    log.insert(place + 1, replace(log[0], vector=vector))
    return Planted("order", log[place].replica, str(dot))


# --- causality ----------------------------------------------------------------------------------


def _dependant_first(logs: Logs, draw: random.Random) -> Planted:
    """A message is delivered before one that it depends on, of another origin."""
    sends = _sends(logs)
    found = []
    for log in logs.values():
        places = {
            event.dot: place for place, event in enumerate(log) if event.kind == EventKind.DELIVER
        }
        for dot, place in places.items():
            for dep in sends[dot].deps or ():
                early = places.get(dep, place)
                between = log[early + 1 : place]
                # Only these two may change places: nothing that either has to stay apart from.
                apart = all(
                    e.kind not in (EventKind.SEND, EventKind.DELIVER)
                    or (
                        e.dot.origin not in (dot.origin, dep.origin)
                        and dep not in (sends[e.dot].deps or ())
                        and e.dot not in (sends[dot].deps or ())
                        and e.kind == EventKind.DELIVER
                    )
                    for e in between
                )
                if dep.origin != dot.origin and early < place and apart:
                    found.append((log, early, place))
    log, early, place = draw.choice(found)
    log[early], log[place] = log[place], log[early]
    return Planted("causality", log[early].replica, str(log[early].dot))


def _omitted(logs: Logs, draw: random.Random) -> Planted:
    """A message does not name something that its sender had delivered."""
    log, place = _some_send(logs, draw, lambda event: _foreign_deps(event))
    event = log[place]
    omitted = draw.choice(_foreign_deps(event))
    log[place] = replace(event, deps=tuple(dep for dep in event.deps or () if dep != omitted))
    return Planted("causality", event.replica, str(event.dot))


def _invented(logs: Logs, draw: random.Random) -> Planted:
    """A message names something that its sender delivered only later."""
    log, place = _some_send(logs, draw, lambda event: True, before_a_delivery=True)
    later = next(event for event in log[place:] if event.kind == EventKind.DELIVER)
    log[place] = replace(log[place], deps=(*(log[place].deps or ()), later.dot))
    return Planted("causality", log[place].replica, str(log[place].dot))


def _invented_nothing(logs: Logs, draw: random.Random) -> Planted:
    """A message names something that does not exist."""
    log, place = _some_send(logs, draw, lambda event: True)
    event = log[place]
    log[place] = replace(event, deps=(*(event.deps or ()), Dot("r00.00000000000000ff", 7)))
    return Planted("causality", event.replica, str(event.dot))


# --- stability ----------------------------------------------------------------------------------


def _early_stable(logs: Logs, draw: random.Random) -> Planted:
    """Stability is told at once on delivery, when concurrent messages are still to come."""
    past = pasts(logs)
    found = []
    for log in logs.values():
        for place, event in enumerate(log):
            if event.kind in (EventKind.SEND, EventKind.DELIVER):
                told = _told(log, event.dot)
                after = [e.dot for e in log[place + 1 : told] if e.kind == EventKind.DELIVER]
                if any(event.dot not in past[dot] for dot in after):
                    found.append((log, place, told))
    log, place, told = draw.choice(found)
    event = log.pop(told)
    log.insert(place + 1, event)
    return Planted("stability", event.replica, str(event.dot))


def _stable_before_delivery(logs: Logs, draw: random.Random) -> Planted:
    """Stability is told before the delivery."""
    log, place = _some_delivery(logs, draw, followed=None)
    event = log.pop(_told(log, log[place].dot))
    log.insert(place, event)
    return Planted("stability", event.replica, str(event.dot))


def _stable_twice(logs: Logs, draw: random.Random) -> Planted:
    """Stability is told again."""
    log, place = _some(logs, draw, EventKind.STABLE)
    log.insert(draw.randrange(place + 1, len(log)), log[place])
    return Planted("stability", log[place].replica, str(log[place].dot))


def _stable_out_of_order(logs: Logs, draw: random.Random) -> Planted:
    """Of two messages of one origin the later one is told stable first."""
    found = []
    for log in logs.values():
        for place, event in enumerate(log):
            if event.kind == EventKind.STABLE:
                following = Dot(event.dot.origin, event.dot.counter + 1)
                told = _told(log, following)
                if told == place + 1:
                    found.append((log, place))
    log, place = draw.choice(found)
    log[place], log[place + 1] = log[place + 1], log[place]
    return Planted("stability", log[place].replica, str(log[place].dot))


# --- values and garbage -------------------------------------------------------------------------


def _wrong_digest(logs: Logs, draw: random.Random) -> Planted:
    """One replica's value of an object differs at the end."""
    log = logs[draw.choice(sorted(logs))]
    at_the_end = [
        place
        for place, event in enumerate(log)
        if event.kind == EventKind.STATE
        and not any(e.kind in (EventKind.SEND, EventKind.DELIVER) for e in log[place:])
    ]
    place = draw.choice(at_the_end)
    log[place] = replace(log[place], digest="0" * 16)
    return Planted("convergence", log[place].replica, log[place].object or "")


def _leak(logs: Logs, draw: random.Random) -> Planted:
    """A message never becomes stable at one replica."""
    log, place = _some(logs, draw, EventKind.STABLE)
    return _removed("garbage", log, place)


def _leak_unclaimed(logs: Logs, draw: random.Random) -> Planted:
    """The same at a replica that is killed, so that its log does not say that all is stable."""
    log, place = _some(logs, draw, EventKind.STABLE, first_half=True)
    planted = _removed("garbage", log, place)
    log[:] = [event for event in log if event.kind not in (EventKind.STOP, EventKind.GC)]
    return planted


def _metadata_left(logs: Logs, draw: random.Random) -> Planted:
    """Metadata remains although everything is stable."""
    log = logs[draw.choice(sorted(logs))]
    place = max(place for place, event in enumerate(log) if event.kind == EventKind.GC)
    log[place] = replace(log[place], entries=3, bytes_after=700)
    return Planted("garbage", log[place].replica)


# --- the log itself -----------------------------------------------------------------------------


def _hole(logs: Logs, draw: random.Random) -> Planted:
    """Some lines are not there, as after a full disk."""
    log, place = _some_delivery(logs, draw, followed=True)
    del log[place : place + draw.randint(1, 5)]
    return Planted("log", log[place].replica)


def _line_twice(logs: Logs, draw: random.Random) -> Planted:
    """A line is there twice."""
    log, place = _some_delivery(logs, draw, followed=True)
    log.insert(place, log[place])
    return Planted("log", log[place].replica)


FAULTS: dict[str, Fault] = {
    "swap": _swap,
    "drop": _drop,
    "drop-last": _drop_last,
    "duplicate": _duplicate,
    "never-sent": _never_sent,
    "foreign-send": _foreign_send,
    "rolled-back": _rolled_back,
    "dependant-first": _dependant_first,
    "omitted": _omitted,
    "invented": _invented,
    "invented-nothing": _invented_nothing,
    "early-stable": _early_stable,
    "stable-before-delivery": _stable_before_delivery,
    "stable-twice": _stable_twice,
    "stable-out-of-order": _stable_out_of_order,
    "wrong-digest": _wrong_digest,
    "leak": _leak,
    "leak-unclaimed": _leak_unclaimed,
    "metadata-left": _metadata_left,
    "hole": _hole,
    "line-twice": _line_twice,
}
_KEEPS_HOLES = frozenset({"hole", "line-twice"})


# --- looking around in logs ---------------------------------------------------------------------


def pasts(logs: Logs) -> dict[Dot, set[Dot]]:
    """Message -> its causal past, by the definition: what its sender had sent or delivered."""
    result: dict[Dot, set[Dot]] = {}
    for log in logs.values():
        seen: set[Dot] = set()
        for event in log:
            if event.kind == EventKind.SEND:
                result[event.dot] = set(seen)
            if event.kind in (EventKind.SEND, EventKind.DELIVER):
                seen.add(event.dot)
    return result


def _sends(logs: Logs) -> dict[Dot, Event]:
    return {e.dot: e for log in logs.values() for e in log if e.kind == EventKind.SEND}


def _removed(check: str, log: list[Event], place: int) -> Planted:
    event = log.pop(place)
    return Planted(check, event.replica, str(event.dot))


def _told(log: list[Event], dot: Dot) -> int:
    return next(
        (p for p, e in enumerate(log) if e.kind == EventKind.STABLE and e.dot == dot), len(log)
    )


def _next_of_origin(log: list[Event], place: int) -> int | None:
    wanted = Dot(log[place].dot.origin, log[place].dot.counter + 1)
    return next(
        (p for p, e in enumerate(log) if e.kind == EventKind.DELIVER and e.dot == wanted), None
    )


def _places(logs: Logs, kind: EventKind) -> Iterator[tuple[list[Event], int]]:
    for incarnation in sorted(logs):
        log = logs[incarnation]
        for place, event in enumerate(log):
            if event.kind == kind:
                yield log, place


def _some(
    logs: Logs, draw: random.Random, kind: EventKind, *, first_half: bool = False
) -> tuple[list[Event], int]:
    return draw.choice(
        [
            (log, place)
            for log, place in _places(logs, kind)
            if not first_half or place < len(log) // 2
        ]
    )


def _some_delivery(
    logs: Logs, draw: random.Random, *, followed: bool | None
) -> tuple[list[Event], int]:
    """`followed`: whether a later message of its origin is delivered there; None: either."""
    return draw.choice(
        [
            (log, place)
            for log, place in _places(logs, EventKind.DELIVER)
            if followed in (None, _next_of_origin(log, place) is not None)
        ]
    )


def _some_send(
    logs: Logs,
    draw: random.Random,
    fits: Callable[[Event], object],
    *,
    before_a_delivery: bool = False,
) -> tuple[list[Event], int]:
    return draw.choice(
        [
            (log, place)
            for log, place in _places(logs, EventKind.SEND)
            if fits(log[place])
            and (not before_a_delivery or any(e.kind == EventKind.DELIVER for e in log[place:]))
        ]
    )


def _foreign_deps(event: Event) -> list[Dot]:
    return [dep for dep in event.deps or () if dep.origin != event.incarnation]
