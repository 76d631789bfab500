"""What stable data occupy, beside the plain Python value: bytes by tracemalloc, everything stable.

Two tables: containers of many elements, and maps of many values, of each type of the catalogue.
Run: python -m benchmarks.memory [--json] [--elements N]
"""

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from crdtcast import datatypes as types
from crdtcast.causality.hlc import HLC
from crdtcast.causality.tags import Dot, Tag

ELEMENTS = 100_000


def element(n: int) -> str:
    return f"element-{n}"


@dataclass(frozen=True, slots=True)
class Content:
    """An operation that puts number n into an object, and the plain value that says the same."""

    crdt: type[types.PureOpCRDT[Any]]
    operation: Callable[[int], tuple[Any, ...]]
    plain: Callable[[int], Any]


VALUES = [
    Content(types.GSet, lambda n: ("add", element(n)), lambda n: {element(n)}),
    Content(types.AWSet, lambda n: ("add", element(n)), lambda n: {element(n)}),
    Content(types.RWSet, lambda n: ("add", element(n)), lambda n: {element(n)}),
    Content(types.TwoPhaseSet, lambda n: ("add", element(n)), lambda n: {element(n)}),
    Content(types.GCounter, lambda n: ("increment", n), lambda n: n),
    Content(types.PNCounter, lambda n: ("decrement", n), lambda n: -n),
    Content(types.ResettableCounter, lambda n: ("increment", n), lambda n: n),
    Content(types.BoundedCounter, lambda n: ("increment", n + 1), lambda n: {"a": n + 1}),
    Content(types.LWWRegister, lambda n: ("assign", element(n)), element),
    Content(types.MVRegister, lambda n: ("assign", element(n)), lambda n: [element(n)]),
    Content(types.EWFlag, lambda n: ("enable",), lambda n: True),
    Content(types.DWFlag, lambda n: ("enable",), lambda n: True),
    Content(types.Number, lambda n: ("set", n + 1), lambda n: Decimal(n + 1)),
    Content(types.SortedMap, lambda n: ("set", "m", n), lambda n: {"m": Decimal(n)}),
    Content(
        types.GOMap, lambda n: ("update", "k", "counter_pn", ["increment", n]), lambda n: {"k": n}
    ),
    Content(types.AWMap, lambda n: ("update", "k", "flag_ew", ["enable"]), lambda n: {"k": True}),
    Content(types.SharedList, lambda n: ("insert", 0, element(n)), lambda n: [element(n)]),
    Content(types.SharedText, lambda n: ("insert", 0, element(n)), element),
]


@dataclass(frozen=True, slots=True)
class Container:
    """How to put element n into one big object, and the plain one of the same elements."""

    crdt: type[types.PureOpCRDT[Any]]
    operation: Callable[[int], tuple[Any, ...]]
    plain: Callable[[int], Any]


def _set(size: int) -> Any:
    return {element(n) for n in range(size)}


def _add(n: int) -> tuple[Any, ...]:
    return "add", element(n)


CONTAINERS = [
    Container(types.GSet, _add, _set),
    Container(types.AWSet, _add, _set),
    Container(types.RWSet, _add, _set),
    Container(types.TwoPhaseSet, _add, _set),
    Container(
        types.SortedMap,
        lambda n: ("set", element(n), n + 1),
        lambda size: {element(n): Decimal(n + 1) for n in range(size)},
    ),
    Container(
        types.GOMap,
        lambda n: ("update", element(n), "counter_pn", ["increment", n]),
        lambda size: {element(n): n for n in range(size)},
    ),
    Container(
        types.AWMap,
        lambda n: ("update", element(n), "counter_resettable", ["increment", n]),
        lambda size: {element(n): n for n in range(size)},
    ),
    Container(
        types.SharedList,
        lambda n: ("insert", n, element(n)),
        lambda size: [element(n) for n in range(size)],
    ),
    Container(types.SharedText, lambda n: ("insert", n, "x"), lambda size: "x" * size),
]


def tags() -> Iterator[Tag]:
    counter = 0
    while True:
        yield Tag(Dot("a", counter + 1), (), {"a": counter})
        counter += 1


def filled(
    crdt: type[types.PureOpCRDT[Any]], operations: Iterator[tuple[Any, ...]]
) -> types.PureOpCRDT[Any]:
    """An object that has taken these operations, each of them stable."""
    made = crdt()
    made.site = types.Site("a", HLC(lambda: 0))
    for tag, operation in zip(tags(), operations, strict=False):
        made.effect(made.prepare(*operation), tag)
        made.stable(tag)
    assert made.log_size == 0
    return made


def container(each: Container, size: int) -> types.PureOpCRDT[Any]:
    return filled(each.crdt, (each.operation(n) for n in range(size)))


def map_of(each: Content, size: int) -> types.PureOpCRDT[Any]:
    named = (("update", element(n), each.crdt, list(each.operation(n))) for n in range(size))
    return filled(types.AWMap, named)


def occupied(make: Callable[[], Any]) -> int:
    """Bytes that are in use once `make` has made something."""
    tracemalloc.start()
    try:
        made = make()
        gc.collect()
        used = tracemalloc.get_traced_memory()[0]
        del made
    finally:
        tracemalloc.stop()
    return used


def containers(size: int) -> dict[str, tuple[int, int]]:
    """Of each, bytes of ours and of the plain one."""
    return {
        each.crdt.TYPE: (
            occupied(lambda each=each: container(each, size)),  # type: ignore[misc]
            occupied(lambda each=each: each.plain(size)),  # type: ignore[misc]
        )
        for each in CONTAINERS
    }


def maps(size: int) -> dict[str, tuple[int, int]]:
    return {
        each.crdt.TYPE: (
            occupied(lambda each=each: map_of(each, size)),  # type: ignore[misc]
            occupied(lambda each=each: {element(n): each.plain(n) for n in range(size)}),  # type: ignore[misc]
        )
        for each in VALUES
    }


def main() -> None:
    arguments = sys.argv[1:]
    size = int(arguments[arguments.index("--elements") + 1]) if "--elements" in arguments else 0
    size = size or ELEMENTS
    report = {"container": containers(size), "map of": maps(size)}
    if "--json" in arguments:
        print(json.dumps(report))
        return
    for kind, rows in report.items():
        print(f"{kind:>20} {'bytes each':>11} {'plain':>6} {'ratio':>6}")
        for name, (ours, plain) in rows.items():
            print(f"{name:>20} {ours / size:>11.0f} {plain / size:>6.0f} {ours / plain:>6.2f}")


if __name__ == "__main__":
    main()
