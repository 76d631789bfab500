"""Hashes: a slot is a field. Its value is the last write plus all increments that this write had not seen."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain
from typing import ClassVar

from crdtcast.adapters.redis.commit.plan import Expect
from crdtcast.adapters.redis.store.effects import RedisType, pairs_of
from crdtcast.adapters.redis.types.native import Content, Holds, NativeType


class Hash(NativeType):
    """Hashes; see `NativeType`."""

    type: ClassVar[RedisType] = RedisType.HASH
    name: ClassVar[bytes] = b"hash"
    valued: ClassVar[bool] = True
    here: ClassVar[Holds] = Holds("a hash", RedisType.HASH)
    perhaps: ClassVar[Holds] = Holds("a hash or nothing", RedisType.HASH, is_sure=False)
    write: ClassVar[bytes] = b"HSET"
    written: ClassVar[Expect | bytes] = Expect.INTEGER
    remove: ClassVar[bytes] = b"HDEL"
    read: ClassVar[bytes] = b"HGETALL"
    get: ClassVar[bytes | None] = b"HGET"
    get_several: ClassVar[bytes | None] = b"HMGET"
    increase: ClassVar[bytes | None] = b"HINCRBY"
    size: ClassVar[bytes] = b"HLEN"
    scan: ClassVar[bytes] = b"HSCAN"
    names: ClassVar[bytes | None] = b"HKEYS"

    @classmethod
    def in_order(cls, words: Sequence[bytes]) -> Sequence[bytes] | None:
        return words

    @staticmethod
    def words(content: Content) -> Collection[bytes]:
        return list(chain.from_iterable(content.items()))

    @staticmethod
    def content(reply: object) -> Content | None:
        if isinstance(reply, dict):
            return reply
        return pairs_of(tuple(reply)) if isinstance(reply, list) else None
