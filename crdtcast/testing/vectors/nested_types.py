"""How the maps and the sequence of the vector files map to ours.

The type and operations of a value in a map use the mapping of that type. `rga` refers to elements by the events that
inserted them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from crdtcast.causality.tags import Dot
from crdtcast.datatypes import AWMap, GOMap, SharedList
from crdtcast.testing.vectors.types import SIMPLE_TYPES, VectorType


def _update(key: Mapping[str, Any], operation: Mapping[str, Any]) -> tuple[list[Any], int]:
    """Our [name, type, operation], and the time that it needs."""
    held = _HELD[key["type"]]
    args, time_ms = held.arguments(operation["args"])
    return [key["key"], held.crdt.TYPE, [held.operations[operation["op"]], *args]], time_ms


def _removal(key: Mapping[str, Any]) -> list[Any]:
    return [key["key"], _HELD[key["type"]].crdt.TYPE]


def _map_arguments(args: Sequence[Any]) -> tuple[Sequence[Any], int]:
    match args:
        case [dict(key), dict(operation)]:
            return _update(key, operation)
        case [dict(key)]:
            return _removal(key), 0
        case [list(updates), list(removals)]:
            return [[_update(*each)[0] for each in updates], list(map(_removal, removals))], 0
    return args, 0


def _show_map(value: Mapping[tuple[Any, str], Any]) -> list[dict[str, Any]]:
    theirs = {held.crdt.TYPE: name for name, held in _HELD.items()}
    return [
        {"key": name, "type": theirs[of], "value": _HELD[theirs[of]].show(value[name, of])}
        for name, of in sorted(value)
    ]


def _elements(args: Sequence[Any], dots: Mapping[str, Dot]) -> Sequence[Any]:
    """[parent, side, values] for an insertion after an event's element, with its value and unique id; [runs] for a
    deletion. Our stamps are Lamport times, like those of the ids.
    """
    match args:
        case [reference, value, list()]:
            parent = None if reference is None else [*dots[reference], 0, 0]
            return [parent, "R", [value]]
        case [event]:
            return [[[*dots[event], 0, 0, 1]]]
    return args


_UPDATE: Final = {"update": "update"}
_ALL: Final = {name: name for name in ("update", "remove", "batch", "reset")}

NESTED_TYPES: Final[Mapping[str, VectorType]] = {
    "map_go": VectorType(GOMap, _UPDATE, _show_map, _map_arguments),
    # Two names for one map: a removal resets what it has seen, and empty values do not exist.
    "map_aw": VectorType(AWMap, _ALL, _show_map, _map_arguments),
    "map_rr": VectorType(AWMap, _ALL, _show_map, _map_arguments),
    "rga": VectorType(SharedList, {"insert": "place", "delete": "kill"}, resolve=_elements),
}

_HELD: Final[Mapping[str, VectorType]] = {**SIMPLE_TYPES, **NESTED_TYPES}
