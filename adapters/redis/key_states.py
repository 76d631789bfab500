"""What keys are worth at a gateway at one instant, with the part of it that is not stable there; as it travels.

`at` makes of it what the key is worth where more has been delivered, so that a receiver compares its own server with
that, or takes it over. It is exact, whatever has become stable in between: what is stable at the giver is in the past
of all that the giver has not delivered yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack

from crdtcast.adapters.redis.effects import Effect, Inc, KillKey, KillSlots, One
from crdtcast.adapters.redis.keyspace import integer_of
from crdtcast.adapters.redis.unstable import Atom, KeyLog, UnstableLog
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.tags import Dot, Tag, Vector, covers

NO_INTEGER = "a string that is not an integer"
_pack: Callable[[object], bytes] = msgpack.packb


class Later(NamedTuple):
    """An effect on a key that was delivered, or sent, here."""

    effect: Effect
    tag: Tag
    place: int


@dataclass(frozen=True, slots=True)
class Value:
    """What a key of a replicated type is worth. Both a number and members: the number hides the set."""

    number: int | None = None
    members: frozenset[bytes] = frozenset()

    @property
    def is_nothing(self) -> bool:
        return self.number is None and not self.members

    def __str__(self) -> str:
        number = [] if self.number is None else [str(self.number)]
        members = [f"a set of {len(self.members)}"] if self.members else []
        return " and ".join(number + members) or "nothing"


@dataclass(frozen=True, slots=True)
class KeyState:
    """One key as its giver has it. value: None if it holds what no gateway has written, `foreign` says what.

    deadline: whether its server is going to drop it.
    """

    key: bytes
    value: Value | None
    foreign: str = ""
    deadline: bool = False
    log: KeyLog = field(default_factory=KeyLog)
    """What is not stable there, of the value."""

    def at(self, vector: Vector, later: Iterable[Later]) -> Value | None:
        """What the key is worth behind effects that the giver has not delivered. vector: of the giver's instant.

        later: all effects on the key beyond that vector, and perhaps others, in the order of their delivery.
        """
        if self.value is None:
            return None
        number, members = self.value.number, set(self.value.members)
        log = UnstableLog()
        log.take(self.key, self.log)
        for effect, tag, place in later:
            if covers(vector, tag.dot):
                continue
            number, members = _applied(log, number, members, effect, tag, place)
        return Value(number, frozenset(members))


def _applied(
    log: UnstableLog, number: int | None, members: set[bytes], effect: Effect, tag: Tag, place: int
) -> tuple[int | None, set[bytes]]:
    """The same as `Keyspace.apply`, on values."""
    match effect:
        case One(key, _, slots):
            log.one(key, slots, tag, place)
            return number, members.union(slots)
        case Inc(key, _, delta):
            log.increment(key, delta, tag, place)
            return (number or 0) + delta, members
        case KillKey(key):
            left = log.kill_key(key, tag)
            return sum(left.increments.values()) if left.increments else None, set(left.members)
        case KillSlots(key, _, slots):
            return number, members.difference(log.kill_members(key, slots, tag))


def read_state(
    key: bytes,
    kind: object,
    text: object,
    visible: object,
    hidden: object,
    ttl: object,
    log: KeyLog,
) -> KeyState:
    """From the server's answers to TYPE, GET, SMEMBERS, SMEMBERS of the hidden set and PTTL."""
    deadline = isinstance(ttl, int) and ttl >= 0
    aside = frozenset(hidden) if isinstance(hidden, list) else frozenset()
    if kind == b"none":
        return KeyState(key, Value(None, aside), "", False, log)
    if kind == b"set" and isinstance(visible, list):
        return KeyState(key, Value(None, frozenset(visible) | aside), "", deadline, log)
    if kind == b"string":
        number = integer_of(text)
        if number is not None:
            return KeyState(key, Value(number, aside), "", deadline, log)
        return KeyState(key, None, NO_INTEGER, deadline, log)
    name = kind.decode(errors="replace") if isinstance(kind, bytes) else "something unreadable"
    return KeyState(key, None, f"a key of type {name}", deadline, log)


# On the wire


def encode_states(vector: Vector, states: Iterable[KeyState]) -> bytes:
    """States as of one instant."""
    return _pack([dict(vector), [_row(state) for state in states]])


def _row(state: KeyState) -> list[object]:
    value = state.value
    number = None if value is None or value.number is None else b"%d" % value.number
    members = None if value is None else list(value.members)
    increments = [[*_dot(atom), b"%d" % delta] for atom, delta in state.log.increments.items()]
    presences = [[m, [_dot(a) for a in atoms]] for m, atoms in state.log.members.items()]
    return [state.key, number, members, state.foreign, state.deadline, increments, presences]


def _dot(atom: Atom) -> list[object]:
    return [atom.dot.origin, atom.dot.counter, atom.place]


def decode_states(raw: bytes) -> tuple[Vector, list[KeyState]]:
    """Raises RemoteProtocolError."""
    try:
        vector, rows = msgpack.unpackb(raw)
        told = {str(origin): int(counter) for origin, counter in vector.items()}
        return told, [_state(*row) for row in rows]
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"no states of a gateway's keys: {error}") from error


def _state(
    key: Any,
    number: Any,
    members: Any,
    foreign: Any,
    deadline: Any,
    increments: Any,
    presences: Any,
) -> KeyState:
    if not all(type(word) is bytes for word in (key, *(members or ()))):
        raise ValueError("a key's value is bytes")
    log = KeyLog(
        {_atom(*place): int(delta) for *place, delta in increments},
        {member: tuple(_atom(*place) for place in places) for member, places in presences},
    )
    value = None
    if members is not None:
        value = Value(None if number is None else int(number), frozenset(members))
    return KeyState(key, value, str(foreign), deadline is True, log)


def _atom(origin: Any, counter: Any, place: Any) -> Atom:
    return Atom(Dot(str(origin), int(counter)), int(place))


# Who is right


@dataclass(frozen=True, slots=True)
class Verdict:
    """value: what the key is worth, None if that cannot be decided. why: in words, for a log line."""

    value: Value | None
    why: str


def decide(votes: Mapping[str, Value], members: int, *, complete: bool) -> Verdict:
    """Who is right about a key. votes: what it is worth at members that hold a value which a gateway may have written,
    all as of one history; members: of the group; complete: whether all members were heard.

    What more than half of the members hold is right. Otherwise nothing is lost: what only some hold is kept, set
    members each by itself; two different numbers stay disputed.
    """
    counts: dict[Value, list[str]] = {}
    for name, value in sorted(votes.items()):
        counts.setdefault(value, []).append(name)
    for value, names in counts.items():
        if 2 * len(names) > members:
            return Verdict(value, f"{' and '.join(names)} hold it")
    if not complete:
        return Verdict(None, "a member that could decide it is away")
    if not votes:
        return Verdict(None, "no member holds a value that a gateway has written")
    numbers = {value.number for value in votes.values()} - {None}
    if len(numbers) > 1:
        return Verdict(None, "there are different numbers, and no majority")
    union = frozenset[bytes]().union(*(value.members for value in votes.values()))
    return Verdict(Value(numbers.pop() if numbers else None, union), "nothing is lost")
