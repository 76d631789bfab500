"""The real memory of an engine's metadata: a walk over the objects, each counted once.

The word counts of the thesis (Younes 2023, 8.3.1) are formulas in each engine.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum

_CACHED_INTEGERS = range(-5, 257)
_CONTAINERS = (list, tuple, set, frozenset, deque)


def metadata_bytes(*structures: object) -> int:
    """The bytes of `structures` and all that they refer to, without payloads (`bytes`).

    A shared object, such as a member's name or a vector in two tables, counts once. Objects that the interpreter holds
    anyway do not count: None, booleans, small integers, enum members, classes and functions.
    """
    total = 0
    seen: set[int] = set()
    pending = list(structures)
    while pending:
        thing = pending.pop()
        if id(thing) in seen or _costs_nothing(thing):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        pending.extend(_parts(thing))
    return total


def _costs_nothing(thing: object) -> bool:
    if type(thing) is int:
        return thing in _CACHED_INTEGERS
    return thing is None or isinstance(thing, bytes | bool | Enum | type) or callable(thing)


def _parts(thing: object) -> Iterator[object]:
    if isinstance(thing, dict):
        yield from thing.keys()
        yield from thing.values()
        return
    if isinstance(thing, _CONTAINERS):
        yield from thing
    attributes = getattr(thing, "__dict__", None)
    if attributes is not None:
        yield attributes
    for name in _slots(type(thing)):
        if hasattr(thing, name):
            yield getattr(thing, name)


def _slots(kind: type) -> Iterable[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
