"""Hashes: a slot is a field, worth what was written there last, and every increment that this had not seen."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from crdtcast.adapters.redis.commit.plan import Expect
from crdtcast.adapters.redis.store.effects import RedisType, pairs_of
from crdtcast.adapters.redis.types.native import Content, Holds, NativeType


class Hash(NativeType):
    """(See `NativeType`.)"""

    type = RedisType.HASH
    name = b"hash"
    valued = True
    here = Holds("a hash", RedisType.HASH)
    perhaps = Holds("a hash or nothing", RedisType.HASH, is_sure=False)
    write, in_turn, written = b"HSET", True, Expect.INTEGER
    remove, read = b"HDEL", b"HGETALL"
    get, increase = b"HGET", b"HINCRBY"
    size, scan, names = b"HLEN", b"HSCAN", b"HKEYS"

    @staticmethod
    def words(content: Content) -> Collection[bytes]:
        return list(chain.from_iterable(content.items()))

    @staticmethod
    def content(reply: object) -> Content | None:
        if isinstance(reply, dict):
            return reply
        return pairs_of(tuple(reply)) if isinstance(reply, list) else None
