"""Strings and numbers: one slot, worth what was written last, and every increment that this had not seen."""

from __future__ import annotations

from collections.abc import Collection

from crdtcast.adapters.redis.effects import WHOLE, RedisType
from crdtcast.adapters.redis.plan import SAYS_OK
from crdtcast.adapters.redis.types.native import Content, Holds, NativeType


class String(NativeType):
    """(See `NativeType`.) A number is told from other text by the core, which counts with it."""

    type = RedisType.STRING
    name = b"string"
    valued = True
    here = Holds("text", RedisType.STRING)
    perhaps = Holds("text or nothing", RedisType.STRING, is_sure=False)
    write, written = b"SET", SAYS_OK
    remove, read = b"DEL", b"GET"
    size = b"STRLEN"

    @staticmethod
    def words(content: Content) -> Collection[bytes]:
        return (content[WHOLE],)

    @staticmethod
    def content(reply: object) -> Content | None:
        if reply is None:
            return {}
        return {WHOLE: reply} if isinstance(reply, bytes) else None
