"""The keys of a region in slices, as a joining gateway gets them: absolute values, each as of one instant.

A row is a key and what it is worth by type; nothing: the key is not there. A large key comes in pages (`key_pages`): a
row of nothing, and patches, the last of which are of the instant of the admission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import msgpack

from crdtcast.adapters.redis import contents
from crdtcast.adapters.redis.contents import ROWS, Contents, packed, unpacked
from crdtcast.adapters.redis.databases import Home, check_name, home_of, select
from crdtcast.adapters.redis.deadlines.index import commands_until
from crdtcast.adapters.redis.effects import NEVER, RedisType
from crdtcast.adapters.redis.hiding import hidden_key
from crdtcast.adapters.redis.keyspace import Keyspace
from crdtcast.adapters.redis.recorder import Read
from crdtcast.adapters.redis.server import Words
from crdtcast.adapters.redis.types import TYPES
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.msgpack_limits import unpacked as within_limits

_WHAT = "crdtcast keys"
_LEVEL = 1
"""The format level that has brought in rows like these."""

_pack: Callable[[object], bytes] = msgpack.packb


class Row(NamedTuple):
    """What one key is worth, and nothing else."""

    key: bytes
    contents: Contents


class Patch(NamedTuple):
    """Some slots of a key, beside what else it holds. visible: the type that stands under the key itself, the others
    are hidden. gone: slots that are not there. at: where in the value of the one slot this begins. until: the deadline.
    """

    key: bytes
    visible: RedisType
    contents: Contents
    gone: Mapping[RedisType, Sequence[bytes]] = MappingProxyType({})
    at: int = 0
    until: int = NEVER


Part: TypeAlias = Row | Patch


@dataclass(frozen=True, slots=True)
class Slice:
    """Some keys. `place`: how many slices were before it; `done`: enough is copied to ask to be let in.

    total: keys of the region when the copy began, for a progress to be told.
    left_out: what the region holds that no slice will have (`census`).
    """

    place: int
    total: int
    done: bool
    rows: list[Part]
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
    rows: list[Part]

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


def _packed(part: Part) -> list[object]:
    if isinstance(part, Row):
        return [part.key, packed(part.contents)]
    gone = {int(type_): list(slots) for type_, slots in part.gone.items()}
    return [part.key, packed(part.contents), part.visible, gone, part.at, part.until]


def _row(key: Any, contents: Any, *patch: Any) -> Part:
    if type(key) is not bytes:
        raise ValueError("a key is bytes")
    check_name(key)
    worth = unpacked(contents)
    if not patch:
        return Row(key, worth)
    visible, removed, at, until = patch
    gone = {RedisType(number): list(slots) for number, slots in removed.items()}
    types = {RedisType(visible), *gone, *worth}
    if not types <= TYPES.keys() or not all(
        type(slot) is bytes for slots in gone.values() for slot in slots
    ):
        raise ValueError("a patch has slots, which are bytes")
    if type(at) is not int or type(until) is not int or at < 0 or not 0 <= until <= NEVER:
        raise ValueError("a patch begins somewhere, and ends at some time")
    if at and any(TYPES[type_].get is not None for type_ in worth):
        raise ValueError("only a value of one slot has parts")
    return Patch(key, RedisType(visible), worth, gone, at, until)


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
    rows: Iterable[Part], metadata_db: int, hiding: dict[bytes, set[RedisType]]
) -> Iterator[Words]:
    """What makes a server hold these values, whatever it holds; from database 0, and back to it.

    hiding: the types that keys hide there so far; kept up to date.
    """
    for part in rows:
        if isinstance(part, Patch):
            yield from _patching(part, metadata_db, hiding)
            continue
        key, worth = part
        yield from contents.commands_for(key, worth, hiding.pop(key, ()), metadata_db)
        types = contents.types_of(worth)
        beside = set(types[1:]) if types else set(worth)
        if beside:
            hiding[key] = beside


def _patching(
    patch: Patch, metadata_db: int, hiding: dict[bytes, set[RedisType]]
) -> Iterator[Words]:
    key, visible = patch.key, patch.visible
    own = home_of(key)
    for type_ in sorted(patch.contents.keys() | patch.gone.keys()):
        home = own
        if type_ is not visible:
            home = Home(key, hidden_key(type_, key), metadata_db)
            hiding.setdefault(key, set()).add(type_)
        if home.db:
            yield select(home.db)
        native = TYPES[type_]
        for some in contents.portions(patch.contents.get(type_, {})):
            yield native.page_writing(home.key, some, patch.at)
        if gone := patch.gone.get(type_):
            yield native.remove, home.key, *gone
        if home.db:
            yield select(0)
    if patch.until != NEVER:
        yield from commands_until(key, patch.until, metadata_db, is_there=True)
