"""Messages with lists of rows: slices of a region, and what goes with an admission, for a joiner; states that a peer
asks a member for, as of one instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgpack

from crdtcast.adapters.redis.store.contents import ROWS
from crdtcast.adapters.redis.store.databases import check_name
from crdtcast.adapters.redis.transfer.key_rows import (
    Row,
    checked,
    natural,
    packed_row,
    unpacked_row,
)
from crdtcast.causality.tags import Vector
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.msgpack_limits import unpacked as within_limits

_WHAT = "crdtcast keys"
_LEVEL = 1
"""The format level that introduced these rows."""
_pack: Callable[[object], bytes] = msgpack.packb


@dataclass(frozen=True, slots=True)
class Slice:
    """Some keys of a region, for a joiner.

    place: how many slices came before it.
    total: keys of the region when the copy began, to show progress.
    done: enough is copied to ask to join.
    left_out: keys of the region that no slice will have, by type (`census`).
    patterns: of keys that the whole group leaves out.
    """

    place: int
    total: int
    done: bool
    rows: list[Row]
    left_out: dict[str, int]
    patterns: Sequence[bytes] = ()

    def encode(self) -> bytes:
        rows = list(map(packed_row, self.rows))
        patterns = list(self.patterns)
        return _packed(self.place, self.total, self.done, rows, self.left_out, patterns)

    @classmethod
    def decode(cls, raw: bytes) -> Slice:
        """Raises RemoteProtocolError if it is not a slice of a gateway of this version."""
        with _refusing("slice of a gateway's keys"):
            place, total, done, rows, left_out, patterns = _opened(raw)
            counts = {checked(str, kind): natural(number) for kind, number in left_out.items()}
            keys = tuple(checked(bytes, pattern) for pattern in checked(list, patterns))
            begun = natural(place), natural(total), checked(bool, done)
            return cls(*begun, _values(rows), counts, keys)


@dataclass(frozen=True, slots=True)
class Ending:
    """The data that goes with an admission: its entry (`wire.state.pack_entry`), and the keys that have changed since
    they were copied, as of the same instant.

    clock: greatest hybrid time used or seen.
    """

    entry: bytes
    clock: int
    rows: list[Row]

    def encode(self) -> bytes:
        return _packed(self.entry, self.clock, list(map(packed_row, self.rows)))

    @classmethod
    def decode(cls, raw: bytes) -> Ending:
        """Raises RemoteProtocolError if it is invalid."""
        with _refusing("admission of a gateway"):
            entry, clock, rows = _opened(raw)
            return cls(checked(bytes, entry), natural(clock), _values(rows))


class States(NamedTuple):
    """A member's answer about keys, as of one instant.

    large: keys that must be asked for by their slots.
    left: keys for which there was no room, to be asked for again.
    """

    vector: Vector
    rows: Sequence[Row]
    large: Sequence[bytes] = ()
    left: Sequence[bytes] = ()

    def encode(self) -> bytes:
        rows = list(map(packed_row, self.rows))
        return _packed(dict(self.vector), rows, list(self.large), list(self.left))

    @classmethod
    def decode(cls, raw: bytes) -> States:
        """Raises RemoteProtocolError if it is invalid."""
        with _refusing("states of a gateway's keys"):
            vector, rows, large, left = _opened(raw)
            for key in (*checked(list, large), *checked(list, left)):
                check_name(checked(bytes, key))
            told = {checked(str, origin): natural(n) for origin, n in vector.items()}
            return cls(told, list(map(unpacked_row, checked(list, rows))), large, left)


def _values(rows: Any) -> list[Row]:
    """Rows with values that gateways wrote, all of them stable for their receiver."""
    found = list(map(unpacked_row, checked(list, rows)))
    if any(row.contents is None or row.log or row.deadlines for row in found):
        raise ValueError("a row that is for members only")
    return found


def _packed(*fields: object) -> bytes:
    return _pack([_WHAT, _LEVEL, *fields])


def _opened(raw: bytes) -> list[Any]:
    what, level, *fields = within_limits(raw, ROWS, strict_map_key=False)
    if what != _WHAT or type(level) is not int or level != _LEVEL:
        raise ValueError(f"{what!r:.40} of format level {level!r:.40}")
    return list(fields)


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(f"no {what}: {error}") from error
