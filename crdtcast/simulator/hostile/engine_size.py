"""How much an engine holds, in all its containers."""

from collections import deque

MOST_HELD = 20_000
"""Limit on the elements in the containers of an engine; in a run without lies it has a few hundred."""


def elements(thing: object, most: int = 2 * MOST_HELD) -> int:
    """The number of elements in the containers of an engine. Counting ends at `most`."""
    seen: set[int] = set()
    todo: list[object] = [thing]
    found = 0
    while todo and found < most:
        one = todo.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, dict):
            found += len(one)
            todo += one.keys()
            todo += one.values()
        elif isinstance(one, list | tuple | set | frozenset | deque):
            found += len(one)
            todo += one
        elif type(one).__module__.startswith("crdtcast."):
            todo += getattr(one, "__dict__", {}).values()
            for owner in type(one).__mro__:
                slots = getattr(owner, "__slots__", ())
                todo += [getattr(one, slot, None) for slot in slots]
    return found
