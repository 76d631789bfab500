"""What keys are worth, by type: as it is read from a server, written to one, and as it travels.

A server's own dump is of its version; values travel as what they mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from crdtcast.adapters.redis.databases import db_of, home_of, select
from crdtcast.adapters.redis.deadlines.index import ORPHANS, commands_until, unpinned
from crdtcast.adapters.redis.effects import NEVER, WHOLE, RedisType, pairs_of
from crdtcast.adapters.redis.hiding import hidden_key
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import Content
from crdtcast.adapters.redis.worth import PRESENT
from crdtcast.exceptions import ServerError

Contents: TypeAlias = Mapping[RedisType, Content]
"""By type, of one key; of several the first in their order is visible. No content is empty. Its deadline, if it has
one, stands beside them, in milliseconds since the epoch.
"""
_DEADLINE = RedisType.DEADLINE
_SLOTS_AT_ONCE = 5_000
ROWS = 1 << 14
"""Lists and maps that an answer may have beside those that its length allows: of keys that hold next to nothing."""


def reads_of(
    name: bytes, hidden: Collection[RedisType], metadata_db: int
) -> Iterator[Sequence[bytes]]:
    """The commands that read all of a key on a connection to database 0, and leave it there."""
    home = home_of(name)
    if home.db:
        yield select(home.db)
    yield b"PEXPIRETIME", home.key
    yield from (native.reading(home.key) for native in TYPES.values())
    if hidden:
        yield select(metadata_db)
        yield from (TYPES[type_].reading(hidden_key(type_, name)) for type_ in sorted(hidden))
    if hidden or home.db:
        yield select(0)


def contents_of(name: bytes, replies: Sequence[object], hidden: Collection[RedisType]) -> Contents:
    """From the replies to `reads_of`, in their order. What is visible is left out if it is of no type of ours."""
    at, *replies = replies[1:] if db_of(name) else replies
    visible, behind = replies[: len(TYPES)], replies[len(TYPES) + 1 : -1]
    pairs = chain(zip(TYPES, visible, strict=True), zip(sorted(hidden), behind, strict=True))
    found = {type_: content for type_, reply in pairs if (content := TYPES[type_].content(reply))}
    return with_deadline(found, unpinned(at)) if isinstance(at, int) and at >= 0 else found


def with_deadline(contents: Contents, at: int) -> Contents:
    """The same with a deadline."""
    return {**contents, _DEADLINE: {WHOLE: b"%d" % at}}


def deadline_of(contents: Contents) -> int:
    """In milliseconds since the epoch; `NEVER` if there is none."""
    return int(contents[_DEADLINE][WHOLE]) if _DEADLINE in contents else NEVER


def types_of(contents: Contents) -> list[RedisType]:
    """Those that it holds something of, the visible one first."""
    return sorted(type_ for type_ in contents if type_ is not _DEADLINE)


def is_read(name: bytes, replies: Sequence[object]) -> bool:
    """Whether the replies to `reads_of` tell what a key holds: all have come, and it is of a type of ours, or gone."""
    first = 2 if db_of(name) else 1
    visible = replies[first : first + len(TYPES)]
    return not any(isinstance(reply, ServerError) for reply in replies) and any(
        native.content(reply) is not None
        for native, reply in zip(TYPES.values(), visible, strict=True)
    )


def commands_for(
    name: bytes, contents: Contents, hiding: Collection[RedisType], metadata_db: int
) -> Iterator[Sequence[bytes]]:
    """What makes a server hold this, whatever it holds; from database 0, and back. hiding: types hidden so far, and
    `DEADLINE` if it has one without data.
    """
    home = home_of(name)
    if home.db:
        yield select(home.db)
    yield b"DEL", home.key
    types = types_of(contents)
    if types:
        yield from _filled(home.key, types[0], contents[types[0]])
    hides = bool(hiding) or len(types) > 1
    if hides:
        yield select(metadata_db)
        if _DEADLINE in hiding:
            yield b"HDEL", ORPHANS, name
        if stale := sorted({*hiding, *types[1:]} - {_DEADLINE}):
            yield b"DEL", *(hidden_key(type_, name) for type_ in stale)
        for type_ in types[1:]:
            yield from _filled(hidden_key(type_, name), type_, contents[type_])
    if hides or home.db:
        yield select(0)
    if _DEADLINE in contents:
        yield from commands_until(name, deadline_of(contents), metadata_db, is_there=bool(types))


def _filled(key: bytes, type_: RedisType, content: Content) -> Iterator[Sequence[bytes]]:
    native = TYPES[type_]
    for some in portions(content):
        yield native.write, key, *native.words(some)


def portions(content: Content) -> Iterator[Content]:
    """The slots, so many at a time as one command may write."""
    slots = list(content.items())
    for start in range(0, len(slots), _SLOTS_AT_ONCE):
        yield dict(slots[start : start + _SLOTS_AT_ONCE])


def packed(contents: Contents) -> dict[int, list[bytes]]:
    """As it travels: slots by type, each with its value if it has one."""
    return {
        int(type_): list(chain.from_iterable(content.items()))
        if _is_valued(type_)
        else list(content)
        for type_, content in contents.items()
    }


def unpacked(raw: Any) -> Contents:
    """Raises ValueError, TypeError or AttributeError for what no gateway has packed."""
    contents: dict[RedisType, Content] = {}
    for number, words in raw.items():
        type_ = RedisType(number)
        is_known = type_ in TYPES or type_ is _DEADLINE
        if not is_known or not words or not all(type(word) is bytes for word in words):
            raise ValueError(f"slots of type {number!r:.40} that no gateway has")
        valued = _is_valued(type_)
        contents[type_] = pairs_of(tuple(words)) if valued else dict.fromkeys(words, PRESENT)
    if not 0 <= deadline_of(contents) <= NEVER:
        raise ValueError("a deadline beyond all time")
    return contents


def _is_valued(type_: RedisType) -> bool:
    return type_ is _DEADLINE or TYPES[type_].valued
