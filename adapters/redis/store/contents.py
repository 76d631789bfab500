"""The value of a key, by type: read from a server, written to one, packed for another gateway.

A server's own dump depends on its version, so values are sent by their meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from crdtcast.adapters.redis.deadlines.index import unpinned
from crdtcast.adapters.redis.store.databases import home_of, sent
from crdtcast.adapters.redis.store.effects import NEVER, WHOLE, RedisType, pairs_of
from crdtcast.adapters.redis.store.hiding import hidden_key
from crdtcast.adapters.redis.store.slot_value import PRESENT
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.exact_values import ExactValues
from crdtcast.adapters.redis.types.native import Content, NativeType
from crdtcast.exceptions import ServerError

Contents: TypeAlias = Mapping[RedisType, Content]
"""The value of one key, by type. If there are several types, the lowest is visible. No content is empty. The deadline,
if there is one, is an entry like a type, in milliseconds since the epoch.
"""
Slots: TypeAlias = Mapping[RedisType, Sequence[bytes]]
"""Some slots of a key, by type."""
_DEADLINE = RedisType.DEADLINE
NOT_THERE = -2
"""Reply of PEXPIRETIME for a missing key."""
_SLOTS_AT_ONCE = 5_000
ROWS = 1 << 14
"""Lists and maps that an answer may have in addition to those that its length allows, for keys that hold almost
nothing.
"""


class KeyRead:
    """Commands that read all of a key, or some of its slots, and what their replies mean. The connection is on database
    0 before and after.

    hidden: the types that the key hides.
    exact: the exact values at the instant of the reads.
    with_type: also ask for the visible type.
    visible: the type of the visible value, if that is known; None: any.
    """

    __slots__ = ("_exact", "_name", "_places", "_shown", "_slots", "_with_type", "commands")

    def __init__(
        self,
        name: bytes,
        hidden: Collection[RedisType],
        exact: ExactValues,
        metadata_db: int,
        slots: Slots | None = None,
        *,
        with_type: bool = False,
        visible: RedisType | None = None,
    ) -> None:
        home = home_of(name)
        asked = [(home.db, [b"PEXPIRETIME", home.key])]
        if with_type:
            asked.append((home.db, [b"TYPE", home.key]))
        shown: Collection[RedisType] = TYPES if visible is None else (visible,)
        if slots is not None:
            shown = [type_ for type_ in slots if type_ not in hidden]
        self._shown = len(shown)
        beside = hidden if slots is None else slots.keys() & hidden
        values = [(type_, home.db, home.key) for type_ in shown]
        values += [(type_, metadata_db, hidden_key(type_, name)) for type_ in sorted(beside)]
        self._name, self._exact = name, exact
        self._with_type = with_type
        self._slots: list[tuple[type[NativeType], bytes | None]] = []
        for type_, db, key in values:
            native = TYPES[type_]
            if slots is None:
                self._slots.append((native, None))
                asked.append((db, native.reading(key)))
                continue
            for slot in slots[type_]:
                self._slots.append((native, slot))
                asked.append((db, native.asking(key, slot)))
        self.commands: list[list[bytes]]
        self.commands, self._places = sent(asked)

    def contents(self, replies: Sequence[object]) -> Contents:
        """The contents. A visible value is left out if its type is not ours."""
        found: dict[RedisType, Any] = {}
        told, name, exact = self._told(replies), self._name, self._exact
        for (native, slot), reply in zip(self._slots, told, strict=True):
            if slot is None:
                if content := native.content(reply):
                    found[native.type] = exact.over(name, native.type, content)
            elif (worth := native.worth_of(slot, reply)) is not None:
                found.setdefault(native.type, {})[slot] = exact.of(name, native.type, slot, worth)
        at = replies[self._places[0]]
        return with_deadline(found, unpinned(at)) if isinstance(at, int) and at >= 0 else found

    def is_there(self, replies: Sequence[object]) -> bool:
        """Whether a value is visible."""
        return replies[self._places[0]] != NOT_THERE

    def kind(self, replies: Sequence[object]) -> object:
        """The type of the visible value, as TYPE answers it."""
        return replies[self._places[1]]

    def is_told(self, replies: Sequence[object]) -> bool:
        """Whether these replies give all that the key holds: none is an error, and the visible type is the expected one
        (or any of ours), or the key is gone.
        """
        visible = zip(self._slots[: self._shown], self._told(replies), strict=False)
        return not any(isinstance(reply, ServerError) for reply in replies) and any(
            native.content(reply) is not None for (native, _), reply in visible
        )

    def _told(self, replies: Sequence[object]) -> list[object]:
        return [replies[place] for place in self._places[2 if self._with_type else 1 :]]


def with_deadline(contents: Contents, at: int) -> Contents:
    """The contents with a deadline."""
    return {**contents, _DEADLINE: {WHOLE: b"%d" % at}}


def deadline_of(contents: Contents) -> int:
    """In milliseconds since the epoch; `NEVER` if there is none."""
    return int(contents[_DEADLINE][WHOLE]) if _DEADLINE in contents else NEVER


def types_of(contents: Contents) -> list[RedisType]:
    """The types that the contents have, the visible one first."""
    return sorted(type_ for type_ in contents if type_ is not _DEADLINE)


def portions(content: Content) -> Iterator[Content]:
    """The slots in portions, each small enough for one command."""
    slots = list(content.items())
    for start in range(0, len(slots), _SLOTS_AT_ONCE):
        yield dict(slots[start : start + _SLOTS_AT_ONCE])


def packed(contents: Contents) -> dict[int, list[bytes]]:
    """The form in which contents are sent: slots by type, each with its value if the type has values."""
    return {
        int(type_): list(chain.from_iterable(content.items()))
        if _is_valued(type_)
        else list(content)
        for type_, content in contents.items()
    }


def unpacked(raw: Any) -> Contents:
    """Raises ValueError, TypeError or AttributeError if no gateway packed this."""
    contents: dict[RedisType, Content] = {}
    for number, words in raw.items():
        type_ = RedisType(number)
        if type(number) is not int or (type_ not in TYPES and type_ is not _DEADLINE):
            raise ValueError(f"slots of type {number!r:.40}, which no gateway has")
        if type(words) is not list or not words or set(map(type, words)) != {bytes}:
            raise ValueError("a slot is bytes")
        content = pairs_of(words) if _is_valued(type_) else dict.fromkeys(words, PRESENT)
        has_one = type_ is _DEADLINE or TYPES[type_].get is None
        if has_one and (len(content) > 1 or WHOLE not in content):
            raise ValueError(f"slots of type {number!r:.40}, which has one")
        contents[type_] = content
    if _DEADLINE in contents:
        at = deadline_of(contents)
        if not 0 <= at <= NEVER or contents[_DEADLINE][WHOLE] != b"%d" % at:
            raise ValueError("a deadline that is out of range, or in an invalid form")
    return contents


def _is_valued(type_: RedisType) -> bool:
    return type_ is _DEADLINE or TYPES[type_].valued
