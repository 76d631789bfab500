"""The messages between gateways: effects, a language of two words in which every Redis type is written.

A `kill` removes, in its scope, what comes before it; an `add` puts in one atom. A payload is one causal event: a hybrid
timestamp and a list of effects, numbered by position. See docs/redis.md and docs/protocol.md.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

import msgpack

from crdtcast.adapters.redis.store.databases import (
    ELSEWHERE,
    check_name,
    db_of,
    described,
    key_of,
    name_of,
)
from crdtcast.adapters.redis.store.many_slots import PIECE, ManySlots, Unfolding
from crdtcast.adapters.redis.store.slot_value import Number, Only, number_of, text_of
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import make_tuple
from crdtcast.engine import ParkedOperation, Span
from crdtcast.exceptions import ConfigurationError, RemoteProtocolError
from crdtcast.msgpack_limits import unpacked_within

_pack: Callable[[object], bytes] = msgpack.Packer().pack
_MOST_LISTS = 1 << 17
"""Lists in one payload. A message has at most 16,384 commands, each with five lists for its effects and their slots."""
_unpack: Callable[[bytes], Any] = partial(msgpack.unpackb, max_map_len=0)
_unpack_long: Callable[[bytes], Any] = partial(unpacked_within, most=_MOST_LISTS, max_map_len=0)


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
    """Not a type: the deadline of a key, where it is given with the contents."""


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
    ASSIGN = 13
    REG_ONLY = 14


Slots: TypeAlias = tuple[bytes, ...] | ManySlots
LATEST = (1 << 45) - 1
"""The latest deadline that a key can have. A later one in a server is a postponed deadline (`deadlines.index`)."""
NEVER = 1 << 62
"""The deadline of a key that has none. It is later than any other."""


# Effects are read-only; not frozen, because making a frozen one takes three times as long.


@dataclass(slots=True, unsafe_hash=True)
class One:
    """Each slot is present, after a kill of that slot: an add supersedes the adds that it has seen."""

    key: bytes
    type: RedisType
    slots: Slots


@dataclass(slots=True, unsafe_hash=True)
class Reg:
    """Each slot gets a value, after a kill of that slot.

    words: slot and value in turn.
    since: the hybrid time at which it was written, if that was before this message.
    only: the condition under which it was written.
    """

    key: bytes
    type: RedisType
    words: Slots
    since: int | None = None
    only: Only = Only.ALWAYS


@dataclass(slots=True, unsafe_hash=True)
class Inc:
    """The number in a slot grows by `delta`: an integer of any size, or any other decimal."""

    key: bytes
    type: RedisType
    slot: bytes
    delta: Number


@dataclass(slots=True, unsafe_hash=True)
class KillKey:
    """Removes what the key holds, of every type, as far as the origin had seen it."""

    key: bytes


@dataclass(slots=True, unsafe_hash=True)
class KillAll:
    """Removes what the keys of a database hold, and their deadlines, as far as the origin had seen it. db: None for
    all.
    """

    db: int | None


@dataclass(slots=True, unsafe_hash=True)
class KillSlots:
    """Removes these slots of one type, as far as the origin had seen them."""

    key: bytes
    type: RedisType
    slots: Slots


@dataclass(slots=True, unsafe_hash=True)
class KillData:
    """Removes what the key holds, as far as the origin had seen it, but not its deadline."""

    key: bytes


@dataclass(slots=True, unsafe_hash=True)
class Replace:
    """After a `KillKey`, the key has this deadline, in milliseconds since the epoch, or `NEVER`."""

    key: bytes
    at: int


@dataclass(slots=True, unsafe_hash=True)
class Assign:
    """After a `KillKey`, the key is this text and has this deadline."""

    key: bytes
    value: bytes
    at: int = NEVER


@dataclass(slots=True, unsafe_hash=True)
class Until:
    """After a kill of its deadline, the key has this one, in milliseconds since the epoch, or `NEVER`."""

    key: bytes
    at: int
    only: Only = Only.ALWAYS

    def __str__(self) -> str:
        key = described(self.key)
        return f"PERSIST {key}" if self.at == NEVER else f"PEXPIREAT {key} {self.at}"


@dataclass(slots=True, unsafe_hash=True)
class Expire:
    """The deadline is over: what the key holds is removed, of every type, as far as the origin had seen it.

    whole: the deadline is removed, too, because a client's write creates the key again.
    """

    key: bytes
    whole: bool


EndsKey: TypeAlias = KillKey | Replace | Assign
"""Effects that remove all that a key held, and its deadline; an `Expire` may, too."""
EndsData: TypeAlias = EndsKey | KillData
"""Effects that remove all that a key held."""
KeyEffect: TypeAlias = One | Reg | Inc | KillSlots | EndsData | Until | Expire
"""An effect on one key."""

Effect: TypeAlias = KeyEffect | KillAll

WHOLE = b""
"""The only slot of a type with one value, such as a string."""


def pairs_of(words: Sequence[bytes]) -> dict[bytes, bytes]:
    """Values by slot; for a repeated slot the last one counts."""
    return dict(zip(words[::2], words[1::2], strict=True))


class EffectsEvent(NamedTuple):
    """The contents of a payload. timestamp: its hybrid logical time."""

    timestamp: int
    effects: list[Effect]


NO_EVENT = EffectsEvent(0, [])
"""The contents of a message about the membership."""


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
    (Opcode.ASSIGN, RedisType.STRING): 2,
    (Opcode.REG_AGAIN, RedisType.STRING): 2,
    (Opcode.REG_AGAIN, RedisType.HASH): 2,
    (Opcode.INC_EXACT, RedisType.STRING): 2,
    (Opcode.INC_EXACT, RedisType.HASH): 2,
    (Opcode.REG, RedisType.ZSET): 3,
    (Opcode.REG_AGAIN, RedisType.ZSET): 3,
    (Opcode.REG_ONLY, RedisType.ZSET): 3,
    (Opcode.INC, RedisType.ZSET): 3,
    (Opcode.INC_EXACT, RedisType.ZSET): 3,
    (Opcode.KILL_SLOTS, RedisType.ZSET): 3,
}
"""The format level that introduced each effect on each type. A new one is a row here, with a new level."""

ELSEWHERE_LEVEL = 2
"""The level that introduced names that are not the keys themselves (`databases`)."""

READS = Span(1, max(LEVELS.values()))
"""The format levels that this program reads."""


class UnreadableError(RemoteProtocolError):
    """A payload that this program cannot read: its sender broke the format level of the group, or is not a gateway."""


def encode(timestamp: int, effects: list[Effect]) -> bytes:
    """The payload of one message, in the lowest level that has all its effects. timestamp: its hybrid logical time."""
    rows = [ROWS[type(effect)](effect) for effect in effects]
    if len(rows) == 1:  # as mostly, with one client
        level, last = LEVELS[_KIND(rows[0])], _NAME(rows[0])
    else:
        level = max(map(LEVELS.__getitem__, set(map(_KIND, rows))), default=READS.lowest)
        last = max(map(_NAME, rows), default=b"")
    if last >= ELSEWHERE:
        level = max(level, ELSEWHERE_LEVEL)
    return _pack([level, timestamp, rows])


_KIND: Callable[[list[Any]], tuple[Opcode, RedisType | None]] = itemgetter(0, 2)
"""The part of a row that decides its level: opcode and type."""
_NAME: Callable[[list[Any]], bytes] = itemgetter(1)


Row: TypeAlias = list[Any]


def _one(effect: One) -> Row:
    slots = effect.slots
    kept = slots if type(slots) is tuple and len(slots) <= PIECE else _encoded(slots)
    return [Opcode.ONE, effect.key, effect.type, kept]


def _reg(effect: Reg) -> Row:
    words = effect.words
    kept = words if type(words) is tuple and len(words) <= PIECE else _encoded(words)
    if effect.only:
        return [Opcode.REG_ONLY, effect.key, effect.type, kept, effect.since, effect.only]
    if effect.since is None:
        return [Opcode.REG, effect.key, effect.type, kept]
    return [Opcode.REG_AGAIN, effect.key, effect.type, kept, effect.since]


def _inc(effect: Inc) -> Row:
    delta = effect.delta
    # Sums of deltas may exceed 64 bits, the limit of msgpack's integers.
    if type(delta) is int:
        return [Opcode.INC, effect.key, effect.type, effect.slot, str(delta)]
    return [Opcode.INC_EXACT, effect.key, effect.type, effect.slot, text_of(delta).decode()]


def _kill_slots(effect: KillSlots) -> Row:
    return [Opcode.KILL_SLOTS, effect.key, effect.type, _encoded(effect.slots)]


def _replace(effect: Replace) -> Row:
    return [Opcode.REPLACE, effect.key, None, None if effect.at == NEVER else effect.at]


def _assign(effect: Assign) -> Row:
    if effect.at == NEVER:
        return [Opcode.ASSIGN, effect.key, RedisType.STRING, effect.value]
    return [Opcode.ASSIGN, effect.key, RedisType.STRING, effect.value, effect.at]


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
    Assign: _assign,
    Until: _until,
    Expire: lambda effect: [Opcode.EXPIRE, effect.key, None, effect.whole],
    KillAll: lambda effect: [
        Opcode.KILL_ALL,
        name_of(effect.db or 0, b""),
        None,
        effect.db is None,
    ],
}
"""How to encode each effect. A table, because this runs for each effect: `match` would try one class after another."""


def _encoded(slots: Slots) -> Slots | bytes:
    if type(slots) is not ManySlots:
        if len(slots) <= PIECE:
            return slots
        slots = ManySlots.of(slots)
    return slots.encoded


def decode(payload: bytes) -> EffectsEvent:
    """The contents of a payload. Raises UnreadableError if this program cannot read it."""
    decoding = Decoding(payload)
    while not decoding.step():
        pass
    return decoding.event


class Decoding:
    """A payload that is decoded a piece at a time: `event` is complete when `step` has returned True.

    The constructor and `step` raise UnreadableError if this program cannot read it. databases: those named, except 0.
    """

    def __init__(self, payload: bytes) -> None:
        self._unfolding: list[Unfolding] = []
        self.event: EffectsEvent
        self.databases: Collection[int]
        self.event, self.databases = _decode_payload(payload, self._unfolding)

    @property
    def is_complete(self) -> bool:
        """Whether decoding is complete."""
        return not self._unfolding

    def step(self) -> bool:
        """Decode one more piece. Returns whether decoding is complete."""
        if self._unfolding:
            try:
                if self._unfolding[0].step():
                    del self._unfolding[0]
            except (ValueError, TypeError, msgpack.exceptions.UnpackException) as error:
                raise UnreadableError(f"invalid payload: {error}") from error
        return not self._unfolding


def _decode_payload(
    payload: bytes, unfolding: list[Unfolding]
) -> tuple[EffectsEvent, Collection[int]]:
    """The event, and the databases that it names, except 0.

    unfolding: receives the slots that remain to be decoded.
    """
    try:
        # A short payload cannot have too many lists.
        unpack = _unpack if len(payload) <= _MOST_LISTS else _unpack_long
        level, timestamp, rows = unpack(payload)
        if type(level) is not int or not READS.lowest <= level <= READS.highest:
            raise UnreadableError(f"it has format level {level!r:.40}, this program reads {READS}")
        if type(timestamp) is not int:
            raise UnreadableError(f"invalid time stamp {timestamp!r:.40}")
        databases: Collection[int] = ()
        # Comparing anything else than bytes with bytes raises TypeError.
        if max(map(_NAME, rows), default=b"") >= ELSEWHERE:
            databases = _databases(set(map(_NAME, rows)))
        decoded = [READERS.get(row[0], _read_whole)(row, unfolding) for row in rows]
        return make_tuple(EffectsEvent, (timestamp, decoded)), databases
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


def decode_own(message: Message | ParkedOperation) -> EffectsEvent:
    """The contents of a message from this member's store. Raises ConfigurationError if this program cannot read it."""
    try:
        return decode(message.payload)
    except UnreadableError as error:
        raise ConfigurationError(
            f"the server holds a message that this gateway cannot read ({message.dot.origin}, "
            f"number {message.dot.counter}: {error}): start the program that wrote it; this one "
            "changed nothing"
        ) from error


Reader: TypeAlias = Callable[[Row, list[Unfolding]], Effect]
"""Makes an effect of a row whose opcode and key are checked already. Appends slots that remain to be decoded.

Raises ValueError, TypeError or KeyError if this program cannot apply it: it is refused, not misread.
"""
_BYTES = frozenset((bytes,))


class _Types(dict[int, RedisType]):
    """The types that an effect can have, by number. Raises ValueError for others."""

    def __init__(self, opcode: Opcode) -> None:
        super().__init__()
        self._opcode = opcode

    def __missing__(self, number: int) -> RedisType:
        if number is None or (self._opcode, number) not in LEVELS:
            raise ValueError(f"{self._opcode.name} of type {number!r:.40}")
        self[number] = type_ = RedisType(number)
        return type_


def _of_slots(
    opcode: Opcode, make: Callable[[bytes, RedisType, Slots], Effect], each: int = 1
) -> Reader:
    """each: the number of slots is a multiple of it."""
    types = _Types(opcode)

    def read(row: Row, unfolding: list[Unfolding]) -> Effect:
        _, key, kind, slots = row
        if type(slots) is list and 0 < len(slots) <= PIECE and not len(slots) % each:
            if _BYTES.issuperset(map(type, slots)) and (kind != _STRING or slots[:-1] == [WHOLE]):
                return make(key, types[kind], tuple(slots))
        elif type(slots) is bytes and kind != _STRING:
            many = ManySlots(encoded=slots)
            unfolding.append(Unfolding(many, each))
            return make(key, types[kind], many)
        raise ValueError(f"invalid slots {slots!r:.80}")

    return read


_STRING = RedisType.STRING
_COUNTED, _COUNTED_EXACTLY = _Types(Opcode.INC), _Types(Opcode.INC_EXACT)
_CONDITIONAL = _Types(Opcode.REG_ONLY)
_read_reg = _of_slots(Opcode.REG, Reg, 2)


def _read_inc(row: Row, _: list[Unfolding]) -> Inc:
    _, key, kind, slot, delta = row
    if type(slot) is bytes and type(delta) is str and not (slot and kind == _STRING):
        return Inc(key, _COUNTED[kind], slot, int(delta))
    raise ValueError(f"invalid increment {delta!r:.80}")


def _read_exact_inc(row: Row, _: list[Unfolding]) -> Inc:
    _, key, kind, slot, text = row
    if type(slot) is bytes and type(text) is str and not (slot and kind == _STRING):
        delta = number_of(raw := text.encode())
        if type(delta) is Fraction and text_of(delta) == raw:
            return Inc(key, _COUNTED_EXACTLY[kind], slot, delta)
    raise ValueError(f"invalid increment {text!r:.80}")


def _read_reg_again(row: Row, unfolding: list[Unfolding]) -> Reg:
    *front, since = row
    register = _read_reg(front, unfolding)
    if type(since) is not int or not isinstance(register, Reg):
        raise ValueError(f"invalid time stamp {since!r:.40}")
    register.since = since
    return register


def _read_reg_only(row: Row, unfolding: list[Unfolding]) -> Reg:
    _, key, kind, words, since, only = row
    _CONDITIONAL[kind]
    again = since is not None
    front = [key, kind, words, since] if again else [key, kind, words]
    register = (_read_reg_again if again else _read_reg)([Opcode.REG, *front], unfolding)
    if not isinstance(register, Reg) or type(only) is not int or not only:
        raise ValueError(f"invalid condition {only!r:.40}")
    register.only = Only(only)
    return register


def _read_assign(row: Row, _: list[Unfolding]) -> Assign:
    _, key, kind, value, *until = row
    if type(value) is bytes and kind == _STRING:
        return Assign(key, value, _deadline(*until)) if until else Assign(key, value)
    raise ValueError(f"invalid text {value!r:.80}")


def _read_whole(row: Row, _: list[Unfolding]) -> Effect:
    """An effect without a type, or an unknown one."""
    match row:
        case [Opcode.KILL_KEY, key, None]:
            return KillKey(key)
        case [Opcode.KILL_DATA, key, None]:
            return KillData(key)
        case [Opcode.KILL_ALL, name, None, bool(everywhere)] if not key_of(name):
            return KillAll(None if everywhere else db_of(name))
        case [Opcode.REPLACE, key, None, at]:
            return Replace(key, _deadline(at))
        case [Opcode.UNTIL, key, None, at, int(only)]:
            return Until(key, _deadline(at), Only(only))
    raise ValueError(f"unknown effect {row!r:.80}")


def _read_expire(row: Row, _: list[Unfolding]) -> Expire:
    _, key, kind, whole = row
    if type(whole) is bool and kind is None:
        return Expire(key, whole)
    raise ValueError(f"invalid end {row!r:.80}")


def _deadline(at: object) -> int:
    if at is None:
        return NEVER
    if type(at) is not int or not 0 <= at <= LATEST:
        raise ValueError(f"invalid deadline {at!r:.40}")
    return at


READERS: Mapping[int, Reader] = {
    Opcode.ONE: _of_slots(Opcode.ONE, One),
    Opcode.REG: _read_reg,
    Opcode.INC: _read_inc,
    Opcode.KILL_KEY: _read_whole,
    Opcode.KILL_SLOTS: _of_slots(Opcode.KILL_SLOTS, KillSlots),
    Opcode.REPLACE: _read_whole,
    Opcode.UNTIL: _read_whole,
    Opcode.EXPIRE: _read_expire,
    Opcode.REG_AGAIN: _read_reg_again,
    Opcode.REG_ONLY: _read_reg_only,
    Opcode.KILL_DATA: _read_whole,
    Opcode.INC_EXACT: _read_exact_inc,
    Opcode.KILL_ALL: _read_whole,
    Opcode.ASSIGN: _read_assign,
}
"""How to decode each effect, by opcode."""
