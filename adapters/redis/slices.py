"""The keys of a region in slices, as a joining gateway gets them: absolute values, each as of one instant.

A row is a key, its number (or None), its set members, and those of a set that its number hides; none of them: the key
is not there. Values travel as what they mean, not as the server's own dump, so servers of any version read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from crdtcast.adapters.redis.effects import RedisType
from crdtcast.adapters.redis.keyspace import hidden_key
from crdtcast.adapters.redis.recorder import Read
from crdtcast.adapters.redis.server import Words
from crdtcast.exceptions import RemoteProtocolError

_WHAT = "crdtcast keys"
_LEVEL = 1
"""The format level that has brought in rows like these."""
_MEMBERS_AT_ONCE = 5_000

_pack: Callable[[object], bytes] = msgpack.packb


class Row(NamedTuple):
    """What one key is worth."""

    key: bytes
    number: bytes | None = None
    members: list[bytes] = []  # noqa: RUF012 (never changed)
    hidden: list[bytes] = []  # noqa: RUF012


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
        return _pack([_WHAT, _LEVEL, self.place, self.total, self.done, self.rows, self.left_out])

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
        return _pack([_WHAT, _LEVEL, self.entry, self.clock, self.rows])

    @classmethod
    def decode(cls, raw: bytes) -> Ending:
        """Raises RemoteProtocolError."""
        try:
            entry, clock, rows = _opened(raw)
            if type(entry) is not bytes or type(clock) is not int:
                raise ValueError("an entry or a clock of the wrong type")
            return cls(entry, clock, [_row(*row) for row in rows])
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise RemoteProtocolError(f"no admission of a gateway: {error}") from error


def _opened(raw: bytes) -> list[Any]:
    what, level, *fields = msgpack.unpackb(raw)
    if what != _WHAT or level != _LEVEL:
        raise ValueError(f"{what!r:.40} of format level {level!r:.40}")
    return list(fields)


def _row(key: Any, number: Any, members: Any, hidden: Any) -> Row:
    words = [key, *members, *hidden, *([] if number is None else [number])]
    if not all(type(word) is bytes for word in words):
        raise ValueError("a key's value is bytes")
    return Row(key, number, members, hidden)


def reads_of(
    keys: Iterable[bytes], hidden: set[bytes], metadata_db: int, take: Callable[[Row], None]
) -> Iterator[Read]:
    """The reads for these keys, all at one instant on a connection to database 0; `take` gets each row.

    Nothing is taken of a key whose read fails with the connection.
    """
    for key in keys:
        yield from _reads_of_one(key, key in hidden, metadata_db, take)


def _reads_of_one(
    key: bytes, is_hidden: bool, metadata_db: int, take: Callable[[Row], None]
) -> Iterator[Read]:
    number: list[bytes | None] = [None]
    visible: list[bytes] = []

    def note_number(reply: object) -> None:
        number[0] = reply if isinstance(reply, bytes) else None  # an error: it is a set

    def note_members(reply: object) -> None:
        visible.extend(reply if isinstance(reply, list) else ())
        if not is_hidden:
            take(Row(key, number[0], visible, []))

    def note_hidden(reply: object) -> None:
        take(Row(key, number[0], visible, reply if isinstance(reply, list) else []))

    yield [b"GET", key], note_number
    yield [b"SMEMBERS", key], note_members
    if is_hidden:
        yield [b"SELECT", b"%d" % metadata_db], _ignore
        yield [b"SMEMBERS", hidden_key(RedisType.SET, key)], note_hidden
        yield [b"SELECT", b"0"], _ignore


def _ignore(reply: object) -> None:
    del reply


def commands_for(rows: Iterable[Row], metadata_db: int, hiding: set[bytes]) -> Iterator[Words]:
    """What makes a server hold these values, whatever it holds; from database 0, and back to it.

    hiding: the keys that hide a set there so far; kept up to date.
    """
    for key, number, members, hidden in rows:
        yield b"DEL", key
        if number is not None:
            yield b"SET", key, number
        else:
            yield from _added(key, members)
        if hidden or key in hiding:
            aside = hidden_key(RedisType.SET, key)
            yield b"SELECT", metadata_db
            yield b"DEL", aside
            yield from _added(aside, hidden)
            yield b"SELECT", 0
            (hiding.add if hidden else hiding.discard)(key)


def _added(key: bytes, members: list[bytes]) -> Iterator[Words]:
    for start in range(0, len(members), _MEMBERS_AT_ONCE):
        yield b"SADD", key, *members[start : start + _MEMBERS_AT_ONCE]
