"""Unpacks msgpack from others with a limit on its *elements*: an empty list is one byte on the wire and sixty in
memory.

msgpack itself limits the length of one list, but not the number of lists. So lists and maps are counted while they are
made, and the first one above the limit ends it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgpack

BYTES_EACH = 8
"""Honest data has at most one list or map in so many bytes, apart from a few."""
A_FEW = 64


class TooManyError(ValueError):
    """More lists or maps than allowed."""


def unpacked(packed: bytes, a_few: int = A_FEW, **options: Any) -> Any:
    """Unpack with as many lists and maps as the length of `packed` allows, and a few more.

    Raises what msgpack raises, and TooManyError if there are more.
    """
    return _unpack(packed, a_few + len(packed) // BYTES_EACH, **options)


def unpacked_within(packed: bytes, most: int, **options: Any) -> Any:
    """Unpack with at most so many lists and maps."""
    return _unpack(packed, most, **options)


def _unpack(packed: bytes, most: int, **options: Any) -> Any:
    if len(packed) <= most:
        return msgpack.unpackb(packed, **options)  # each takes at least one byte
    left = most

    def count(made: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise TooManyError(f"more than {most:,} lists and maps in {len(packed):,} bytes")
        return made

    unpack: Callable[..., Any] = partial(msgpack.unpackb, list_hook=count, object_hook=count)
    return unpack(packed, **options)
