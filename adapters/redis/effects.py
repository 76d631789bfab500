"""What travels between gateways: effects, the two-word language that every Redis type is written in.

A `kill` removes, in its scope, what comes before it; an `add` puts one atom in. A payload is one causal event: a
hybrid time stamp and a list of effects, numbered by position. See docs/redis.md and docs/protocol.md.
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias

import msgpack

from crdtcast.adapters.redis.many_slots import PIECE, ManySlots, Unfolding
from crdtcast.engine import ParkedOperation, Span
from crdtcast.exceptions import ConfigurationError, RemoteProtocolError
from crdtcast.messages import Message

_pack: Callable[[object], bytes] = msgpack.packb


class RedisType(enum.IntEnum):
    """The types a key can hold, in the fixed order in which one hides another (rule H7): the lowest is visible."""

    STRING = 0
    HLL = 1
    HASH = 2
    ZSET = 3
    SET = 4
    LIST = 5
    STREAM = 6


class Opcode(enum.IntEnum):
    """First element of an encoded effect."""

    ONE = 1
    INC = 2
    KILL_KEY = 3
    KILL_SLOTS = 4


Slots: TypeAlias = tuple[bytes, ...] | ManySlots


# Effects are to be read only; not frozen, because making a frozen one takes three times as long.


@dataclass(slots=True, unsafe_hash=True)
class One:
    """Presence of each slot, behind a kill of that slot: an add supersedes the adds that it has seen."""

    key: bytes
    type: RedisType
    slots: Slots


@dataclass(slots=True, unsafe_hash=True)
class Inc:
    """A number grows by `delta`: exact, of any size."""

    key: bytes
    type: RedisType
    delta: int


@dataclass(slots=True, unsafe_hash=True)
class KillKey:
    """Whatever the key holds, of every type, as far as the origin had seen it."""

    key: bytes


@dataclass(slots=True, unsafe_hash=True)
class KillSlots:
    """These slots of one type, as far as the origin had seen them."""

    key: bytes
    type: RedisType
    slots: Slots


Effect: TypeAlias = One | Inc | KillKey | KillSlots


LEVELS: Mapping[tuple[Opcode, RedisType | None], int] = {
    (Opcode.ONE, RedisType.SET): 1,
    (Opcode.INC, RedisType.STRING): 1,
    (Opcode.KILL_KEY, None): 1,
    (Opcode.KILL_SLOTS, RedisType.SET): 1,
}
"""Which format level brings in which effect, on which type. A new one is a row here, with a level of its own."""

READS = Span(1, max(LEVELS.values()))
"""The format levels that this program reads."""


class UnreadableError(RemoteProtocolError):
    """A payload that this program cannot read: its sender broke the format level of the group, or is not a gateway."""


def encode(timestamp: int, effects: list[Effect]) -> bytes:
    """One message's payload, in the lowest level that has all its effects. timestamp: its hybrid logical time."""
    rows = list(map(_encode, effects))
    level = max(map(LEVELS.__getitem__, set(map(_KIND, rows))), default=READS.lowest)
    return _pack([level, timestamp, rows])


_KIND: Callable[[list[Any]], tuple[Opcode, RedisType | None]] = itemgetter(0, 2)
"""What a row says of its level: opcode and type."""


def _encode(effect: Effect) -> list[Any]:
    match effect:
        case One(key, type_, slots):
            return [Opcode.ONE, key, type_, _encoded(slots)]
        case Inc(key, type_, delta):
            # Sums of deltas may leave 64 bits, which is all that msgpack's integers have.
            return [Opcode.INC, key, type_, str(delta)]
        case KillKey(key):
            return [Opcode.KILL_KEY, key, None]
        case KillSlots(key, type_, slots):
            return [Opcode.KILL_SLOTS, key, type_, _encoded(slots)]


def _encoded(slots: Slots) -> Slots | bytes:
    if type(slots) is not ManySlots:
        if len(slots) <= PIECE:
            return slots
        slots = ManySlots.of(slots)
    return slots.encoded


def decode(payload: bytes) -> tuple[int, list[Effect]]:
    """Time stamp and effects of a payload. Raises UnreadableError for one that this program cannot read."""
    decoding = Decoding(payload)
    while not decoding.step():
        pass
    return decoding.timestamp, decoding.effects


class Decoding:
    """A payload that is decoded a piece at a time: `effects` are complete when `step` has returned True. Raises
    UnreadableError for one that this program cannot read, here and at each step.
    """

    def __init__(self, payload: bytes) -> None:
        self.timestamp, self.effects = _decode_payload(payload)
        self._unfolding = [
            Unfolding(effect.slots)
            for effect in self.effects
            if isinstance(effect, One | KillSlots) and type(effect.slots) is ManySlots
        ]

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


def _decode_payload(payload: bytes) -> tuple[int, list[Effect]]:
    try:
        level, timestamp, rows = msgpack.unpackb(payload)
        if type(level) is not int or level not in READS:
            raise UnreadableError(f"it has format level {level!r:.40}, this program reads {READS}")
        if type(timestamp) is not int:
            raise UnreadableError(f"invalid time stamp {timestamp!r:.40}")
        return timestamp, [_decode(row) for row in rows]
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


def decode_own(message: Message | ParkedOperation) -> list[Effect]:
    """The effects of a message that is stored here. Raises ConfigurationError if this program cannot read them."""
    try:
        return decode(message.payload)[1]
    except UnreadableError as error:
        raise ConfigurationError(
            f"the server holds a message that this gateway cannot read ({message.dot.origin}, number "
            f"{message.dot.counter}: {error}): start the program that wrote it; nothing was touched"
        ) from error


def _decode(row: list[object]) -> Effect:
    match row:
        # Only the types that this program can apply: anything else is refused, not misread.
        case [Opcode.ONE, bytes(key), RedisType.SET, list(slots)] if len(slots) <= PIECE:
            return One(key, RedisType.SET, tuple(slots))
        case [Opcode.ONE, bytes(key), RedisType.SET, bytes(encoded)]:
            return One(key, RedisType.SET, ManySlots(encoded=encoded))
        case [Opcode.INC, bytes(key), RedisType.STRING, str(delta)]:
            return Inc(key, RedisType.STRING, int(delta))
        case [Opcode.KILL_KEY, bytes(key), None]:
            return KillKey(key)
        case [Opcode.KILL_SLOTS, bytes(key), RedisType.SET, list(slots)] if len(slots) <= PIECE:
            return KillSlots(key, RedisType.SET, tuple(slots))
        case [Opcode.KILL_SLOTS, bytes(key), RedisType.SET, bytes(encoded)]:
            return KillSlots(key, RedisType.SET, ManySlots(encoded=encoded))
        case _:
            raise ValueError(f"unknown effect {row!r:.80}")
