"""msgpack of others, within bounds of *elements*: an empty list is one byte on the wire and sixty in memory.

msgpack itself bounds how long one list may be, but not how many there are. So lists and maps are counted while they are
made, and the first one too many ends it.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgpack

BYTES_EACH = 8
"""Of what is honest there is at most one list or map to so many bytes, beside a few."""
A_FEW = 64


class TooManyError(ValueError):
    """More lists or maps than there may be."""


def unpacked(packed: bytes, a_few: int = A_FEW, **options: Any) -> Any:
    """What `packed` says, with as many lists and maps as its length allows, and a few. Raises what msgpack raises, and
    TooManyError.
    """
    return _unpack(packed, a_few + len(packed) // BYTES_EACH, **options)


def unpacked_within(packed: bytes, most: int, **options: Any) -> Any:
    """The same with at most so many lists and maps."""
    return _unpack(packed, most, **options)


def _unpack(packed: bytes, most: int, **options: Any) -> Any:
    if len(packed) <= most:
        return msgpack.unpackb(packed, **options)  # each takes a byte at least
    left = most

    def count(made: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise TooManyError(f"more than {most:,} lists and maps in {len(packed):,} bytes")
        return made

    unpack: Callable[..., Any] = partial(msgpack.unpackb, list_hook=count, object_hook=count)
    return unpack(packed, **options)
