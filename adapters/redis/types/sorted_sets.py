"""Sorted sets: a slot is a member. Its value is its score: the last write plus all increments that this write had not
seen.

A score is an exact decimal, written like any number (`store/slot_value.py`). The server holds the nearest double. A
double that a client writes or adds stands for the decimal with the fewest digits that gives it back.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import ClassVar

from crdtcast.adapters.redis.commit.plan import Expect
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.types.native import Content, Holds, NativeType

_EXACT_BYTES = 15
"""A decimal of so many characters, and so of at most as many digits, is given back by its nearest double."""


def decimal_of(score: float) -> bytes:
    """The decimal that a double stands for: the first of 15, 16 or 17 digits that gives it back. Scripts of the server
    have the same rule (`recorded/exact_scores.py`). A negative zero counts as zero: a server does not replace one by
    the other, so regions would differ.
    """
    if score == 0:
        return b"0"
    for digits in (15, 16, 17):
        text = f"{score:.{digits}g}"
        if float(text) == score:
            break
    return f"{Decimal(text):f}".encode() if "e" in text else text.encode()


class SortedSet(NativeType):
    """Sorted sets; see `NativeType`."""

    type: ClassVar[RedisType] = RedisType.ZSET
    name: ClassVar[bytes] = b"zset"
    valued: ClassVar[bool] = True
    rounds: ClassVar[bool] = True
    here: ClassVar[Holds] = Holds("a sorted set", RedisType.ZSET)
    perhaps: ClassVar[Holds] = Holds("a sorted set or nothing", RedisType.ZSET, is_sure=False)
    write: ClassVar[bytes] = b"ZADD"
    written: ClassVar[Expect | bytes] = Expect.INTEGER
    remove: ClassVar[bytes] = b"ZREM"
    read: ClassVar[bytes] = b"ZRANGE"
    read_behind: ClassVar[tuple[bytes, ...]] = (b"0", b"-1", b"WITHSCORES")
    get: ClassVar[bytes | None] = b"ZSCORE"
    get_several: ClassVar[bytes | None] = b"ZMSCORE"
    increase: ClassVar[bytes | None] = b"ZINCRBY"
    counts: ClassVar[range] = range(-(2**51) + 1, 2**51)
    """Servers print these without an exponent."""
    size: ClassVar[bytes] = b"ZCARD"
    scan: ClassVar[bytes] = b"ZSCAN"

    @staticmethod
    def increased(number: int) -> bytes:
        return b"%d" % number

    @classmethod
    def increasing(cls, slot: bytes, delta: int) -> tuple[bytes, bytes]:
        return b"%d" % delta, slot

    @staticmethod
    def shown(worth: bytes) -> bytes:
        if worth.isdigit() and len(worth) <= _EXACT_BYTES:
            return worth
        return decimal_of(float(worth))

    @classmethod
    def in_order(cls, words: Sequence[bytes]) -> Sequence[bytes] | None:
        if len(words) == 2:
            slot, score = words
            return (score, slot) if len(score) <= _EXACT_BYTES else None
        if max(map(len, words[1::2])) > _EXACT_BYTES:
            return None
        turned = list(words)
        turned[::2], turned[1::2] = words[1::2], words[::2]
        return turned

    @staticmethod
    def words(content: Content) -> Collection[bytes]:
        shown = SortedSet.shown
        return [word for member, score in content.items() for word in (shown(score), member)]

    @staticmethod
    def content(reply: object) -> Content | None:
        if not isinstance(reply, list):
            return None
        shown = SortedSet.shown
        return dict(zip(reply[::2], map(shown, reply[1::2]), strict=True))
