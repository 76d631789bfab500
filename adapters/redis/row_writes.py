"""Rows are written to a joiner's server, of which no gateway knows anything yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from crdtcast.adapters.redis import contents
from crdtcast.adapters.redis.databases import Home, home_of, select
from crdtcast.adapters.redis.deadlines.index import commands_until
from crdtcast.adapters.redis.effects import NEVER, RedisType
from crdtcast.adapters.redis.hiding import hidden_key
from crdtcast.adapters.redis.key_rows import Part, Row
from crdtcast.adapters.redis.server import Words
from crdtcast.adapters.redis.types import TYPES


def commands_for(
    rows: Iterable[Row], metadata_db: int, hiding: dict[bytes, set[RedisType]]
) -> Iterator[Words]:
    """What makes a server hold these values, whatever it holds; from database 0, and back to it.

    hiding: the types that keys hide there so far; kept up to date.
    """
    for row in rows:
        worth = row.contents or {}
        if row.part is not None:
            yield from _of_part(row.key, worth, row.part, metadata_db, hiding)
            continue
        yield from contents.commands_for(row.key, worth, hiding.pop(row.key, ()), metadata_db)
        types = contents.types_of(worth)
        beside = set(types[1:]) if types else set(worth)
        if beside:
            hiding[row.key] = beside


def _of_part(
    key: bytes,
    worth: contents.Contents,
    part: Part,
    metadata_db: int,
    hiding: dict[bytes, set[RedisType]],
) -> Iterator[Words]:
    own = home_of(key)
    for type_ in sorted({*contents.types_of(worth), *part.gone}):
        home = own
        if type_ in part.hidden:
            home = Home(key, hidden_key(type_, key), metadata_db)
            hiding.setdefault(key, set()).add(type_)
        if home.db:
            yield select(home.db)
        native = TYPES[type_]
        for some in contents.portions(worth.get(type_, {})):
            yield native.page_writing(home.key, some, part.at)
        if gone := part.gone.get(type_):
            yield native.remove, home.key, *gone
        if home.db:
            yield select(0)
    if (until := contents.deadline_of(worth)) != NEVER:
        yield from commands_until(key, until, metadata_db, is_there=True)
