"""About how many bytes keys hold: what is read at once is bounded by it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from crdtcast.adapters.redis.databases import Read
from crdtcast.adapters.redis.types import BY_NAME
from crdtcast.adapters.redis.types.native import NativeType
from crdtcast.adapters.redis.types.strings import String

_SLOT = 64
"""Bytes of a slot, about."""
T = TypeVar("T")
Weight: TypeAlias = tuple[type[NativeType] | None, int]
"""Of a key: its type, None if it is of none of ours or not there, and its bytes."""


async def weights_of(keys: Sequence[bytes], read: Read) -> list[Weight]:
    """In their order. read: `databases.by_name`."""
    kinds = await read([[b"TYPE", key] for key in keys])
    natives = [BY_NAME.get(kind) if isinstance(kind, bytes) else None for kind in kinds]
    sizes = iter(
        await read(
            [
                [native.size, key]
                for key, native in zip(keys, natives, strict=True)
                if native is not None
            ]
        )
    )
    return [(native, 0 if native is None else weight_of(native, next(sizes))) for native in natives]


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


def weight_of(native: type[NativeType], size: object) -> int:
    """Bytes of a value, by the reply to its `size`."""
    if not isinstance(size, int):
        return 0
    return size if native is String else size * _SLOT
