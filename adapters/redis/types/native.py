"""What the core knows of a type: the commands that write, remove and read its slots.

The core decides what a slot is worth, and under which key its type stands. One file a type, registered in `types`; no
other file names one, but for the string, which may be a number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

from crdtcast.adapters.redis.commit.plan import Expect
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.store.slot_value import PRESENT, Worth

Content: TypeAlias = Mapping[bytes, Worth]
"""What the slots of one type under one key are worth."""


BEGINNING = b"0"
"""Where the first page is."""
PAGE_BYTES = 1 << 20
"""Of slots and values that are read at once, about; a slot that holds more is read by itself."""


class Page(NamedTuple):
    """Some slots. following: what to go on from; None behind the last ones. at: where in its slot's value it begins."""

    content: Content
    following: bytes | None
    at: int = 0


class Holds:
    """What a key is known to hold. type: None for nothing, or for what no gateway writes. is_sure: or else nothing."""

    __slots__ = ("is_sure", "type", "word")

    def __init__(self, word: str, type_: RedisType | None, *, is_sure: bool = True) -> None:
        self.word: str = word
        self.type: RedisType | None = type_
        self.is_sure: bool = is_sure

    def __repr__(self) -> str:
        return f"<holds {self.word}>"


NOTHING = Holds("nothing", None)
OTHER = Holds("another type", None)
"""None that a gateway writes: it came past the gateway."""


class NativeType:
    """A type that has all its slots in one native key."""

    type: ClassVar[RedisType]
    name: ClassVar[bytes]
    """As TYPE tells it."""
    valued: ClassVar[bool]
    """Whether its slots have values, not only presences."""
    here: ClassVar[Holds]
    perhaps: ClassVar[Holds]
    """After a removal: nobody has looked whether a slot is left."""
    write: ClassVar[bytes]
    """The command that gives slots what they are worth, beside what else is there: `write key words…`."""
    in_turn: ClassVar[bool] = False
    """Whether it takes slots and values in turn, as effects have them."""
    written: ClassVar[Expect | bytes]
    """Its reply."""
    remove: ClassVar[bytes]
    """The command that removes slots, and counts them: `remove key slots…`."""
    read: ClassVar[bytes]
    """The command that reads all slots: `read key read_behind…`."""
    read_behind: ClassVar[tuple[bytes, ...]] = ()

    get: ClassVar[bytes | None] = None
    """The command that reads one slot, its value or whether (1 or 0) it is there: `get key slot`; None if the type has
    one slot only.
    """
    increase: ClassVar[bytes | None] = None
    """The command that has the number in a slot grow, as long as it has 64 bits, and answers what it is then:
    `increase key slot delta`. Without it the number is written.
    """

    size: ClassVar[bytes]
    """The command that counts the slots, or tells how long the one is."""
    scan: ClassVar[bytes]
    """The command that reads some of the slots at a time: `scan key cursor COUNT slots`."""

    names: ClassVar[bytes | None] = None
    """The command that tells which slots there are, without their values: `names key`."""

    move: ClassVar[bytes | None] = None
    """The command that moves a slot to another key, and counts it: `move key other slot`."""

    @classmethod
    def reading(cls, key: bytes) -> list[bytes]:
        """The words that read all slots."""
        return [cls.read, key, *cls.read_behind]

    @classmethod
    def asking(cls, key: bytes, slot: bytes) -> list[bytes]:
        """The words that read one slot; `slot_of` tells what the reply means."""
        return cls.reading(key) if cls.get is None else [cls.get, key, slot]

    @classmethod
    def slot_of(cls, reply: object) -> Worth | None:
        """What the slot is worth; None if it is not there, or the key holds another type."""
        if cls.valued:
            return reply if isinstance(reply, bytes) else None
        return PRESENT if reply == 1 else None

    @classmethod
    def worth_of(cls, slot: bytes, reply: object) -> Worth | None:
        """The same of a type that may have one slot only."""
        return (cls.content(reply) or {}).get(slot) if cls.get is None else cls.slot_of(reply)

    @classmethod
    def page_reading(cls, key: bytes, start: bytes, slots: int) -> list[bytes]:
        """The words that read a page of about so many slots: the first one from `BEGINNING`. `page_of` tells what the
        reply means.

        Slots that are there all the time are in one of the pages at least, in whatever order; others may be.
        """
        return [cls.scan, key, start, b"COUNT", b"%d" % slots]

    @classmethod
    def page_of(cls, start: bytes, reply: Any) -> Page | None:
        """None if the key holds another type."""
        if not isinstance(reply, list):
            return None
        following, words = reply
        content = cls.content(words)
        if content is None:
            return None
        return Page(content, None if following == BEGINNING else following)

    @classmethod
    def page_writing(cls, key: bytes, content: Content, at: int) -> list[bytes]:
        """The words that write slots of a page, beside what else is there."""
        return [cls.write, key, *cls.words(content)]

    @staticmethod
    def words(content: Content) -> Collection[bytes]:
        """What `write` gets behind the key."""
        raise NotImplementedError

    @staticmethod
    def content(reply: object) -> Content | None:
        """What the slots are worth by the reply to `read`; None if the key holds another type."""
        raise NotImplementedError
