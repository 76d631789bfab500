"""About how many bytes keys hold: what is read at once is bounded by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from crdtcast.adapters.redis.server.steps import Read, Steps, taken
from crdtcast.adapters.redis.store.databases import reading_by_name
from crdtcast.adapters.redis.types import BY_NAME
from crdtcast.adapters.redis.types.native import NativeType

T = TypeVar("T")
Weight: TypeAlias = tuple[type[NativeType] | None, int]
"""Of a key: its type, None if it is of none of ours or not there, and its bytes."""
_SAMPLES = b"64"
"""Slots of each key that the server looks at."""


def weighing(key: bytes) -> list[bytes]:
    """The words that tell how many bytes of the server's memory a key takes, by some of its slots; nil if it is not
    there.
    """
    return [b"MEMORY", b"USAGE", key, b"SAMPLES", _SAMPLES]


def steps_to_weigh(keys: Sequence[bytes]) -> Steps[list[Weight]]:
    """Weights in the order of the keys, which are names."""
    commands = [words for key in keys for words in ([b"TYPE", key], weighing(key))]
    replies = yield from reading_by_name(commands)
    return [
        (BY_NAME.get(kind) if isinstance(kind, bytes) else None, weight_of(size))
        for kind, size in zip(replies[::2], replies[1::2], strict=True)
    ]


async def weights_of(keys: Sequence[bytes], read: Read) -> list[Weight]:
    """The same, awaited."""
    return await taken(steps_to_weigh(keys), read)


def portions(items: Sequence[T], weights: Iterable[int], most: int) -> Iterator[list[T]]:
    """The items, in their order, so many at a time as weigh `most` in all, or a single one."""
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
    """Bytes, by the reply to `weighing`."""
    return size if isinstance(size, int) else 0
