"""Sets. Add-wins: Baquero, Almeida and Shoker, "Pure Operation-Based Replicated Data Types",
2017, section 5.
"""

from collections.abc import Hashable, Iterator
from typing import Any, ClassVar, TypeAlias, cast

from crdtcast.datatypes.canonical import canonical
from crdtcast.datatypes.operations import Operation, collection_of, element
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything
from crdtcast.datatypes.pure import Arrival, Arrived, PureOpCRDT

Element: TypeAlias = str | bytes | int


class AWSet(PureOpCRDT[frozenset[Element]]):
    """A set where an add wins over a concurrent remove: a removal removes only the adds that it has
    seen.

    Operations: `add(e)`, `remove(e)`, `add_all(es)`, `remove_all(es)`, `reset()` (also `clear()`)
    removes all that it has seen. Adding what is present counts: it survives a remove that did not
    see it. Removals are never stored; when everything is stable the state is a plain Python set.
    Elements are str, bytes or signed 64-bit integers.
    """

    TYPE: ClassVar[str] = "set_aw"
    OPERATIONS = {  # noqa: RUF012
        "add": Operation(element),
        "remove": Operation(element),
        "add_all": Operation(collection_of(element)),
        "remove_all": Operation(collection_of(element)),
        "reset": Operation(),
        "clear": Operation(sent_as="reset"),
    }

    def __init__(self) -> None:
        super().__init__()
        self._stable: set[Element] = set()

    def arrival(self, operation: Arrived) -> Arrival:
        name, args = operation.name, operation.args
        if name == "add":
            return Arrival(args, ((args[0], None),))
        if name == "remove":
            return Arrival(args)
        if name == "add_all":
            return Arrival(args[0], [(added, None) for added in args[0]])
        if name == "remove_all":
            return Arrival(args[0])
        return Arrival(EVERYTHING)

    def clear_stable(self, slot: Hashable | Everything) -> None:
        if slot is EVERYTHING:
            self._stable = set()
        else:
            self._stable.discard(cast(Element, slot))

    def stabilise(self, entry: Entry) -> None:
        self._stable.add(cast(Element, entry.slot))

    @property
    def value(self) -> frozenset[Element]:
        return frozenset(self)

    def __contains__(self, element: object) -> bool:
        return element in self._stable or element in self.log.slots

    def __iter__(self) -> Iterator[Element]:
        yield from self._stable
        for slot in self.log.slots:
            if slot not in self._stable:
                yield cast(Element, slot)

    def __len__(self) -> int:
        """Number of elements; costs one step an unstable element."""
        return len(self._stable) + sum(slot not in self._stable for slot in self.log.slots)

    def dump_stable(self) -> Any:
        return sorted(self._stable, key=canonical)

    def load_stable(self, dumped: Any, version: int) -> None:
        self._stable = {element(member) for member in dumped}
