"""The keys of a region in slices, as a joining gateway gets them: absolute values, each as of one instant.

A row is a key and what it is worth by type; nothing: the key is not there. A long text comes in pages, each a row; what
is written meanwhile is read again, like any key that changes while it is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from crdtcast.adapters.redis import contents
from crdtcast.adapters.redis.contents import ROWS, Contents, packed, unpacked
from crdtcast.adapters.redis.databases import check_name, home_of, select
from crdtcast.adapters.redis.effects import WHOLE, RedisType
from crdtcast.adapters.redis.keyspace import Keyspace
from crdtcast.adapters.redis.recorder import Read
from crdtcast.adapters.redis.server import Words
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.msgpack_limits import unpacked as within_limits

_WHAT = "crdtcast keys"
_LEVEL = 1
"""The format level that has brought in rows like these."""

_pack: Callable[[object], bytes] = msgpack.packb


class Row(NamedTuple):
    """What one key is worth; or a page of its text, which begins at `at`."""

    key: bytes
    contents: Contents
    at: int = 0


@dataclass(frozen=True, slots=True)
class Slice:
    """Some keys. `place`: how many slices were before it; `done`: enough is copied to ask to be let in.

    total: keys of the region when the copy began, for a progress to be told.
    left_out: what the region holds that no slice will have (`census`).
    """

    place: int
    total: int
    done: bool
    rows: list[Row]
    left_out: dict[str, int]

    def encode(self) -> bytes:
        rows = [_packed(row) for row in self.rows]
        return _pack([_WHAT, _LEVEL, self.place, self.total, self.done, rows, self.left_out])

    @classmethod
    def decode(cls, raw: bytes) -> Slice:
        """Raises RemoteProtocolError for anything else: no gateway has sent it, or one of another version."""
        try:
            place, total, done, rows, left_out = _opened(raw)
            left_out = {str(kind): int(number) for kind, number in left_out.items()}
            return cls(int(place), int(total), done is True, [_row(*row) for row in rows], left_out)
        except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
            raise RemoteProtocolError(f"no slice of a gateway's keys: {error}") from error


@dataclass(frozen=True, slots=True)
class Ending:
    """What goes with an admission: its entry (`group_state.pack_entry`), and the keys that have changed since they
    were copied, as of the same instant. clock: greatest hybrid time used or seen.
    """

    entry: bytes
    clock: int
    rows: list[Row]

    def encode(self) -> bytes:
        rows = [_packed(row) for row in self.rows]
        return _pack([_WHAT, _LEVEL, self.entry, self.clock, rows])

    @classmethod
    def decode(cls, raw: bytes) -> Ending:
        """Raises RemoteProtocolError."""
        try:
            entry, clock, rows = _opened(raw)
            if type(entry) is not bytes or type(clock) is not int:
                raise ValueError("an entry or a clock of the wrong type")
            return cls(entry, clock, [_row(*row) for row in rows])
        except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
            raise RemoteProtocolError(f"no admission of a gateway: {error}") from error


def _opened(raw: bytes) -> list[Any]:
    what, level, *fields = within_limits(raw, ROWS, strict_map_key=False)
    if what != _WHAT or level != _LEVEL:
        raise ValueError(f"{what!r:.40} of format level {level!r:.40}")
    return list(fields)


def _packed(row: Row) -> list[object]:
    page = [row.at] if row.at else []
    return [row.key, packed(row.contents), *page]


def _row(key: Any, contents: Any, at: Any = 0) -> Row:
    if type(key) is not bytes or type(at) is not int or at < 0:
        raise ValueError("a key is bytes, and begins somewhere")
    check_name(key)
    worth = unpacked(contents)
    if at and worth.keys() != {RedisType.STRING}:
        raise ValueError("only a text has pages")
    return Row(key, worth, at)


def reads_of(
    keys: Iterable[bytes],
    keyspace: Keyspace,
    take: Callable[[Row], None],
) -> Iterator[Read]:
    """The reads for these keys, all at one instant on a connection to database 0; `take` gets each row.

    Nothing is taken of a key whose read fails with the connection.
    """
    for key in keys:
        yield from _reads_of_one(key, keyspace, take)


def _reads_of_one(key: bytes, keyspace: Keyspace, take: Callable[[Row], None]) -> Iterator[Read]:
    hidden = frozenset(keyspace.hidden.get(key, ()))
    commands = list(contents.reads_of(key, hidden, keyspace.metadata_db))
    replies: list[object] = []

    def note(reply: object) -> None:
        replies.append(reply)
        if len(replies) == len(commands):
            take(Row(key, keyspace.with_orphan(key, contents.contents_of(key, replies, hidden))))

    for command in commands:
        yield list(command), note


def commands_for(
    rows: Iterable[Row], metadata_db: int, hiding: dict[bytes, set[RedisType]]
) -> Iterator[Words]:
    """What makes a server hold these values, whatever it holds; from database 0, and back to it.

    hiding: the types that keys hide there so far; kept up to date.
    """
    for key, worth, at in rows:
        if at:
            home = home_of(key)
            if home.db:
                yield select(home.db)
            yield b"SETRANGE", home.key, b"%d" % at, worth[RedisType.STRING][WHOLE]
            if home.db:
                yield select(0)
            continue
        yield from contents.commands_for(key, worth, hiding.pop(key, ()), metadata_db)
        types = contents.types_of(worth)
        beside = set(types[1:]) if types else set(worth)
        if beside:
            hiding[key] = beside
