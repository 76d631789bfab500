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
    deadline_of,
    packed,
    types_of,
    unpacked,
)
from crdtcast.adapters.redis.databases import check_name, db_of
from crdtcast.adapters.redis.deadlines.atoms import Deadline, Deadlines, winner
from crdtcast.adapters.redis.effects import (
    NEVER,
    WHOLE,
    Effect,
    Expire,
    Inc,
    KillAll,
    KillData,
    KillKey,
    KillSlots,
    One,
    Only,
    RedisType,
    Reg,
    Replace,
    Until,
    pairs_of,
)
from crdtcast.adapters.redis.keyspace import Keyspace
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import Holds
from crdtcast.adapters.redis.types.strings import String
from crdtcast.adapters.redis.unstable import Atom, KeyLog, Register, SlotLog, UnstableLog
from crdtcast.adapters.redis.worth import (
    PRESENT,
    Figures,
    Number,
    Worth,
    figures,
    increased,
    number_of,
    text_of,
)
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
        return not types_of(self.contents)

    def __str__(self) -> str:
        words = [
            content[WHOLE].decode(errors="replace")[:_SHOWN]
            if type_ is String.type
            else f"a {TYPES[type_].name.decode()} of {len(content)}"
            for type_, content in sorted(self.contents.items())
            if type_ in TYPES
        ]
        if (at := deadline_of(self.contents)) != NEVER:
            words.append(f"a deadline ({at} ms)")
        return " and ".join(words) or "nothing"

    @property
    def at(self) -> int:
        """Its deadline."""
        return deadline_of(self.contents)


@dataclass(frozen=True, slots=True)
class KeyState:
    """One key as its giver has it. value: None if it holds what no gateway has written, `foreign` says what."""

    key: bytes
    value: Value | None
    foreign: str = ""
    log: KeyLog = field(default_factory=dict)
    """What is not stable there, of the value."""
    deadlines: Deadlines = ()
    """What is not stable of its deadline."""

    def at(self, vector: Vector, later: Iterable[Later]) -> Value | None:
        """What the key is worth behind effects that the giver has not delivered. vector: of the giver's instant.

        later: all effects on the key beyond that vector, and perhaps others, in the order of their delivery.
        """
        if self.value is None:
            return None
        contents = {type_: dict(content) for type_, content in self.value.contents.items()}
        log = UnstableLog()
        log.take(self.key, self.log)
        log.deadlines.take(self.key, self.deadlines)
        for effect, tag, timestamp, place in later:
            if not covers(vector, tag.dot):
                _apply(self.key, log, contents, effect, tag, timestamp, place)
        return Value({type_: content for type_, content in contents.items() if content})


def _apply(
    of: bytes,
    log: UnstableLog,
    contents: dict[RedisType, dict[bytes, Worth]],
    effect: Effect,
    tag: Tag,
    timestamp: int,
    place: int,
) -> None:
    """The same as `Keyspace.apply`, on values. of: the key."""
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
        case KillKey(key) | Expire(key, True):
            _hold_only(contents, log.kill_key(key, tag))
            _set_deadline(contents, log, key)
        case KillData(key) | Expire(key):
            at = contents.pop(RedisType.DEADLINE, None)
            _hold_only(contents, log.kill_data(key, tag))
            if at is not None:
                contents[RedisType.DEADLINE] = at
        case Replace(key, at):
            _hold_only(contents, log.kill_key(key, tag))
            log.deadlines.set(key, at, Only.ALWAYS, tag, timestamp, place)
            _set_deadline(contents, log, key)
        case Until(key, at, only):
            log.deadlines.set(key, at, only, tag, timestamp, place)
            _set_deadline(contents, log, key)
        case KillSlots(key, type_, slots):
            content = contents.get(type_, {})
            for slot in log.kill_slots(key, type_, slots, tag):
                content.pop(slot, None)
            left_of = log.of(key, type_)
            content.update((s, w) for s in slots if (w := left_of.worth(s)) is not None)
        case KillAll(db):
            if db is None or db == db_of(of):
                log.kill_all(db, tag)
                _hold_only(contents, log.key(of))
                _set_deadline(contents, log, of)
        case _:
            assert_never(effect)


def _hold_only(contents: dict[RedisType, dict[bytes, Worth]], left: KeyLog) -> None:
    contents.clear()
    contents.update((type_, each.survivors()) for type_, each in left.items())


def _set_deadline(
    contents: dict[RedisType, dict[bytes, Worth]], log: UnstableLog, key: bytes
) -> None:
    last = winner(log.deadlines.of(key))
    contents.pop(RedisType.DEADLINE, None)
    if last is not None and last.at != NEVER:
        contents[RedisType.DEADLINE] = {WHOLE: b"%d" % last.at}


def read_state(
    key: bytes,
    kind: object,
    replies: Sequence[object],
    hidden: Collection[RedisType],
    keyspace: Keyspace,
) -> KeyState:
    """From the server's answers to TYPE, and to `contents.reads_of`. keyspace: what its gateway knows of it."""
    log, known = keyspace.log.key(key), keyspace.known(key)
    deadlines = keyspace.log.deadlines.of(key)
    if not is_replicated(kind):
        name = kind.decode(errors="replace") if isinstance(kind, bytes) else "something unreadable"
        return KeyState(key, None, f"a key of type {name}", log, deadlines)
    contents = keyspace.with_orphan(key, contents_of(key, replies, hidden))
    types = types_of(contents)
    if types and known is not None and not _may_be(contents, known):
        visible = TYPES[types[0]].name.decode()
        foreign = f"a {visible} where its gateway has written something else"
        return KeyState(key, None, foreign, log, deadlines)
    return KeyState(key, Value(contents), "", log, deadlines)


def _may_be(contents: Contents, known: int | Figures | Holds) -> bool:
    """Whether what is visible is of the kind that is known."""
    visible = types_of(contents)[0]
    if not isinstance(known, Holds):
        return visible is String.type and figures(contents[visible][WHOLE]) is not None
    return known.type is None or known.type is visible


# On the wire


def encode_states(vector: Vector, states: Iterable[KeyState]) -> bytes:
    """States as of one instant."""
    return _pack([dict(vector), [_row(state) for state in states]])


def _row(state: KeyState) -> list[object]:
    contents = None if state.value is None else packed(state.value.contents)
    log = {int(type_): _log_row(each) for type_, each in state.log.items()}
    deadlines = [
        [*each.dot, each.place, each.timestamp, each.at, each.only] for each in state.deadlines
    ]
    return [state.key, contents, state.foreign, log, deadlines]


def _log_row(log: SlotLog) -> list[object]:
    deltas = [
        [slot, [[*_atom_row(atom), text_of(delta)] for atom, delta in each.items()]]
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


def _state(key: Any, contents: Any, foreign: Any, log: Any, deadlines: Any) -> KeyState:
    if type(key) is not bytes:
        raise ValueError("a key is bytes")
    check_name(key)
    value = None if contents is None else Value(unpacked(contents))
    logs = {RedisType(number): _log(*rows) for number, rows in log.items()}
    return KeyState(key, value, str(foreign), logs, tuple(_deadline(*row) for row in deadlines))


def _deadline(
    origin: Any, counter: Any, place: Any, timestamp: Any, at: Any, only: Any
) -> Deadline:
    if not 0 <= int(at) <= NEVER:
        raise ValueError("a deadline beyond all time")
    dot = Dot(str(origin), int(counter))
    return Deadline(int(at), int(timestamp), dot, int(place), Only(only))


def _log(deltas: Any, held: Any) -> SlotLog:
    increments: dict[bytes, dict[Atom, Number]] = {
        slot: {_presence(*where): _delta(delta) for *where, delta in each} for slot, each in deltas
    }
    atoms = {slot: tuple(_atom(*row) for row in rows) for slot, rows in held}
    if not all(type(slot) is bytes for slot in (*increments, *atoms)):
        raise ValueError("a slot is bytes")
    return SlotLog(increments, atoms)


def _delta(raw: bytes) -> Number:
    delta = number_of(raw)
    if delta is None:
        raise ValueError("an increment is a number")
    return delta


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
