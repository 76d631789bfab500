"""Short digests of many keys at a low cost, to find out which of them may differ between members.

They need not be of one instant: what differs is examined exactly (`key_comparison`). Strings come with one MGET as long
as they are short, other values with a command each, as many as are small in all; a large one a part at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from crdtcast.adapters.redis.server.census import is_replicated
from crdtcast.adapters.redis.server.sizes import portions, weighing, weight_of
from crdtcast.adapters.redis.server.steps import Read, taken
from crdtcast.adapters.redis.store.contents import Contents, deadline_of, types_of
from crdtcast.adapters.redis.store.databases import by_name, db_of, home_of
from crdtcast.adapters.redis.store.effects import NEVER, WHOLE, RedisType
from crdtcast.adapters.redis.store.value_pages import ValuePages
from crdtcast.adapters.redis.transfer.key_rows import Row
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import PAGE_BYTES, Content, NativeType
from crdtcast.adapters.redis.types.strings import String

DIGEST_BYTES = 8
NOTHING = bytes(DIGEST_BYTES)
"""Of a key that is not there."""


class DigestLook(NamedTuple):
    """One key. foreign: what it holds that no gateway has written, in words.

    type_: the name of its type, if that is not replicated.
    """

    key: bytes
    digest: bytes
    foreign: str = ""
    type_: str = ""

    @property
    def not_replicated(self) -> list[str]:
        """What to count it as, see `census`."""
        return [self.type_] if self.type_ else []


def value_digest(key: bytes, contents: Contents) -> bytes:
    """Equal for equal values, in whatever order the slots come."""
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
    """Of a number for each slot: a sum can be added up a part at a time, in whatever order the parts come."""
    words = (b"%d:%b%b" % (len(slot), slot, worth) for slot, worth in slots)
    numbers = (blake2b(word, digest_size=DIGEST_BYTES).digest() for word in words)
    return sum(int.from_bytes(number) for number in numbers)


def _sum_part(total: int) -> bytes:
    return b"sum of slots %d" % (total % (1 << 8 * DIGEST_BYTES))


def _digest(parts: list[bytes]) -> bytes:
    return blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


def foreign_digest(key: bytes, kind: str) -> bytes:
    """Of a key that holds what is not replicated: by its presence."""
    return blake2b(key + b"?" + kind.encode(), digest_size=DIGEST_BYTES).digest()


def look_at(row: Row) -> DigestLook:
    """The same of a key that was read exactly."""
    foreign = foreign_digest(row.key, row.foreign)
    digest = foreign if row.contents is None else value_digest(row.key, row.contents)
    return DigestLook(row.key, digest, row.foreign)


async def look_at_keys(keys: Sequence[bytes], read: Read) -> list[DigestLook]:
    """Look at keys that hide nothing."""
    lengths = await _read_all(read, String.size, keys)
    sizes = {k: size for k, size in zip(keys, lengths, strict=True) if isinstance(size, int)}
    digests = await _digests_of_texts(sizes, read)
    others = [key for key in keys if key not in digests]
    kinds = dict(zip(others, await _read_all(read, b"TYPE", others), strict=True))
    digests |= {key: NOTHING for key, kind in kinds.items() if kind == b"none"}
    for native in TYPES.values():
        if native is not String:
            digests |= await _digests_of(
                [k for k in others if kinds[k] == native.name], native, read
            )
    until = await _read_all(read, b"PEXPIRETIME", keys)
    looks: list[DigestLook] = []
    for key, at in zip(keys, until, strict=True):
        foreign = type_ = ""
        digest = digests.get(key)
        if digest is None:
            kind = kinds[key]
            name = kind.decode(errors="replace") if isinstance(kind, bytes) else "unknown"
            foreign = f"a key of type {name}"
            if not is_replicated(kind):  # otherwise it became something else meanwhile
                type_ = name
            digest = foreign_digest(key, foreign)
        if isinstance(at, int) and at >= 0:
            digest = digest_until(digest, at)
        looks.append(DigestLook(key, digest, foreign, type_))
    return looks


def digest_until(digest: bytes, at: int) -> bytes:
    """That of a key which has this deadline, too."""
    return _digest([digest, b"%d" % at])


async def _digests_of_texts(sizes: Mapping[bytes, int], read: Read) -> dict[bytes, bytes]:
    """Of strings, by their lengths; of what is not there, or has become something else meanwhile, there is none."""
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
    """The same as `value_digest`; another one if the text changes meanwhile: then the key is examined."""
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
    keys: Sequence[bytes], native: type[NativeType], read: Read
) -> dict[bytes, bytes]:
    """Of keys that hold this type; of the small ones together, of each large one by itself. What has become something
    else meanwhile has none.
    """
    digests: dict[bytes, bytes] = {}
    sizes = await by_name(read)([weighing(key) for key in keys])
    weights = [weight_of(size) for size in sizes]
    large = {key for key, weight in zip(keys, weights, strict=True) if weight > PAGE_BYTES}
    for key in large:
        if (digest := await _digest_of_large(key, native, read)) is not None:
            digests[key] = digest
    small = [key for key in keys if key not in large]
    light = [weight for weight in weights if weight <= PAGE_BYTES]
    for some in portions(small, light, PAGE_BYTES):
        replies = await by_name(read)([native.reading(key) for key in some])
        for key, reply in zip(some, replies, strict=True):
            content = native.content(reply)
            if content is not None:
                digests[key] = value_digest(key, {native.type: content} if content else {})
    return digests


async def _digest_of_large(key: bytes, native: type[NativeType], read: Read) -> bytes | None:
    """A slot that comes twice, since the value grows or shrinks, makes it another one: then the key is examined."""
    total = 0
    walk = ValuePages(native, home_of(key))
    while walk.following is not None:
        page = await taken(walk.page(), read)
        if page is None:
            return None
        total += _sum_of(page.content.items())
    return _digest([*_begun(key), b"type %d" % native.type, _sum_part(total)])


async def _read_all(read: Read, verb: bytes, keys: Sequence[bytes]) -> Sequence[object]:
    return await by_name(read)([[verb, key] for key in keys])
