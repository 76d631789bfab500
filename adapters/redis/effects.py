"""What travels between gateways: effects, the two-word language that every Redis type is written in.

A `kill` removes, in its scope, what comes before it; an `add` puts one atom in. A payload is one causal event: a
hybrid time stamp and a list of effects, numbered by position. See docs/redis.md and docs/protocol.md.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import msgpack

from crdtcast.adapters.redis.databases import (
    ELSEWHERE,
    check_name,
    db_of,
    described,
    key_of,
    name_of,
)
from crdtcast.adapters.redis.many_slots import PIECE, ManySlots, Unfolding
from crdtcast.adapters.redis.worth import Number, number_of, text_of
from crdtcast.engine import ParkedOperation, Span
from crdtcast.exceptions import ConfigurationError, RemoteProtocolError
from crdtcast.messages import Message
from crdtcast.msgpack_limits import unpacked_within

_pack: Callable[[object], bytes] = msgpack.packb
_MOST_LISTS = 1 << 17
"""Of one payload. A message is of 16,384 commands at most, each with five lists for its effects and their slots."""


class RedisType(enum.IntEnum):
    """The types a key can hold, in the fixed order in which one hides another (rule H7): the lowest is visible."""

    STRING = 0
    BITS = 1
    HLL = 2
    HASH = 3
    ZSET = 4
    SET = 5
    LIST = 6
    STREAM = 7
    DEADLINE = 8
    """No type: until when a key is there, where that is told beside what it holds."""


class Opcode(enum.IntEnum):
    """First element of an encoded effect."""

    ONE = 1
    REG = 2
    INC = 3
    KILL_KEY = 4
    KILL_SLOTS = 5
    REPLACE = 6
    UNTIL = 7
    EXPIRE = 8
    REG_AGAIN = 9
    KILL_DATA = 10
    INC_EXACT = 11
    KILL_ALL = 12


class Only(enum.IntEnum):
    """The condition that a deadline was set under, and remembers: of deadlines that were all set with LT the earliest
    counts, of any others the latest.
    """

    ALWAYS = 0
    GREATER = 1
    LESS = 2


Slots: TypeAlias = tuple[bytes, ...] | ManySlots
NEVER = 1 << 62
"""The deadline of a key that has none. It is later than any other."""


# Effects are to be read only; not frozen, because making a frozen one takes three times as long.


@dataclass(slots=True, unsafe_hash=True)
class One:
    """Presence of each slot, behind a kill of that slot: an add supersedes the adds that it has seen."""

    key: bytes
    type: RedisType
    slots: Slots


@dataclass(slots=True, unsafe_hash=True)
class Reg:
    """Each slot gets a value, behind a kill of that slot. words: slot and value in turn. since: the hybrid time at
    which it was written, if that was before this message.
    """

    key: bytes
    type: RedisType
    words: Slots
    since: int | None = None


@dataclass(slots=True, unsafe_hash=True)
class Inc:
    """The number in a slot grows by `delta`: an integer of any size, or any other decimal."""

    key: bytes
    type: RedisType
    slot: bytes
    delta: Number


@dataclass(slots=True, unsafe_hash=True)
class KillKey:
    """Whatever the key holds, of every type, as far as the origin had seen it."""

    key: bytes


@dataclass(slots=True, unsafe_hash=True)
class KillAll:
    """Whatever any key of a database holds, and its deadline, as far as the origin had seen it. db: None for all."""

    db: int | None


@dataclass(slots=True, unsafe_hash=True)
class KillSlots:
    """These slots of one type, as far as the origin had seen them."""

    key: bytes
    type: RedisType
    slots: Slots


@dataclass(slots=True, unsafe_hash=True)
class KillData:
    """The same, but its deadline stays."""

    key: bytes


@dataclass(slots=True, unsafe_hash=True)
class Replace:
    """Behind a `KillKey` of it the key has this deadline, in milliseconds since the epoch, or `NEVER`."""

    key: bytes
    at: int


@dataclass(slots=True, unsafe_hash=True)
class Until:
    """Behind a kill of its deadline the key has this one, in milliseconds since the epoch, or `NEVER`."""

    key: bytes
    at: int
    only: Only = Only.ALWAYS

    def __str__(self) -> str:
        key = described(self.key)
        return f"PERSIST {key}" if self.at == NEVER else f"PEXPIREAT {key} {self.at}"


@dataclass(slots=True, unsafe_hash=True)
class Expire:
    """The deadline is over: what the key holds goes, of every type, as far as the origin had seen it.

    whole: the deadline goes, too, as a client's write begins the key anew.
    """

    key: bytes
    whole: bool


KeyEffect: TypeAlias = One | Reg | Inc | KillKey | KillSlots | KillData | Replace | Until | Expire
"""On one key."""

Effect: TypeAlias = KeyEffect | KillAll

WHOLE = b""
"""The slot of a type that has one value only: the string itself."""


def pairs_of(words: Sequence[bytes]) -> dict[bytes, bytes]:
    """Values by slot; of a slot that comes twice the last one."""
    return dict(zip(words[::2], words[1::2], strict=True))


class Event(NamedTuple):
    """What a payload says. timestamp: its hybrid logical time."""

    timestamp: int
    effects: list[Effect]


NO_EVENT = Event(0, [])
"""Of a message on the membership."""


LEVELS: Mapping[tuple[Opcode, RedisType | None], int] = {
    (Opcode.ONE, RedisType.SET): 1,
    (Opcode.INC, RedisType.STRING): 1,
    (Opcode.KILL_KEY, None): 1,
    (Opcode.KILL_SLOTS, RedisType.SET): 1,
    (Opcode.REG, RedisType.STRING): 2,
    (Opcode.REG, RedisType.HASH): 2,
    (Opcode.INC, RedisType.HASH): 2,
    (Opcode.KILL_SLOTS, RedisType.HASH): 2,
    (Opcode.REPLACE, None): 2,
    (Opcode.UNTIL, None): 2,
    (Opcode.EXPIRE, None): 2,
    (Opcode.KILL_DATA, None): 2,
    (Opcode.KILL_ALL, None): 2,
    (Opcode.REG_AGAIN, RedisType.STRING): 2,
    (Opcode.REG_AGAIN, RedisType.HASH): 2,
    (Opcode.INC_EXACT, RedisType.STRING): 2,
    (Opcode.INC_EXACT, RedisType.HASH): 2,
}
"""Which format level brings in which effect, on which type. A new one is a row here, with a level of its own."""

ELSEWHERE_LEVEL = 2
"""Which one brings in names of keys that are not the keys themselves (`databases`)."""

READS = Span(1, max(LEVELS.values()))
"""The format levels that this program reads."""


class UnreadableError(RemoteProtocolError):
    """A payload that this program cannot read: its sender broke the format level of the group, or is not a gateway."""


def encode(timestamp: int, effects: list[Effect]) -> bytes:
    """One message's payload, in the lowest level that has all its effects. timestamp: its hybrid logical time."""
    rows = [ROWS[type(effect)](effect) for effect in effects]
    level = max(map(LEVELS.__getitem__, set(map(_KIND, rows))), default=READS.lowest)
    if max(map(_NAME, rows), default=b"") >= ELSEWHERE:
        level = max(level, ELSEWHERE_LEVEL)
    return _pack([level, timestamp, rows])


_KIND: Callable[[list[Any]], tuple[Opcode, RedisType | None]] = itemgetter(0, 2)
"""What a row says of its level: opcode and type."""
_NAME: Callable[[list[Any]], bytes] = itemgetter(1)


Row: TypeAlias = list[Any]


def _one(effect: One) -> Row:
    slots = effect.slots
    kept = slots if type(slots) is tuple and len(slots) <= PIECE else _encoded(slots)
    return [Opcode.ONE, effect.key, effect.type, kept]


def _reg(effect: Reg) -> Row:
    words = effect.words
    kept = words if type(words) is tuple and len(words) <= PIECE else _encoded(words)
    if effect.since is None:
        return [Opcode.REG, effect.key, effect.type, kept]
    return [Opcode.REG_AGAIN, effect.key, effect.type, kept, effect.since]


def _inc(effect: Inc) -> Row:
    # Sums of deltas may leave 64 bits, which is all that msgpack's integers have.
    opcode = Opcode.INC if type(effect.delta) is int else Opcode.INC_EXACT
    return [opcode, effect.key, effect.type, effect.slot, text_of(effect.delta).decode()]


def _kill_slots(effect: KillSlots) -> Row:
    return [Opcode.KILL_SLOTS, effect.key, effect.type, _encoded(effect.slots)]


def _replace(effect: Replace) -> Row:
    return [Opcode.REPLACE, effect.key, None, None if effect.at == NEVER else effect.at]


def _until(effect: Until) -> Row:
    at = None if effect.at == NEVER else effect.at
    return [Opcode.UNTIL, effect.key, None, at, effect.only]


ROWS: Mapping[type[Effect], Callable[[Any], Row]] = {
    One: _one,
    Reg: _reg,
    Inc: _inc,
    KillKey: lambda effect: [Opcode.KILL_KEY, effect.key, None],
    KillSlots: _kill_slots,
    KillData: lambda effect: [Opcode.KILL_DATA, effect.key, None],
    Replace: _replace,
    Until: _until,
    Expire: lambda effect: [Opcode.EXPIRE, effect.key, None, effect.whole],
    KillAll: lambda effect: [
        Opcode.KILL_ALL,
        name_of(effect.db or 0, b""),
        None,
        effect.db is None,
    ],
}
"""How an effect is written. A table, since this is done for each of them: `match` would try one class after another."""


def _encoded(slots: Slots) -> Slots | bytes:
    if type(slots) is not ManySlots:
        if len(slots) <= PIECE:
            return slots
        slots = ManySlots.of(slots)
    return slots.encoded


def decode(payload: bytes) -> Event:
    """What a payload says. Raises UnreadableError for one that this program cannot read."""
    decoding = Decoding(payload)
    while not decoding.step():
        pass
    return decoding.event


class Decoding:
    """A payload that is decoded a piece at a time: `event` is complete when `step` has returned True. Raises
    UnreadableError for one that this program cannot read, here and at each step. databases: those that it names, but 0.
    """

    def __init__(self, payload: bytes) -> None:
        self._unfolding: list[Unfolding] = []
        self.event, self.databases = _decode_payload(payload, self._unfolding)

    @property
    def is_complete(self) -> bool:
        """Whether no step is left."""
        return not self._unfolding

    def step(self) -> bool:
        """Go on. Returns whether it is complete now."""
        if self._unfolding:
            try:
                if self._unfolding[0].step():
                    del self._unfolding[0]
            except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
                raise UnreadableError(f"invalid payload: {error}") from error
        return not self._unfolding


def _decode_payload(payload: bytes, unfolding: list[Unfolding]) -> tuple[Event, Collection[int]]:
    """With the databases that it names, beside the usual one. unfolding: gets the slots that are to be decoded
    further.
    """
    try:
        level, timestamp, rows = unpacked_within(payload, _MOST_LISTS)
        if type(level) is not int or level not in READS:
            raise UnreadableError(f"it has format level {level!r:.40}, this program reads {READS}")
        if type(timestamp) is not int:
            raise UnreadableError(f"invalid time stamp {timestamp!r:.40}")
        databases: Collection[int] = ()
        if max(map(_NAME, rows), default=b"") >= ELSEWHERE:
            databases = _databases(set(map(_NAME, rows)))
        return Event(timestamp, [_decode(row, unfolding) for row in rows]), databases
    except UnreadableError:
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        RecursionError,
        msgpack.exceptions.UnpackException,
    ) as error:
        raise UnreadableError(f"invalid payload: {error}") from error


def _databases(names: Iterable[bytes]) -> Collection[int]:
    for name in names:
        check_name(name)
    return set(map(db_of, names)) - {0}


def decode_own(message: Message | ParkedOperation) -> Event:
    """What a message says that is stored here. Raises ConfigurationError if this program cannot read them."""
    try:
        return decode(message.payload)
    except UnreadableError as error:
        raise ConfigurationError(
            f"the server holds a message that this gateway cannot read ({message.dot.origin}, number "
            f"{message.dot.counter}: {error}): start the program that wrote it; nothing was touched"
        ) from error


def _decode(row: Row, unfolding: list[Unfolding]) -> Effect:
    if len(row) == 4:  # the most frequent ones first: `match` tries one pattern after another
        code, key, kind, slots = row
        form = _OF_SLOTS.get((code, kind)) if type(key) is bytes else None
        if form is None:
            if slots is None and code == Opcode.REPLACE and kind is None and type(key) is bytes:
                return Replace(key, NEVER)
        elif type(slots) is list and len(slots) <= PIECE and _BYTES.issuperset(map(type, slots)):
            make, type_ = form
            if make is not Reg or not len(slots) % 2:
                return make(key, type_, tuple(slots))
    elif len(row) == 5:
        code, key, kind, slot, delta = row
        opcode = _COUNTS.get((code, kind))
        if opcode is not None and type(key) is bytes and type(slot) is bytes and type(delta) is str:
            return Inc(key, _TYPES[kind], slot, _delta(delta, opcode))
    match row:
        # Only what this program can apply: anything else is refused, not misread.
        case [Opcode.KILL_KEY, bytes(key), None]:
            return KillKey(key)
        case [Opcode.KILL_DATA, bytes(key), None]:
            return KillData(key)
        case [Opcode.KILL_ALL, bytes(name), None, bool(everywhere)] if not key_of(name):
            return KillAll(None if everywhere else db_of(name))
        case [Opcode.REPLACE, bytes(key), None, at]:
            return Replace(key, _deadline(at))
        case [Opcode.UNTIL, bytes(key), None, at, int(only)]:
            return Until(key, _deadline(at), Only(only))
        case [Opcode.EXPIRE, bytes(key), None, bool(whole)]:
            return Expire(key, whole)
        case [Opcode.REG_AGAIN, bytes(key), int(kind), slots, int(since)] if (
            Opcode.REG_AGAIN,
            kind,
        ) in LEVELS:
            return Reg(key, RedisType(kind), _decoded(slots, Opcode.REG, unfolding), since)
        case [int(code), bytes(key), int(kind), slots] if (code, kind) in LEVELS:
            opcode = Opcode(code)
            return _WITH_SLOTS[opcode](key, RedisType(kind), _decoded(slots, opcode, unfolding))
        case [int(code), bytes(key), int(kind), bytes(slot), str(delta)] if (code, kind) in LEVELS:
            return Inc(key, RedisType(kind), slot, _delta(delta, Opcode(code)))
        case _:
            raise ValueError(f"unknown effect {row!r:.80}")


def _delta(text: str, opcode: Opcode) -> Number:
    if opcode is Opcode.INC:
        return int(text)
    delta = number_of(raw := text.encode())
    if opcode is not Opcode.INC_EXACT or type(delta) is not Fraction or text_of(delta) != raw:
        raise ValueError(f"invalid increment {text!r:.80}")
    return delta


def _deadline(at: object) -> int:
    if at is None:
        return NEVER
    if type(at) is not int or not 0 <= at < NEVER:
        raise ValueError(f"invalid deadline {at!r:.40}")
    return at


_WITH_SLOTS: Mapping[Opcode, Callable[[bytes, RedisType, Slots], Effect]] = {
    Opcode.ONE: One,
    Opcode.REG: Reg,
    Opcode.KILL_SLOTS: KillSlots,
}
_OF_SLOTS: Mapping[tuple[int, int | None], tuple[Callable[..., Effect], RedisType]] = {
    (opcode, type_): (_WITH_SLOTS[opcode], type_)
    for opcode, type_ in LEVELS
    if opcode in _WITH_SLOTS and type_ is not None
}
_COUNTS: Mapping[tuple[int, int | None], Opcode] = {
    (opcode, type_): opcode for opcode, type_ in LEVELS if opcode in (Opcode.INC, Opcode.INC_EXACT)
}
_TYPES: Sequence[RedisType] = tuple(RedisType)
_BYTES = frozenset((bytes,))


def _decoded(slots: object, opcode: Opcode, unfolding: list[Unfolding]) -> Slots:
    if type(slots) is bytes:
        many = ManySlots(encoded=slots)
        unfolding.append(Unfolding(many, 2 if opcode is Opcode.REG else 1))
        return many
    if type(slots) is not list or len(slots) > PIECE or (opcode is Opcode.REG and len(slots) % 2):
        raise ValueError(f"invalid slots {slots!r:.80}")
    if not all(type(slot) is bytes for slot in slots):
        raise ValueError("slots that are not strings")
    return tuple(slots)
