"""Keys of a server that are not replicated, by type.

These are keys of types that no command of the gateway writes: clients wrote them directly to the server.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from crdtcast.adapters.redis.server.steps import Read
from crdtcast.adapters.redis.store.databases import BEGIN, END, Databases, by_name, scan
from crdtcast.adapters.redis.types import BY_NAME
from crdtcast.option_checks import nearest

KINDS = ("list", "stream")
"""Types that every server has. Modules add types with names of nine characters, which no list can be complete about."""
_AT_ONCE = 1000

_OF_MODULE = re.compile("[A-Za-z0-9_-]{9}")


def is_replicated(kind: object) -> bool:
    """Whether a key with this reply to TYPE is copied and compared; also true for a key that does not exist."""
    return kind == b"none" or kind in BY_NAME


async def take_census(ask: Read, databases: Databases) -> dict[str, int]:
    """Number of keys by type that a join would leave out; empty if there are none."""
    found: dict[str, int] = {}
    at = BEGIN
    while True:
        at, names = await scan(ask, databases, at, _AT_ONCE)
        for reply in await by_name(ask)([[b"TYPE", name] for name in names]):
            if isinstance(reply, bytes) and not is_replicated(reply):
                kind = reply.decode(errors="replace")
                found[kind] = found.get(kind, 0) + 1
        if at == END:
            return found


def described(found: Mapping[str, int]) -> str:
    """As part of a sentence: `2 keys of type list, 1 key of type stream`."""
    return ", ".join(
        f"{number} {'key' if number == 1 else 'keys'} of type {kind}"
        for kind, number in sorted(found.items())
    )


def not_a_kind(name: str) -> str | None:
    """Why this name of a type to leave out is invalid, as part of a sentence; None if it is valid."""
    if name in KINDS:
        return None
    if near := nearest(name, KINDS):
        return f"{name!r}, did you mean {near}?"
    if _OF_MODULE.fullmatch(name):
        return None
    return (
        f"{name!r}, which is not a type that a copy can leave out: use {', '.join(KINDS)}, or the "
        "type of a module (strings, hashes, sorted sets and sets are always copied)"
    )
