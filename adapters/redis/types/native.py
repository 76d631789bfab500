"""The interface of a data type: the commands that write, remove and read its slots.

The core decides the value of a slot, and under which key its type is stored. Each type has one file and is registered
in `types`. No other file names a type, except the string, which may be a number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeAlias

from crdtcast.adapters.redis.commit.plan import Expect
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.store.slot_value import PRESENT, Worth

Content: TypeAlias = Mapping[bytes, Worth]
"""The values of the slots of one type under one key."""


BEGINNING = b"0"
"""Start of the first page."""
PAGE_BYTES = 1 << 20
"""Approximate bytes of slots and values that are read at once; a larger slot is read alone."""


class Page(NamedTuple):
    """Some slots.

    following: start of the next page; None: this is the last one.
    at: where the page begins in the value of its slot.
    """

    content: Content
    following: bytes | None
    at: int = 0


class Holds:
    """What a key is known to hold.

    type: None: nothing, or a type that no gateway writes.
    is_sure: False: the key may also hold nothing.
    """

    __slots__ = ("is_sure", "type", "word")

    def __init__(self, word: str, type_: RedisType | None, *, is_sure: bool = True) -> None:
        self.word: str = word
        self.type: RedisType | None = type_
        self.is_sure: bool = is_sure

    def __repr__(self) -> str:
        return f"<holds {self.word}>"


NOTHING = Holds("nothing", None)
OTHER = Holds("another type", None)
"""A type that no gateway writes: it was written directly to the server."""


class NativeType:
    """A type that has all its slots in one native key."""

    type: ClassVar[RedisType]
    name: ClassVar[bytes]
    """Its name in the reply to TYPE."""
    valued: ClassVar[bool]
    """Whether its slots have values, not only presence."""
    here: ClassVar[Holds]
    perhaps: ClassVar[Holds]
    """After a removal, before a look whether a slot is left."""
    write: ClassVar[bytes]
    """The command that writes slots and keeps the others: `write key words…`."""
    rounds: ClassVar[bool] = False
    """Whether it can hold only an approximation of some values (`shown`)."""
    written: ClassVar[Expect | bytes]
    """Its reply."""
    remove: ClassVar[bytes]
    """The command that removes slots and replies with their number: `remove key slots…`."""
    read: ClassVar[bytes]
    """The command that reads all slots: `read key read_behind…`."""
    read_behind: ClassVar[tuple[bytes, ...]] = ()

    get: ClassVar[bytes | None] = None
    """The command that reads one slot, its value or its presence (1 or 0): `get key slot`; None if the type has only
    one slot.
    """
    get_several: ClassVar[bytes | None] = None
    """The command that reads several slots, each as `get` does: `get_several key slots…`; None if there is none."""
    increase: ClassVar[bytes | None] = None
    """The command that adds to the number in a slot and replies with the sum; None: the number is written instead."""
    counts: ClassVar[range] = range(-(2**63), 2**63)
    """The numbers with which it counts exactly."""

    size: ClassVar[bytes]
    """The command that counts the slots, or returns the length of the only one."""
    scan: ClassVar[bytes]
    """The command that reads some slots at a time: `scan key cursor COUNT slots`."""

    names: ClassVar[bytes | None] = None
    """The command that lists the slots without their values: `names key`."""

    draw: ClassVar[bytes | None] = None
    """The command that chooses different slots at random: `draw key number`; None if there is none."""
    move: ClassVar[bytes | None] = None
    """The command that moves a slot to another key and replies with the number moved: `move key other slot`."""

    @classmethod
    def reading(cls, key: bytes) -> list[bytes]:
        """The words that read all slots."""
        return [cls.read, key, *cls.read_behind]

    @classmethod
    def asking(cls, key: bytes, slot: bytes) -> list[bytes]:
        """The words that read one slot; `slot_of` decodes the reply."""
        return cls.reading(key) if cls.get is None else [cls.get, key, slot]

    @classmethod
    def increasing(cls, slot: bytes, delta: int) -> tuple[bytes, bytes]:
        """The words of `increase` after the key."""
        return slot, b"%d" % delta

    @staticmethod
    def increased(number: int) -> bytes | int:
        """The reply to `increase`, by the sum."""
        return number

    @staticmethod
    def shown(worth: Worth) -> Worth:
        """The value that is read from the server after a value was written, or if the server shows it like this."""
        return worth

    @classmethod
    def in_order(cls, words: Sequence[bytes]) -> Sequence[bytes] | None:
        """The words of `write` after the key, from slots and values in turn, each slot once or several times; None if
        that takes a while. Only for types with values that are shown exactly.
        """
        return None

    @classmethod
    def slot_of(cls, reply: object) -> Worth | None:
        """The value of the slot; None if it does not exist, or the key holds another type."""
        if cls.valued:
            return cls.shown(reply) if isinstance(reply, bytes) else None
        return PRESENT if reply == 1 else None

    @classmethod
    def worth_of(cls, slot: bytes, reply: object) -> Worth | None:
        """Like `slot_of`, also for a type with only one slot."""
        return (cls.content(reply) or {}).get(slot) if cls.get is None else cls.slot_of(reply)

    @classmethod
    def page_reading(cls, key: bytes, start: bytes, slots: int) -> list[bytes]:
        """The words that read a page of about so many slots; `page_of` decodes the reply. Begin with `BEGINNING`.

        A slot that exists all the time is in at least one of the pages, in any order. Other slots may be.
        """
        return [cls.scan, key, start, b"COUNT", b"%d" % slots]

    @classmethod
    def page_of(cls, start: bytes, reply: Any) -> Page | None:
        """The page in a reply; None if the key holds another type."""
        if not isinstance(reply, list):
            return None
        following, words = reply
        content = cls.content(words)
        if content is None:
            return None
        return Page(content, None if following == BEGINNING else following)

    @classmethod
    def page_writing(cls, key: bytes, content: Content, at: int) -> list[bytes]:
        """The words that write the slots of a page and keep the others."""
        return [cls.write, key, *cls.words(content)]

    @staticmethod
    def words(content: Content) -> Collection[bytes]:
        """The words of `write` after the key."""
        raise NotImplementedError

    @staticmethod
    def content(reply: object) -> Content | None:
        """The values of the slots in a reply to `read`; None if the key holds another type."""
        raise NotImplementedError
