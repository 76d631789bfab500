"""Reads what a commit has to know of the server before it can be prepared, in one pipeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from crdtcast.adapters.redis.clients.transaction import SlotContents
from crdtcast.adapters.redis.deadlines import index
from crdtcast.adapters.redis.deadlines.index import Due
from crdtcast.adapters.redis.server.connection import pack
from crdtcast.adapters.redis.store.contents import Contents, KeyRead
from crdtcast.adapters.redis.store.databases import ELSEWHERE, Home, db_of, home_of, key_of, select
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.slot_value import LONGEST_NUMBER
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import NOTHING
from crdtcast.exceptions import ServerError

if TYPE_CHECKING:
    from crdtcast.adapters.redis.server.connection import Replies

Words = Sequence[bytes]
Take = Callable[["Replies"], None]
_TYPE_AND_TEXT = (
    b"*2\r\n$4\r\nTYPE\r\n$%%d\r\n%%b\r\n"
    b"*4\r\n$8\r\nGETRANGE\r\n$%%d\r\n%%b\r\n$1\r\n0\r\n$%d\r\n%d\r\n"
) % (len(str(LONGEST_NUMBER)), LONGEST_NUMBER)
"""The type of a key, and its text, as far as that may be a number."""
_KEYS_AT_ONCE = 200
"""Keys that one script reads."""


def _learn_dated(
    keys: Sequence[bytes], keyspace: Keyspace, there: Callable[[bytes], None], replies: Replies
) -> None:
    (reply,) = replies
    if isinstance(reply, Exception):
        raise ServerError(str(reply))
    now, rows = index.looked(reply)
    for key, found in zip(keys, rows, strict=True):
        keyspace.learn_dated(key, found, now)
        if found.kind != b"none":
            there(key)


def _learn_types(
    keys: Sequence[bytes], keyspace: Keyspace, there: Callable[[bytes], None], replies: Replies
) -> None:
    types, learn = keyspace.types, keyspace.learn
    for key, kind, text in zip(keys, replies[::2], replies[1::2], strict=True):
        if kind == b"none":
            types[key] = NOTHING
            continue
        if isinstance(kind, Exception):
            raise ServerError(str(kind))
        learn(key, kind, text)
        there(key)


def _succeeded(replies: Replies) -> None:
    for reply in replies:
        if isinstance(reply, Exception):
            raise ServerError(str(reply))


class Looks(NamedTuple):
    """Slots of one type that must be known.

    take: gets the replies to `NativeType.asking`; None: the slots will be incremented.
    """

    type: RedisType
    slots: Sequence[bytes]
    take: Take | None = None


class Lookup:
    """Reads, and the callbacks for their replies."""

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self.replies: int = 0
        """The number of replies to expect."""
        self._takers: list[tuple[int, Take]] = []

    @property
    def payload(self) -> bytes:
        return b"".join(self._packed)

    def ask(self, commands: Sequence[Words], take: Take) -> None:
        """Add commands on database 0. take: gets the replies, errors as values; `learn` raises what it raises."""
        self._packed += map(pack, commands)
        self.replies += len(commands)
        self._takers.append((len(commands), take))

    def at(self, home: Home, commands: Sequence[Words], take: Take) -> None:
        """Like `ask`, in the database of a value."""
        if not home.db:
            self.ask(commands, take)
            return
        self.ask([select(home.db), *commands, select(0)], lambda replies: take(replies[1:-1]))

    def learn(self, replies: Replies) -> None:
        """Pass all replies to their callbacks."""
        start = 0
        for number, take in self._takers:
            take(replies[start : start + number])
            start += number

    # Questions

    def types_of(
        self, keys: Sequence[bytes], keyspace: Keyspace, found: Callable[[bytes], None]
    ) -> None:
        """What keys hold; of a text, as many bytes as a number may have. found: called with each key that exists."""
        by_db: defaultdict[int, list[bytes]] = defaultdict(list)
        for name in keys:
            by_db[0 if name < ELSEWHERE else db_of(name)].append(name)
        for db, names in by_db.items():
            if db:
                self.ask((select(db),), _succeeded)
            for name in names:
                key = name if name < ELSEWHERE else key_of(name)
                size = len(key)
                self._packed.append(_TYPE_AND_TEXT % (size, key, size, key))
            self.replies += 2 * len(names)
            self._takers.append((2 * len(names), partial(_learn_types, names, keyspace, found)))
            if db:
                self.ask((select(0),), _succeeded)

    def dated(
        self, keys: Sequence[bytes], keyspace: Keyspace, found: Callable[[bytes], None]
    ) -> None:
        """What keys hold, and their deadlines. found: called with each key that exists."""
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            some = keys[start : start + _KEYS_AT_ONCE]
            words = index.look(some, keyspace.metadata_db, keyspace.dates.offset_ms)
            self.ask((words,), partial(_learn_dated, some, keyspace, found))
        # A commit that rests on this is written before the server drops any of the keys, or fails.
        watch = (select(keyspace.metadata_db), (b"WATCH", index.LOOKED), select(0))
        self.ask(watch, _succeeded)

    def due(self, keyspace: Keyspace, grace_ms: int, take: Callable[[list[Due]], None]) -> None:
        """Keys that the server has dropped at their deadlines.

        grace_ms: a deadline that another member set must have passed for so long.
        """

        def learn(replies: Replies) -> None:
            (reply,) = replies
            if isinstance(reply, Exception):
                raise ServerError(str(reply))
            now, place, found = index.found_due(reply)
            keyspace.dates.looked(now, place, found)
            take(found)

        dates = keyspace.dates
        where = keyspace.metadata_db, dates.offset_ms, grace_ms, dates.looks_on, dates.none_of_mine
        self.ask((index.find_due(*where),), learn)

    def whole(self, key: bytes, keyspace: Keyspace, take: Callable[[Contents], None]) -> None:
        """The complete contents of a key, hidden values included."""
        hidden = frozenset(keyspace.hidden.get(key, ()))
        read = KeyRead(key, hidden, keyspace.exact, keyspace.metadata_db)
        self.ask(read.commands, lambda replies: take(read.contents(replies)))

    def slots(
        self,
        key: bytes,
        type_: RedisType,
        slots: Sequence[bytes],
        keyspace: Keyspace,
        take: Take,
    ) -> None:
        """The values of slots of one type."""
        home, native = keyspace.place_of(key, type_), TYPES[type_]
        self.at(home, [native.asking(home.key, slot) for slot in slots], take)

    def drawn(self, key: bytes, type_: RedisType, number: int, take: Take) -> None:
        """So many different slots of a visible value, or all if it has fewer, at random."""
        home, draw = home_of(key), TYPES[type_].draw
        assert draw is not None
        self.at(home, [(draw, home.key, b"%d" % number)], take)

    def contents(
        self,
        key: bytes,
        type_: RedisType,
        slots: Sequence[bytes],
        found: Callable[[SlotContents], None],
    ) -> None:
        """How many slots a key has, and which of the given ones. found: called if it holds that type, or nothing."""
        native = TYPES[type_]

        def take(replies: Replies) -> None:
            size, *told = replies
            if not isinstance(size, Exception):
                present = [
                    slot
                    for slot, reply in zip(slots, told, strict=True)
                    if native.slot_of(reply) is not None
                ]
                number = len(present) if native.get is None else size
                found(SlotContents(type_, number, present))

        home = home_of(key)
        asking = (native.asking(home.key, slot) for slot in slots)
        self.at(home, [[native.size, home.key], *asking], take)

    def number(self, key: bytes, type_: RedisType, slot: bytes, keyspace: Keyspace) -> None:
        """The value of a slot that will be incremented."""

        def take(replies: Replies) -> None:
            keyspace.learn_number(key, type_, slot, replies[0])

        self.slots(key, type_, (slot,), keyspace, take)
