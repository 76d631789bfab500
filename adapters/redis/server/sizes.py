"""The approximate size of keys in bytes: it bounds how many are read at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from crdtcast.adapters.redis.server.steps import Read, Steps, taken
from crdtcast.adapters.redis.store.databases import reading_by_name
from crdtcast.adapters.redis.types import BY_NAME
from crdtcast.adapters.redis.types.native import NativeType

T = TypeVar("T")
Weight: TypeAlias = tuple[type[NativeType] | None, int]
"""Of a key: its type (None if it is not replicated or does not exist), and its bytes."""
_SAMPLES = b"64"
"""Number of slots of each key that the server samples."""


def weighing(key: bytes) -> list[bytes]:
    """The command for the bytes of memory that a key takes, by some of its slots; nil if it does not exist."""
    return [b"MEMORY", b"USAGE", key, b"SAMPLES", _SAMPLES]


def steps_to_weigh(keys: Sequence[bytes]) -> Steps[list[Weight]]:
    """Weights of keys, given as names, in their order."""
    commands = [words for key in keys for words in ([b"TYPE", key], weighing(key))]
    replies = yield from reading_by_name(commands)
    return [
        (BY_NAME.get(kind) if isinstance(kind, bytes) else None, weight_of(size))
        for kind, size in zip(replies[::2], replies[1::2], strict=True)
    ]


async def weights_of(keys: Sequence[bytes], read: Read) -> list[Weight]:
    """Like `steps_to_weigh`, awaited."""
    return await taken(steps_to_weigh(keys), read)


def portions(items: Sequence[T], weights: Iterable[int], most: int) -> Iterator[list[T]]:
    """The items, in order, in lists that weigh at most `most` each; an item that weighs more stands alone."""
    some: list[T] = []
    room = most
    for item, weight in zip(items, weights, strict=True):
        if some and weight > room:
            yield some
            some, room = [], most
        some.append(item)
        room -= weight
    if some:
        yield some


def weight_of(size: object) -> int:
    """The bytes in the reply to `weighing`."""
    return size if isinstance(size, int) else 0
