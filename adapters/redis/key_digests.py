"""Short digests of many keys at a low cost, to find out which of them may differ between members.

They need not be of one instant: what differs is examined exactly (`key_comparison`). Strings come with one MGET, sets
with a command each; only what is neither is asked for its type.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from hashlib import blake2b
from typing import NamedTuple

from crdtcast.adapters.redis.key_states import NO_INTEGER, KeyState
from crdtcast.adapters.redis.keyspace import integer_of

DIGEST_BYTES = 8
NOTHING = bytes(DIGEST_BYTES)
"""Of a key that is not there."""

Read = Callable[[Sequence[Sequence[bytes]]], Awaitable[Sequence[object]]]
"""Sends commands on database 0 and returns their replies, errors among them as values."""


class Look(NamedTuple):
    """One key. foreign: what it holds that no gateway has written, in words. deadline: its server will drop it."""

    key: bytes
    digest: bytes
    foreign: str = ""
    deadline: bool = False


def value_digest(key: bytes, number: bytes | None, members: Iterable[bytes]) -> bytes:
    """Equal for equal values, in whatever order the members come."""
    parts = [b"%d:" % len(key), key]
    if number is not None:
        parts += [b"n%d:" % len(number), number]
    slots = sorted(members)
    if number is None and not slots:
        return NOTHING
    for slot in slots:
        parts += [b"%d:" % len(slot), slot]
    return blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


def foreign_digest(key: bytes, kind: str) -> bytes:
    """Of a key that holds what is not replicated: by its presence."""
    return blake2b(key + b"?" + kind.encode(), digest_size=DIGEST_BYTES).digest()


def look_at(state: KeyState) -> Look:
    """The same of a state that was read exactly."""
    value = state.value
    if value is None:
        digest = foreign_digest(state.key, state.foreign)
    else:
        number = None if value.number is None else b"%d" % value.number
        digest = value_digest(state.key, number, value.members)
    return Look(state.key, digest, state.foreign, state.deadline)


async def look_at_keys(keys: Sequence[bytes], read: Read, *, deadlines: bool) -> list[Look]:
    """Look at keys that hide nothing. deadlines: look for these, too."""
    (texts,) = await read([[b"MGET", *keys]])
    assert isinstance(texts, list)
    others = [key for key, text in zip(keys, texts, strict=True) if text is None]
    sets = dict(zip(others, await _read_all(read, b"SMEMBERS", others), strict=True))
    strange = [key for key, members in sets.items() if not isinstance(members, list | set)]
    kinds = dict(zip(strange, await _read_all(read, b"TYPE", strange), strict=True))
    ttls = await _read_all(read, b"PTTL", keys) if deadlines else [-1] * len(keys)
    looks: list[Look] = []
    for key, text, ttl in zip(keys, texts, ttls, strict=True):
        foreign = ""
        if text is not None and integer_of(text) is not None:
            digest = value_digest(key, text, ())
        elif text is not None:
            foreign = NO_INTEGER
        elif key in kinds:
            kind = kinds[key]
            name = kind.decode(errors="replace") if isinstance(kind, bytes) else "unknown"
            foreign = f"a key of type {name}"
        else:
            members = sets[key]
            assert isinstance(members, list | set)
            digest = value_digest(key, None, members)
        if foreign:
            digest = foreign_digest(key, foreign)
        looks.append(Look(key, digest, foreign, isinstance(ttl, int) and ttl >= 0))
    return looks


async def _read_all(read: Read, verb: bytes, keys: Sequence[bytes]) -> Sequence[object]:
    return await read([[verb, key] for key in keys]) if keys else ()
