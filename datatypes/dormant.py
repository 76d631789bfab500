"""Objects that are completely stable, stored as their stable parts.

An object costs most of a kilobyte before it holds anything. While none of its operations is unstable, its stable part
is its whole state: a scalar is stored as it is, anything else in msgpack.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import msgpack

from crdtcast.datatypes import snapshots
from crdtcast.datatypes.operations import Element
from crdtcast.datatypes.polog import POLog
from crdtcast.datatypes.pure import PureOpCRDT

Object: TypeAlias = PureOpCRDT[Any]


class Key(NamedTuple):
    """The key of a value in a map: a name, and the name of its type."""

    name: Element
    type: str


class Asleep:
    """Objects by type and name; `type_named` gives their classes."""

    __slots__ = ("_parts", "_type_named")

    def __init__(self, type_named: Callable[[str], type[Object]]) -> None:
        self._type_named = type_named
        # No key objects in here: they would cost more than most values.
        self._parts: dict[str, dict[Element, Any]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._parts.values()))

    def __iter__(self) -> Iterator[Key]:
        for type_name, parts in self._parts.items():
            for name in parts:
                yield Key(name, type_name)

    def __contains__(self, key: Key) -> bool:
        return key.name in self._parts.get(key.type, ())

    def lay(self, key: Key, held: Object) -> None:
        """Store an object whose log is empty."""
        self._parts.setdefault(key.type, {})[key.name] = _packed(held.dump_stable())

    def look(self, key: Key) -> Object | None:
        """A copy of the object, which stays stored."""
        parts = self._parts.get(key.type)
        if parts is None or key.name not in parts:
            return None
        crdt = self._type_named(key.type)
        copy = crdt()
        copy.load_stable(_unpacked(parts[key.name]), crdt.VERSION)
        return copy

    def wake(self, key: Key) -> Object | None:
        """Take the object out."""
        woken = self.look(key)
        if woken is not None:
            parts = self._parts[key.type]
            del parts[key.name]
            if not parts:
                del self._parts[key.type]
        return woken

    def snapshot(self, key: Key) -> bytes:
        """The same as `PureOpCRDT.snapshot` of the object."""
        crdt = self._type_named(key.type)
        stable = _unpacked(self._parts[key.type][key.name])
        return snapshots.pack(crdt.TYPE, crdt.VERSION, stable, POLog())


def _packed(stable: Any) -> Any:
    if stable is None or type(stable) in (bool, int, float, str):
        return stable
    return msgpack.packb(stable)


def _unpacked(part: Any) -> Any:
    return msgpack.unpackb(part) if type(part) is bytes else part
