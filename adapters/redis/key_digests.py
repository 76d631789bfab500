"""Short digests of many keys at a low cost, to find out which of them may differ between members.

They need not be of one instant: what differs is examined exactly (`key_comparison`). Strings come with one MGET, sets
with a command each, as many as have few members in all, a large one by SSCAN; only what is neither is asked for its
type.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from crdtcast.adapters.redis.census import DEADLINES, REPLICATED, STRINGS
from crdtcast.adapters.redis.key_states import NO_INTEGER, KeyState
from crdtcast.adapters.redis.keyspace import integer_of

DIGEST_BYTES = 8
LARGE_SET = 10_000
"""Members from which on a set is read a part at a time. Also how many are read at once of several small sets."""
_SCANNED = 1000
"""Members that are asked for at once."""
NOTHING = bytes(DIGEST_BYTES)
"""Of a key that is not there."""

Read = Callable[[Sequence[Sequence[bytes]]], Awaitable[Sequence[object]]]
"""Sends commands on database 0 and returns their replies, errors among them as values."""


class Look(NamedTuple):
    """One key. foreign: what it holds that no gateway has written, in words. deadline: its server will drop it.

    type_: the name of its type, if that is not replicated.
    """

    key: bytes
    digest: bytes
    foreign: str = ""
    deadline: bool = False
    type_: str = ""

    @property
    def not_replicated(self) -> list[str]:
        """What to count it as, see `census`."""
        return [kind for kind in (self.type_, DEADLINES if self.deadline else "") if kind]


def value_digest(key: bytes, number: bytes | None, members: Collection[bytes]) -> bytes:
    """Equal for equal values, in whatever order the members come."""
    if number is None and not members:
        return NOTHING
    parts = [b"%d:" % len(key), key]
    if number is not None:
        parts += [b"n%d:" % len(number), number]
    if len(members) >= LARGE_SET:
        return _large_digest(parts, _sum_of(members))
    slots = sorted(members)
    for slot in slots:
        parts += [b"%d:" % len(slot), slot]
    return blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


def _sum_of(members: Iterable[bytes]) -> int:
    """Of a number for each member: a sum can be added up a part at a time, in whatever order the parts come."""
    numbers = (blake2b(member, digest_size=DIGEST_BYTES).digest() for member in members)
    return sum(int.from_bytes(number) for number in numbers)


def _large_digest(parts: list[bytes], total: int) -> bytes:
    total %= 1 << 8 * DIGEST_BYTES
    parts.append(b"sum of members %d" % total)
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
    sizes = dict(zip(others, await _read_all(read, b"SCARD", others), strict=True))
    digests = await _digests_of_sets(
        {key: size for key, size in sizes.items() if isinstance(size, int)}, read
    )
    strange = [key for key in others if key not in digests]
    kinds = dict(zip(strange, await _read_all(read, b"TYPE", strange), strict=True))
    ttls = await _read_all(read, b"PTTL", keys) if deadlines else [-1] * len(keys)
    looks: list[Look] = []
    for key, text, ttl in zip(keys, texts, ttls, strict=True):
        foreign = type_ = ""
        if text is not None and integer_of(text) is not None:
            digest = value_digest(key, text, ())
        elif text is not None:
            foreign, type_ = NO_INTEGER, STRINGS
        elif key in kinds:
            kind = kinds[key]
            name = kind.decode(errors="replace") if isinstance(kind, bytes) else "unknown"
            foreign = f"a key of type {name}"
            if kind not in REPLICATED:  # otherwise it became something else meanwhile
                type_ = name
        else:
            digest = digests[key]
        if foreign:
            digest = foreign_digest(key, foreign)
        looks.append(Look(key, digest, foreign, isinstance(ttl, int) and ttl >= 0, type_))
    return looks


async def _digests_of_sets(sizes: Mapping[bytes, int], read: Read) -> dict[bytes, bytes]:
    """Of keys that held sets of these sizes; of the small ones together, of each large one by itself. What has become
    something else meanwhile has none.
    """
    digests: dict[bytes, bytes] = {}
    together: list[bytes] = []
    room = LARGE_SET

    async def read_together() -> None:
        for key, members in zip(
            together, await _read_all(read, b"SMEMBERS", together), strict=True
        ):
            if isinstance(members, list | set):
                digests[key] = value_digest(key, None, members)
        together.clear()

    for key, size in sizes.items():
        if size >= LARGE_SET:
            digest = await _digest_of_large_set(key, read)
            if digest is not None:
                digests[key] = digest
            continue
        if size > room:
            await read_together()
            room = LARGE_SET
        together.append(key)
        room -= size
    await read_together()
    return digests


async def _digest_of_large_set(key: bytes, read: Read) -> bytes | None:
    """A member that comes twice, since the set grows or shrinks, makes it another one: then the key is examined."""
    cursor, total = b"0", 0
    while True:
        (reply,) = await read([[b"SSCAN", key, cursor, b"COUNT", b"%d" % _SCANNED]])
        if not isinstance(reply, list):
            return None
        cursor, members = reply
        total += _sum_of(members)
        if cursor == b"0":
            return _large_digest([b"%d:" % len(key), key], total)


async def _read_all(read: Read, verb: bytes, keys: Sequence[bytes]) -> Sequence[object]:
    return await read([[verb, key] for key in keys]) if keys else ()
