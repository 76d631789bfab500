"""What travels between gateways: effects, the two-word language that every Redis type is written in.

A `kill` removes, in its scope, what comes before it; an `add` puts one atom in. A payload is one causal event: a
hybrid time stamp and a list of effects, numbered by position. See docs/redis.md and docs/protocol.md.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import msgpack

from crdtcast.exceptions import RemoteProtocolError

FORMAT = 1
"""Version of the payload; a gateway keeps a payload of a later one unread until it is upgraded."""

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
    ASK_KEY = 5
    TOLD_KEY = 6


@dataclass(frozen=True, slots=True)
class One:
    """Presence of each slot, behind a kill of that slot: an add supersedes the adds that it has seen."""

    key: bytes
    type: RedisType
    slots: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Inc:
    """A number grows by `delta`: exact, of any size."""

    key: bytes
    type: RedisType
    delta: int


@dataclass(frozen=True, slots=True)
class KillKey:
    """Whatever the key holds, of every type, as far as the origin had seen it."""

    key: bytes


@dataclass(frozen=True, slots=True)
class KillSlots:
    """These slots of one type, as far as the origin had seen them."""

    key: bytes
    type: RedisType
    slots: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class AskKey:
    """The origin's copy of a set was overwritten past its gateway: member `name` should tell it again."""

    key: bytes
    name: str


@dataclass(frozen=True, slots=True)
class ToldKey:
    """Behind the members that answer an AskKey of member `name`."""

    key: bytes
    name: str


Effect: TypeAlias = One | Inc | KillKey | KillSlots | AskKey | ToldKey


class UnknownPayloadError(RemoteProtocolError):
    """A payload of a later program: to be kept as it is, not to be guessed at."""


def encode(timestamp: int, effects: list[Effect]) -> bytes:
    """One message's payload; `timestamp` is the hybrid logical time of the message."""
    return _pack([FORMAT, timestamp, [_encode(effect) for effect in effects]])


def _encode(effect: Effect) -> list[object]:
    match effect:
        case One(key, type_, slots):
            return [Opcode.ONE, key, type_, list(slots)]
        case Inc(key, type_, delta):
            # Sums of deltas may leave 64 bits, which is all that msgpack's integers have.
            return [Opcode.INC, key, type_, str(delta)]
        case KillKey(key):
            return [Opcode.KILL_KEY, key]
        case KillSlots(key, type_, slots):
            return [Opcode.KILL_SLOTS, key, type_, list(slots)]
        case AskKey(key, name):
            return [Opcode.ASK_KEY, key, name]
        case ToldKey(key, name):
            return [Opcode.TOLD_KEY, key, name]


def decode(payload: bytes) -> tuple[int, list[Effect]]:
    """Time stamp and effects of a payload. Raises UnknownPayloadError for one that this program cannot read."""
    try:
        version, timestamp, rows = msgpack.unpackb(payload)
        if version != FORMAT:
            raise UnknownPayloadError(
                f"payload format {version} is newer than this gateway's {FORMAT}"
            )
        return timestamp, [_decode(row) for row in rows]
    except UnknownPayloadError:
        raise
    except (ValueError, TypeError, KeyError, msgpack.exceptions.UnpackException) as error:
        raise UnknownPayloadError(f"payload that this gateway cannot read: {error}") from error


def _decode(row: list[object]) -> Effect:
    match row:
        # Only the types that this program can apply: the others' effects are kept unread, not misread.
        case [Opcode.ONE, bytes(key), RedisType.SET, list(slots)]:
            return One(key, RedisType.SET, tuple(slots))
        case [Opcode.INC, bytes(key), RedisType.STRING, str(delta)]:
            return Inc(key, RedisType.STRING, int(delta))
        case [Opcode.KILL_KEY, bytes(key)]:
            return KillKey(key)
        case [Opcode.KILL_SLOTS, bytes(key), RedisType.SET, list(slots)]:
            return KillSlots(key, RedisType.SET, tuple(slots))
        case [Opcode.ASK_KEY, bytes(key), str(name)]:
            return AskKey(key, name)
        case [Opcode.TOLD_KEY, bytes(key), str(name)]:
            return ToldKey(key, name)
        case _:
            raise ValueError(f"unknown effect {row!r:.80}")
