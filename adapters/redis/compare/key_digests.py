"""Short digests of many keys at a low cost, to find out which keys may differ between members.

They need not be of one instant: keys that differ are compared exactly (`comparison`). Short strings come with one MGET,
other small values with a command each, many commands together; a large value comes a part at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from crdtcast.adapters.redis.adoption.census import is_replicated
from crdtcast.adapters.redis.server.sizes import portions, weighing, weight_of
from crdtcast.adapters.redis.server.steps import Read, taken
from crdtcast.adapters.redis.store.contents import Contents, deadline_of, types_of
from crdtcast.adapters.redis.store.databases import by_name, db_of, home_of
from crdtcast.adapters.redis.store.effects import NEVER, WHOLE, RedisType
from crdtcast.adapters.redis.store.value_pages import ValuePages
from crdtcast.adapters.redis.transfer.key_rows import Row
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.exact_values import ExactValues
from crdtcast.adapters.redis.types.native import PAGE_BYTES, Content, NativeType
from crdtcast.adapters.redis.types.strings import String

DIGEST_BYTES = 8
NOTHING = bytes(DIGEST_BYTES)
"""Digest of a missing key."""


class DigestLook(NamedTuple):
    """The digest of one key.

    foreign: in words, what it holds that no gateway wrote.
    type_: the name of its type, if that is not replicated.
    """

    key: bytes
    digest: bytes
    foreign: str = ""
    type_: str = ""

    @property
    def not_replicated(self) -> list[str]:
        """The types to count it under, see `census`."""
        return [self.type_] if self.type_ else []


def value_digest(key: bytes, contents: Contents) -> bytes:
    """A digest that is equal for equal values, whatever the order of the slots."""
    types = types_of(contents)
    if not types:
        return NOTHING
    parts = _begun(key)
    for type_ in types:
        parts.append(b"type %d" % type_)
        parts += _content_parts(type_, contents[type_])
    digest = _digest(parts)
    at = deadline_of(contents)
    return digest if at == NEVER else digest_until(digest, at)


def _content_parts(type_: RedisType, content: Content) -> list[bytes]:
    if TYPES[type_].get is not None:
        return [_sum_part(_sum_of(content.items()))]
    return [part for slot, worth in content.items() for part in (*_begun(slot), *_begun(worth))]


def _sum_of(slots: Iterable[tuple[bytes, bytes]]) -> int:
    """Sum of a number for each slot: parts of a sum can be added in any order."""
    words = (b"%d:%b%b" % (len(slot), slot, worth) for slot, worth in slots)
    numbers = (blake2b(word, digest_size=DIGEST_BYTES).digest() for word in words)
    return sum(int.from_bytes(number) for number in numbers)


def _sum_part(total: int) -> bytes:
    return b"sum of slots %d" % (total % (1 << 8 * DIGEST_BYTES))


def _digest(parts: list[bytes]) -> bytes:
    return blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


def foreign_digest(key: bytes, kind: str) -> bytes:
    """Digest of a key with a value that is not replicated: its presence counts."""
    return blake2b(key + b"?" + kind.encode(), digest_size=DIGEST_BYTES).digest()


def look_at(row: Row) -> DigestLook:
    """The digest of a key that was read exactly."""
    foreign = foreign_digest(row.key, row.foreign)
    digest = foreign if row.contents is None else value_digest(row.key, row.contents)
    return DigestLook(row.key, digest, row.foreign)


async def look_at_keys(keys: Sequence[bytes], read: Read, exact: ExactValues) -> list[DigestLook]:
    """Look at keys that hide nothing."""
    lengths = await _read_all(read, String.size, keys)
    sizes = {k: size for k, size in zip(keys, lengths, strict=True) if isinstance(size, int)}
    digests = await _digests_of_texts(sizes, read)
    others = [key for key in keys if key not in digests]
    kinds = dict(zip(others, await _read_all(read, b"TYPE", others), strict=True))
    digests |= {key: NOTHING for key, kind in kinds.items() if kind == b"none"}
    for native in TYPES.values():
        if native is not String:
            of_type = [key for key in others if kinds[key] == native.name]
            digests |= await _digests_of(of_type, native, read, exact)
    until = await _read_all(read, b"PEXPIRETIME", keys)
    looks: list[DigestLook] = []
    for key, at in zip(keys, until, strict=True):
        foreign = type_ = ""
        digest = digests.get(key)
        if digest is None:
            kind = kinds[key]
            name = kind.decode(errors="replace") if isinstance(kind, bytes) else "unknown"
            foreign = f"a key of type {name}"
            if not is_replicated(kind):  # otherwise its type has changed meanwhile
                type_ = name
            digest = foreign_digest(key, foreign)
        if isinstance(at, int) and at >= 0:
            digest = digest_until(digest, at)
        looks.append(DigestLook(key, digest, foreign, type_))
    return looks


def digest_until(digest: bytes, at: int) -> bytes:
    """The digest of a key with this deadline."""
    return _digest([digest, b"%d" % at])


async def _digests_of_texts(sizes: Mapping[bytes, int], read: Read) -> dict[bytes, bytes]:
    """Digests of strings, given their lengths. Keys that are missing, or have another type meanwhile, are left out."""
    digests: dict[bytes, bytes] = {}
    together: list[bytes] = []
    room = PAGE_BYTES

    async def read_together() -> None:
        if not together:
            return
        (texts,) = await by_name(read)([[b"MGET", *together]])
        assert isinstance(texts, list)
        for key, text in zip(together, texts, strict=True):
            if text is not None:
                digests[key] = value_digest(key, {String.type: {WHOLE: text}})
        together.clear()

    for key, size in sizes.items():
        if size > PAGE_BYTES:
            if (digest := await _digest_of_long(key, size, read)) is not None:
                digests[key] = digest
            continue
        if size > room or (together and db_of(together[0]) != db_of(key)):
            await read_together()
            room = PAGE_BYTES
        together.append(key)
        room -= size
    await read_together()
    return digests


async def _digest_of_long(key: bytes, size: int, read: Read) -> bytes | None:
    """Like `value_digest`, for a long text. Different if the text changes meanwhile: then the key is compared
    exactly.
    """
    begun = [*_begun(key), b"type %d" % String.type, *_begun(WHOLE), b"%d:" % size]
    digest = blake2b(b"".join(begun), digest_size=DIGEST_BYTES)
    walk = ValuePages(String, home_of(key))
    while walk.following is not None:
        page = await taken(walk.page(), read)
        if page is None:
            return None
        digest.update(page.content.get(WHOLE, b""))
    return digest.digest()


def _begun(word: bytes) -> list[bytes]:
    return [b"%d:" % len(word), word]


async def _digests_of(
    keys: Sequence[bytes], native: type[NativeType], read: Read, exact: ExactValues
) -> dict[bytes, bytes]:
    """Digests of keys of this type: small ones are read together, large ones each by itself. Keys that have another
    type meanwhile are left out.
    """
    digests: dict[bytes, bytes] = {}
    sizes = await by_name(read)([weighing(key) for key in keys])
    weights = [weight_of(size) for size in sizes]
    large = {key for key, weight in zip(keys, weights, strict=True) if weight > PAGE_BYTES}
    for key in large:
        if (digest := await _digest_of_large(key, native, read, exact)) is not None:
            digests[key] = digest
    small = [key for key in keys if key not in large]
    light = [weight for weight in weights if weight <= PAGE_BYTES]
    for some in portions(small, light, PAGE_BYTES):
        replies = await by_name(read)([native.reading(key) for key in some])
        for key, reply in zip(some, replies, strict=True):
            content = native.content(reply)
            if content is not None:
                content = exact.over(key, native.type, content)
                digests[key] = value_digest(key, {native.type: content} if content else {})
    return digests


async def _digest_of_large(
    key: bytes, native: type[NativeType], read: Read, exact: ExactValues
) -> bytes | None:
    """Like `value_digest`, for a large value. If a slot comes twice, because the value grows or shrinks, the digest
    differs: then the key is compared exactly.
    """
    total = 0
    walk = ValuePages(native, home_of(key))
    while walk.following is not None:
        page = await taken(walk.page(), read)
        if page is None:
            return None
        total += _sum_of(exact.over(key, native.type, page.content).items())
    return _digest([*_begun(key), b"type %d" % native.type, _sum_part(total)])


async def _read_all(read: Read, verb: bytes, keys: Sequence[bytes]) -> Sequence[object]:
    return await by_name(read)([[verb, key] for key in keys])
