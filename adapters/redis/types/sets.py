"""Sets: a slot is a member, without a value."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from crdtcast.adapters.redis.commit.plan import Expect
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.store.slot_value import PRESENT
from crdtcast.adapters.redis.types.native import Content, Holds, NativeType


class Set(NativeType):
    """Sets; see `NativeType`."""

    type: ClassVar[RedisType] = RedisType.SET
    name: ClassVar[bytes] = b"set"
    valued: ClassVar[bool] = False
    here: ClassVar[Holds] = Holds("a set", RedisType.SET)
    perhaps: ClassVar[Holds] = Holds("a set or nothing", RedisType.SET, is_sure=False)
    write: ClassVar[bytes] = b"SADD"
    written: ClassVar[Expect | bytes] = Expect.INTEGER
    remove: ClassVar[bytes] = b"SREM"
    read: ClassVar[bytes] = b"SMEMBERS"
    get: ClassVar[bytes | None] = b"SISMEMBER"
    get_several: ClassVar[bytes | None] = b"SMISMEMBER"
    draw: ClassVar[bytes | None] = b"SRANDMEMBER"
    move: ClassVar[bytes | None] = b"SMOVE"
    size: ClassVar[bytes] = b"SCARD"
    scan: ClassVar[bytes] = b"SSCAN"

    @staticmethod
    def words(content: Collection[bytes]) -> Collection[bytes]:
        return content

    @staticmethod
    def content(reply: object) -> Content | None:
        return dict.fromkeys(reply, PRESENT) if isinstance(reply, list | set) else None
