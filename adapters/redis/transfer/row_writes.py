"""Commands that write rows to a joiner's server, which no gateway knows yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from crdtcast.adapters.redis.deadlines.index import ORPHANS, commands_until
from crdtcast.adapters.redis.server.connection import Words
from crdtcast.adapters.redis.store.contents import deadline_of, portions, types_of
from crdtcast.adapters.redis.store.databases import home_of, sent
from crdtcast.adapters.redis.store.effects import NEVER, RedisType
from crdtcast.adapters.redis.store.hiding import hidden_key
from crdtcast.adapters.redis.transfer.key_rows import Row, RowsPart
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.exact_values import commands_for as exact_commands
from crdtcast.adapters.redis.types.exact_values import exact_key


def commands_for(
    rows: Iterable[Row], metadata_db: int, hiding: dict[bytes, set[RedisType]]
) -> Iterator[Words]:
    """Commands that make a server hold these values, whatever it holds. The connection is on database 0 before and
    after.

    hiding: the types that keys hide so far, and `DEADLINE` for a deadline without data; kept up to date.
    """
    for row in rows:
        key, worth, home = row.key, row.contents or {}, home_of(row.key)
        types = types_of(worth)
        is_there = bool(types) or row.part is not None
        part = row.part or RowsPart(hidden=frozenset(types[1:]))
        asked: list[tuple[int, list[bytes]]] = []
        if row.part is None:
            asked.append((home.db, [b"DEL", home.key]))
            rounded = (type_ for type_ in types if TYPES[type_].rounds)
            asked += ((metadata_db, [b"DEL", exact_key(type_, key)]) for type_ in rounded)
            stale = {*hiding.pop(key, ()), *part.hidden}
            if RedisType.DEADLINE in stale:
                asked.append((metadata_db, [b"HDEL", ORPHANS, key]))
            if values := [hidden_key(type_, key) for type_ in sorted(stale & TYPES.keys())]:
                asked.append((metadata_db, [b"DEL", *values]))
        for type_ in sorted({*types, *part.gone}):
            native, db, stands = TYPES[type_], home.db, home.key
            if type_ in part.hidden:
                db, stands = metadata_db, hidden_key(type_, key)
                hiding.setdefault(key, set()).add(type_)
            for some in portions(worth.get(type_, {})):
                words = [native.write, stands, *native.words(some)]
                if row.part is not None:
                    words = native.page_writing(stands, some, part.at)
                asked.append((db, words))
                asked += ((metadata_db, words) for words in exact_commands(key, type_, some))
            if gone := part.gone.get(type_):
                asked.append((db, [native.remove, stands, *gone]))
                if native.rounds:
                    asked.append((metadata_db, [b"HDEL", exact_key(type_, key), *gone]))
        yield from sent(asked)[0]
        if (until := deadline_of(worth)) != NEVER:
            yield from commands_until(key, until, metadata_db, is_there=is_there)
            if not is_there:
                hiding.setdefault(key, set()).add(RedisType.DEADLINE)
