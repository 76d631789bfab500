"""Strings and numbers: one slot. Its value is the last write plus all increments that this write had not seen."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from crdtcast.adapters.redis.commit.plan import SAYS_OK, Expect
from crdtcast.adapters.redis.store.effects import WHOLE, RedisType
from crdtcast.adapters.redis.types.native import PAGE_BYTES, Content, Holds, NativeType, Page


class String(NativeType):
    """Strings; see `NativeType`. The core tells numbers from other text, and does the arithmetic."""

    type: ClassVar[RedisType] = RedisType.STRING
    name: ClassVar[bytes] = b"string"
    valued: ClassVar[bool] = True
    here: ClassVar[Holds] = Holds("text", RedisType.STRING)
    perhaps: ClassVar[Holds] = Holds("text or nothing", RedisType.STRING, is_sure=False)
    write: ClassVar[bytes] = b"SET"
    written: ClassVar[Expect | bytes] = SAYS_OK
    remove: ClassVar[bytes] = b"DEL"
    read: ClassVar[bytes] = b"GET"
    size: ClassVar[bytes] = b"STRLEN"
    scan: ClassVar[bytes] = b"GETRANGE"

    @classmethod
    def page_reading(cls, key: bytes, start: bytes, slots: int) -> list[bytes]:
        return [cls.scan, key, start, b"%d" % (int(start) + PAGE_BYTES - 1)]

    @classmethod
    def page_of(cls, start: bytes, reply: Any) -> Page | None:
        if not isinstance(reply, bytes):
            return None
        at = int(start)
        following = b"%d" % (at + PAGE_BYTES) if len(reply) >= PAGE_BYTES else None
        return Page({WHOLE: reply} if reply else {}, following, at)

    @classmethod
    def page_writing(cls, key: bytes, content: Content, at: int) -> list[bytes]:
        return [b"SETRANGE", key, b"%d" % at, content[WHOLE]]

    @staticmethod
    def words(content: Content) -> Collection[bytes]:
        return (content[WHOLE],)

    @staticmethod
    def content(reply: object) -> Content | None:
        if reply is None:
            return {}
        return {WHOLE: reply} if isinstance(reply, bytes) else None
