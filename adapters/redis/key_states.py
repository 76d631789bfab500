"""What keys are worth at a gateway at one instant, with the part of it that is not stable there; as it travels.

`at` makes of it what the key is worth where more has been delivered, so that a receiver compares its own server with
that, or takes it over. It is exact, whatever has become stable in between: what is stable at the giver is in the past
of all that the giver has not delivered yet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, assert_never

import msgpack

from crdtcast.adapters.redis.census import is_replicated
from crdtcast.adapters.redis.contents import (
    ROWS,
    Contents,
    contents_of,
    deadline_of,
    packed,
    reads_of,
    types_of,
    unpacked,
    with_deadline,
)
from crdtcast.adapters.redis.databases import check_name, db_of, home_of, select
from crdtcast.adapters.redis.deadlines.atoms import Deadline, Deadlines, winner
from crdtcast.adapters.redis.deadlines.index import unpinned
from crdtcast.adapters.redis.effects import (
    NEVER,
    WHOLE,
    Assign,
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
from crdtcast.adapters.redis.hiding import hidden_key
from crdtcast.adapters.redis.keyspace import Keyspace
from crdtcast.adapters.redis.types import BY_NAME, TYPES
from crdtcast.adapters.redis.types.native import Holds, NativeType
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


Slots: TypeAlias = Mapping[RedisType, Sequence[bytes]]
"""Some slots of a key, by type."""


class Subject(NamedTuple):
    """What is asked for: all of a key, or some of its slots, with its deadline."""

    key: bytes
    slots: Slots | None = None


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
    """One key, or some of its slots, as its giver has it. value: None if the key holds what no gateway has written,
    `foreign` says what.
    """

    key: bytes
    value: Value | None
    foreign: str = ""
    log: KeyLog = field(default_factory=dict)
    """What is not stable there, of the value."""
    deadlines: Deadlines = ()
    """What is not stable of its deadline."""

    def at(
        self, vector: Vector, later: Iterable[Later], slots: Slots | None = None
    ) -> Value | None:
        """What the key is worth behind effects that the giver has not delivered. vector: of the giver's instant. slots:
        those that the state has, if not all.

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
        return Value(some_of(contents, slots))


def some_of(contents: Contents, slots: Slots | None) -> Contents:
    """These slots of them, as far as they are there."""
    if slots is not None:
        wanted = {**slots, RedisType.DEADLINE: (WHOLE,)}
        contents = {
            type_: {slot: content[slot] for slot in wanted[type_] if slot in content}
            for type_, content in contents.items()
            if type_ in wanted
        }
    return {type_: content for type_, content in contents.items() if content}


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
        case Assign(key, value, at):
            _hold_only(contents, log.kill_key(key, tag))
            log.deadlines.set(key, at, Only.ALWAYS, tag, timestamp, place)
            told = log.write(key, String.type, {WHOLE: value}, tag, timestamp, place)
            contents[String.type] = {WHOLE: told.worth(WHOLE) or b""}
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


def reads_of_subject(
    subject: Subject, hidden: Collection[RedisType], metadata_db: int
) -> list[Sequence[bytes]]:
    """The commands that read it on a connection to database 0, and leave it there."""
    name, slots = subject
    home = home_of(name)
    going = [select(home.db)] if home.db else []
    if slots is None:
        behind = list(reads_of(name, hidden, metadata_db))[len(going) :]
        return [*going, (b"TYPE", home.key), *behind]
    commands: list[Sequence[bytes]] = [*going, (b"TYPE", home.key), (b"PEXPIRETIME", home.key)]
    shown, beside = _parted(slots, hidden)
    for type_ in shown:
        commands += (TYPES[type_].asking(home.key, slot) for slot in slots[type_])
    if beside:
        commands.append(select(metadata_db))
    for type_ in beside:
        place = hidden_key(type_, name)
        commands += (TYPES[type_].asking(place, slot) for slot in slots[type_])
    if beside or going:
        commands.append(select(0))
    return commands


def _parted(slots: Slots, hidden: Collection[RedisType]) -> tuple[list[RedisType], list[RedisType]]:
    """The types of slots: those that may be visible, and those that are hidden."""
    return [type_ for type_ in slots if type_ not in hidden], [t for t in slots if t in hidden]


def read_state(
    subject: Subject,
    replies: Sequence[object],
    hidden: Collection[RedisType],
    keyspace: Keyspace,
) -> KeyState:
    """From the server's answers to `reads_of_subject`. keyspace: what its gateway knows of it."""
    key, slots = subject
    elsewhere = 1 if db_of(key) else 0  # replies to the SELECT
    kind = replies[elsewhere]
    if slots is None:
        log = keyspace.log.key(key)
    else:
        log = log_of_slots({type_: keyspace.log.of(key, type_) for type_ in slots}, slots)
    deadlines = keyspace.log.deadlines.of(key)
    if not is_replicated(kind):
        name = kind.decode(errors="replace") if isinstance(kind, bytes) else "something unreadable"
        return KeyState(key, None, f"a key of type {name}", log, deadlines)
    behind = replies[elsewhere + 1 :]
    if slots is None:
        contents = contents_of(key, [*replies[:elsewhere], *behind], hidden)
    else:
        contents = _slots_of(behind, slots, hidden)
    if not isinstance(kind, bytes) or kind == b"none":
        contents = keyspace.with_orphan(key, contents)
    elif (known := keyspace.known(key)) is not None and not _may_be(kind, contents, known):
        foreign = f"a {kind.decode()} where its gateway has written something else"
        return KeyState(key, None, foreign, log, deadlines)
    return KeyState(key, Value(contents), "", log, deadlines)


def _slots_of(replies: Sequence[object], slots: Slots, hidden: Collection[RedisType]) -> Contents:
    at, *rest = replies
    left, stands_there = iter(rest), False
    contents: dict[RedisType, dict[bytes, Worth]] = {}
    for type_ in chain(*_parted(slots, hidden)):
        if type_ in hidden and not stands_there:
            stands_there = True
            next(left)  # of the SELECT
        for slot in slots[type_]:
            if (worth := _slot_of(TYPES[type_], slot, next(left))) is not None:
                contents.setdefault(type_, {})[slot] = worth
    return with_deadline(contents, unpinned(at)) if isinstance(at, int) and at >= 0 else contents


def _slot_of(native: type[NativeType], slot: bytes, reply: object) -> Worth | None:
    if native.get is not None:
        return native.slot_of(reply)
    return (native.content(reply) or {}).get(slot)


def log_of_slots(log: KeyLog, slots: Slots) -> KeyLog:
    """What of a log is of these slots."""
    found: KeyLog = {}
    for type_, some in slots.items():
        if (of_type := log.get(type_)) is not None and of_type:
            held, increments = of_type.held, of_type.increments
            left = SlotLog(
                {slot: dict(increments[slot]) for slot in some if slot in increments},
                {slot: held[slot] for slot in some if slot in held},
            )
            if left:
                found[type_] = left
    return found


def _may_be(kind: bytes, contents: Contents, known: int | Figures | Holds) -> bool:
    """Whether what is visible is of the kind that is known."""
    visible = BY_NAME[kind].type
    if not isinstance(known, Holds):
        text = contents.get(visible, {}).get(WHOLE)
        return visible is String.type and (text is None or figures(text) is not None)
    return known.type is None or known.type is visible


# On the wire


class States(NamedTuple):
    """What was asked for, as of one instant. large: keys that are asked for by their slots. left: keys that would have
    made this too long, to be asked for again.
    """

    vector: Vector
    states: Sequence[KeyState]
    large: Sequence[bytes] = ()
    left: Sequence[bytes] = ()


def encode_states(told: States) -> bytes:
    """As it travels."""
    rows = [_row(state) for state in told.states]
    return _pack([dict(told.vector), rows, list(told.large), list(told.left)])


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


def decode_states(raw: bytes) -> States:
    """Raises RemoteProtocolError."""
    try:
        vector, rows, large, left = within_limits(raw, ROWS, strict_map_key=False)
        told = {str(origin): int(counter) for origin, counter in vector.items()}
        for key in (*large, *left):
            _check_key(key)
        return States(told, [_state(*row) for row in rows], large, left)
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"no states of a gateway's keys: {error}") from error


def _check_key(key: Any) -> None:
    if type(key) is not bytes:
        raise ValueError("a key is bytes")
    check_name(key)


def _state(key: Any, contents: Any, foreign: Any, log: Any, deadlines: Any) -> KeyState:
    _check_key(key)
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
