"""How much an engine holds, whatever it holds it in."""

from collections import deque

MOST_HELD = 20_000
"""Elements that the containers of an engine may hold in a run; of its own it has a few hundred."""


def elements(thing: object, most: int = 2 * MOST_HELD) -> int:
    """How many elements the containers hold that belong to an engine; counting ends at `most`."""
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
