"""What keys are worth at a gateway at one instant, with the part of it that is not stable there; as it travels.

`at` makes of it what the key is worth where more has been delivered, so that a receiver compares its own server with
that, or takes it over. It is exact, whatever has become stable in between: what is stable at the giver is in the past
of all that the giver has not delivered yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, assert_never

import msgpack

from crdtcast.adapters.redis.census import is_replicated
from crdtcast.adapters.redis.contents import (
    ROWS,
    Contents,
    contents_of,
    packed,
    unpacked,
)
from crdtcast.adapters.redis.effects import (
    WHOLE,
    Effect,
    Expire,
    Inc,
    KillData,
    KillKey,
    KillSlots,
    One,
    RedisType,
    Reg,
    Replace,
    Until,
    pairs_of,
)
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import Holds
from crdtcast.adapters.redis.types.strings import String
from crdtcast.adapters.redis.unstable import Atom, KeyLog, Register, SlotLog, UnstableLog
from crdtcast.adapters.redis.worth import PRESENT, Worth, increased, integer_of
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.msgpack_limits import unpacked as within_limits
from crdtcast.tags import Dot, Tag, Vector, covers

_SHOWN = 40
_pack: Callable[[object], bytes] = msgpack.packb


class Later(NamedTuple):
    """An effect on a key that was delivered, or sent, here."""

    effect: Effect
    tag: Tag
    timestamp: int
    place: int


class Value:
    """What a key is worth. Equal values are one, also in a dictionary."""

    __slots__ = ("_same", "contents")

    def __init__(self, contents: Contents | None = None) -> None:
        self.contents: Contents = contents or {}
        self._same = frozenset(
            (type_, slot, worth)
            for type_, content in self.contents.items()
            for slot, worth in content.items()
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self._same == other._same

    def __hash__(self) -> int:
        return hash(self._same)

    def __repr__(self) -> str:
        return f"<{self}>"

    @property
    def is_nothing(self) -> bool:
        return not self.contents

    def __str__(self) -> str:
        words = [
            content[WHOLE].decode(errors="replace")[:_SHOWN]
            if type_ is String.type
            else f"a {TYPES[type_].name.decode()} of {len(content)}"
            for type_, content in sorted(self.contents.items())
        ]
        return " and ".join(words) or "nothing"


@dataclass(frozen=True, slots=True)
class KeyState:
    """One key as its giver has it. value: None if it holds what no gateway has written, `foreign` says what.

    deadline: whether its server is going to drop it.
    """

    key: bytes
    value: Value | None
    foreign: str = ""
    deadline: bool = False
    log: KeyLog = field(default_factory=dict)
    """What is not stable there, of the value."""

    def at(self, vector: Vector, later: Iterable[Later]) -> Value | None:
        """What the key is worth behind effects that the giver has not delivered. vector: of the giver's instant.

        later: all effects on the key beyond that vector, and perhaps others, in the order of their delivery.
        """
        if self.value is None:
            return None
        contents = {type_: dict(content) for type_, content in self.value.contents.items()}
        log = UnstableLog()
        log.take(self.key, self.log)
        for effect, tag, timestamp, place in later:
            if not covers(vector, tag.dot):
                _apply(log, contents, effect, tag, timestamp, place)
        return Value({type_: content for type_, content in contents.items() if content})


def _apply(
    log: UnstableLog,
    contents: dict[RedisType, dict[bytes, Worth]],
    effect: Effect,
    tag: Tag,
    timestamp: int,
    place: int,
) -> None:
    """The same as `Keyspace.apply`, on values."""
    match effect:
        case One(key, type_, slots):
            log.one(key, type_, slots, tag, place)
            contents.setdefault(type_, {}).update(dict.fromkeys(slots, PRESENT))
        case Reg(key, type_, words, since):
            pairs = pairs_of(words)
            written = timestamp if since is None else since
            told = log.write(key, type_, pairs, tag, written, place)
            contents.setdefault(type_, {}).update((s, told.worth(s) or b"") for s in pairs)
        case Inc(key, type_, slot, delta):
            log.increment(key, type_, slot, delta, tag, place)
            content = contents.setdefault(type_, {})
            content[slot] = increased(content.get(slot, b"0"), delta)
        case KillKey(key) | KillData(key) | Replace(key) | Expire(key):
            left = log.kill_data(key, tag)
            contents.clear()
            contents.update((type_, each.survivors()) for type_, each in left.items())
        case KillSlots(key, type_, slots):
            content = contents.get(type_, {})
            for slot in log.kill_slots(key, type_, slots, tag):
                content.pop(slot, None)
            left_of = log.of(key, type_)
            content.update((s, w) for s in slots if (w := left_of.worth(s)) is not None)
        case Until():
            pass
        case _:
            assert_never(effect)


def read_state(
    key: bytes,
    kind: object,
    ttl: object,
    replies: Sequence[object],
    hidden: Collection[RedisType],
    log: KeyLog,
    known: int | Holds | None = None,
) -> KeyState:
    """From the server's answers to TYPE and PTTL, and to `contents.reads_of`. known: what its gateway knows of it."""
    deadline = isinstance(ttl, int) and ttl >= 0
    if not is_replicated(kind):
        name = kind.decode(errors="replace") if isinstance(kind, bytes) else "something unreadable"
        return KeyState(key, None, f"a key of type {name}", deadline, log)
    contents = contents_of(replies, hidden)
    if contents and known is not None and not _may_be(contents, known):
        visible = TYPES[min(contents)].name.decode()
        return KeyState(
            key, None, f"a {visible} where its gateway has written something else", deadline, log
        )
    return KeyState(key, Value(contents), "", deadline and kind != b"none", log)


def _may_be(contents: Contents, known: int | Holds) -> bool:
    """Whether what is visible is of the kind that is known."""
    visible = min(contents)
    if isinstance(known, int):
        return visible is String.type and integer_of(contents[visible][WHOLE]) is not None
    return known.type is None or known.type is visible


# On the wire


def encode_states(vector: Vector, states: Iterable[KeyState]) -> bytes:
    """States as of one instant."""
    return _pack([dict(vector), [_row(state) for state in states]])


def _row(state: KeyState) -> list[object]:
    contents = None if state.value is None else packed(state.value.contents)
    log = {int(type_): _log_row(each) for type_, each in state.log.items()}
    return [state.key, contents, state.foreign, state.deadline, log]


def _log_row(log: SlotLog) -> list[object]:
    deltas = [
        [slot, [[*_atom_row(atom), b"%d" % delta] for atom, delta in each.items()]]
        for slot, each in log.increments.items()
    ]
    held = [[slot, [_atom_row(atom) for atom in atoms]] for slot, atoms in log.held.items()]
    return [deltas, held]


def _atom_row(atom: Atom | Register) -> list[object]:
    (origin, counter), place, *rest = atom
    return [origin, counter, place, *rest]


def decode_states(raw: bytes) -> tuple[Vector, list[KeyState]]:
    """Raises RemoteProtocolError."""
    try:
        vector, rows = within_limits(raw, ROWS, strict_map_key=False)
        told = {str(origin): int(counter) for origin, counter in vector.items()}
        return told, [_state(*row) for row in rows]
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"no states of a gateway's keys: {error}") from error


def _state(key: Any, contents: Any, foreign: Any, deadline: Any, log: Any) -> KeyState:
    if type(key) is not bytes:
        raise ValueError("a key is bytes")
    value = None if contents is None else Value(unpacked(contents))
    logs = {RedisType(number): _log(*rows) for number, rows in log.items()}
    return KeyState(key, value, str(foreign), deadline is True, logs)


def _log(deltas: Any, held: Any) -> SlotLog:
    increments: dict[bytes, dict[Atom, int]] = {
        slot: {_presence(*where): int(delta) for *where, delta in each} for slot, each in deltas
    }
    atoms = {slot: tuple(_atom(*row) for row in rows) for slot, rows in held}
    if not all(type(slot) is bytes for slot in (*increments, *atoms)):
        raise ValueError("a slot is bytes")
    return SlotLog(increments, atoms)


def _atom(origin: Any, counter: Any, place: Any, *written: Any) -> Atom | Register:
    if not written:
        return _presence(origin, counter, place)
    timestamp, value = written
    if type(value) is not bytes:
        raise ValueError("a value is bytes")
    return Register(Dot(str(origin), int(counter)), int(place), int(timestamp), value)


def _presence(origin: Any, counter: Any, place: Any) -> Atom:
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

    What more than half of the members hold is right. Otherwise nothing is lost: what only some hold is kept, each slot
    by itself; two different values of one stay disputed.
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
    merged: dict[RedisType, dict[bytes, Worth]] = {}
    for value in votes.values():
        for type_, content in value.contents.items():
            slots = merged.setdefault(type_, {})
            if any(slots.setdefault(slot, worth) != worth for slot, worth in content.items()):
                return Verdict(None, "there are different values, and no majority")
    return Verdict(Value(merged), "nothing is lost")
