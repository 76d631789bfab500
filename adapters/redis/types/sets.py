"""Sets: a slot is a member, worth that it is there."""

from __future__ import annotations

from collections.abc import Collection

from crdtcast.adapters.redis.commit.plan import Expect
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.store.worth import PRESENT
from crdtcast.adapters.redis.types.native import Content, Holds, NativeType


class Set(NativeType):
    """(See `NativeType`.)"""

    type = RedisType.SET
    name = b"set"
    valued = False
    here = Holds("a set", RedisType.SET)
    perhaps = Holds("a set or nothing", RedisType.SET, is_sure=False)
    write, written = b"SADD", Expect.INTEGER
    remove, read = b"SREM", b"SMEMBERS"
    get, move = b"SISMEMBER", b"SMOVE"
    size, scan = b"SCARD", b"SSCAN"

    @staticmethod
    def words(content: Collection[bytes]) -> Collection[bytes]:
        return content

    @staticmethod
    def content(reply: object) -> Content | None:
        return dict.fromkeys(reply, PRESENT) if isinstance(reply, list | set) else None
