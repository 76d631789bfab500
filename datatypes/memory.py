"""The memory of an object: bytes of the Python objects in it, each counted once."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the stable part, of the log (with its tags) and of the retained log; entries of the log.

    Data that two parts share counts for the first. Interned values count in full.
    """

    stable: int
    log: int
    retained: int
    entries: int

    @property
    def total(self) -> int:
        return self.stable + self.log + self.retained


def occupied(parts: Iterable[Any], seen: set[int]) -> int:
    """Bytes of everything reachable from `parts` that is not in `seen`; adds it to `seen`.

    Follows containers, instances and slots; not classes, modules or functions.
    """
    total = 0
    waiting = list(parts)
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, type) or callable(part):
            continue
        seen.add(id(part))
        total += sys.getsizeof(part)
        waiting.extend(_inside(part))
    return total


def _inside(part: Any) -> Iterator[Any]:
    if isinstance(part, dict):
        for key, item in part.items():
            yield key
            yield item
    elif isinstance(part, (list, tuple, set, frozenset, deque)):
        yield from part
    elif not isinstance(part, (str, bytes, int, float, type(None))):
        if hasattr(part, "__dict__"):
            yield part.__dict__
        for parent in type(part).__mro__:
            for name in getattr(parent, "__slots__", ()):
                if hasattr(part, name):
                    yield getattr(part, name)
