"""Handles of the types of this package within a batch: the operations of each as methods.

Generated: change the types, and run `python -m crdtcast.handle_source`.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, overload

from crdtcast.datatypes import (
    AWMap,
    AWSet,
    BoundedCounter,
    DWFlag,
    Element,
    EWFlag,
    GCounter,
    GOMap,
    GSet,
    Identity,
    LWWRegister,
    MVRegister,
    NestedOperation,
    NestedRemoval,
    NestedType,
    NestedUpdate,
    Number,
    Numeric,
    PlainLike,
    PNCounter,
    PureOpCRDT,
    ResettableCounter,
    Run,
    RWSet,
    Several,
    SharedList,
    SharedText,
    SortedMap,
    TwoPhaseSet,
)
from crdtcast.replica.handle import BatchHandle, BatchOwner, nearest


class AWMapBatchHandle(BatchHandle):
    """A map where an update wins over a concurrent removal of its key. A removal resets only what
    it has seen of the value. A key is not shown while its value equals that of a new object.
    """

    def update(self, name: Element, crdt_type: NestedType, operation: NestedOperation) -> None:
        """Apply an operation, [name, argument, ...], to the value at a name and type. It survives a
        concurrent removal.
        """
        self.perform("update", name, crdt_type, operation)

    def remove(self, name: Element, crdt_type: NestedType) -> None:
        """Reset the value at a name and type. Concurrent updates survive."""
        self.perform("remove", name, crdt_type)

    def batch(self, updates: Several[NestedUpdate], removals: Several[NestedRemoval]) -> None:
        """Apply updates, [name, type, operation], and removals, [name, type], of different keys."""
        self.perform("batch", updates, removals)

    def reset(self) -> None:
        """Reset all values. Concurrent updates survive."""
        self.perform("reset")


class AWSetBatchHandle(BatchHandle):
    """A set where an add wins over a concurrent remove: a removal removes only the adds that it has
    seen.
    """

    def add(self, element: Element) -> None:
        """Add an element. It survives each removal that has not seen this add."""
        self.perform("add", element)

    def add_all(self, elements: Several[Element]) -> None:
        """Add several elements. They survive each removal that has not seen this add."""
        self.perform("add_all", elements)

    def remove(self, element: Element) -> None:
        """Remove an element. A concurrent add of it survives."""
        self.perform("remove", element)

    def remove_all(self, elements: Several[Element]) -> None:
        """Remove several elements. Concurrent adds of them survive."""
        self.perform("remove_all", elements)

    def reset(self) -> None:
        """Remove all elements. Concurrent adds survive."""
        self.perform("reset")

    def clear(self) -> None:
        """The same as `reset`."""
        self.perform("clear")


class BoundedCounterBatchHandle(BatchHandle):
    """A counter that never goes below zero: a decrement needs rights, and spends them."""

    def increment(self, by: int = 1) -> None:
        """Add a positive number, which gives this member the same number of rights."""
        self.perform("increment", by)

    def decrement(self, by: int = 1) -> None:
        """Subtract a positive number. Refused if this member has fewer rights."""
        self.perform("decrement", by)

    def transfer(self, amount: int, to: str) -> None:
        """Give rights of this member to another owner. Refused if it has fewer."""
        self.perform("transfer", amount, to)


class DWFlagBatchHandle(BatchHandle):
    """A flag where disabling wins: on if it was enabled, and each disable was seen by some enable."""

    def enable(self) -> None:
        """Switch it on. A disable that has not seen this wins."""
        self.perform("enable")

    def disable(self) -> None:
        """Switch it off. This wins over concurrent enables."""
        self.perform("disable")

    def reset(self) -> None:
        """Forget all enables and disables seen. Concurrent ones survive."""
        self.perform("reset")

    def clear(self) -> None:
        """The same as `reset`."""
        self.perform("clear")


class EWFlagBatchHandle(BatchHandle):
    """A flag where enabling wins: a disable removes only the enables that it has seen."""

    def enable(self) -> None:
        """Switch it on. This survives each disable that has not seen it."""
        self.perform("enable")

    def disable(self) -> None:
        """Switch it off. A concurrent enable survives."""
        self.perform("disable")

    def reset(self) -> None:
        """The same as `disable`."""
        self.perform("reset")

    def clear(self) -> None:
        """The same as `disable`."""
        self.perform("clear")


class GCounterBatchHandle(BatchHandle):
    """A counter that only grows."""

    def increment(self, by: int = 1) -> None:
        """Add a number that is not negative."""
        self.perform("increment", by)


class GOMapBatchHandle(BatchHandle):
    """A map that only gains keys; a key stays even if its value becomes empty."""

    def update(self, name: Element, crdt_type: NestedType, operation: NestedOperation) -> None:
        """Apply an operation, [name, argument, ...], to the value at a name and type."""
        self.perform("update", name, crdt_type, operation)


class GSetBatchHandle(BatchHandle):
    """A set that only grows."""

    def add(self, element: Element) -> None:
        """Add an element."""
        self.perform("add", element)

    def add_all(self, elements: Several[Element]) -> None:
        """Add several elements."""
        self.perform("add_all", elements)


class LWWRegisterBatchHandle(BatchHandle):
    """A register that shows the last of the values written concurrently, by the clock."""

    def assign(self, value: PlainLike) -> None:
        """Write a value that replaces all values seen. The last of concurrent ones is shown."""
        self.perform("assign", value)

    def reset(self) -> None:
        """Remove all values seen. Concurrent ones survive."""
        self.perform("reset")

    def clear(self) -> None:
        """The same as `reset`."""
        self.perform("clear")


class MVRegisterBatchHandle(BatchHandle):
    """A register that shows all values written concurrently; a later write that has seen them
    replaces them.
    """

    def assign(self, value: PlainLike) -> None:
        """Write a value that replaces all values seen. Concurrent values are kept, too."""
        self.perform("assign", value)

    def reset(self) -> None:
        """Remove all values seen. Concurrent ones survive."""
        self.perform("reset")

    def clear(self) -> None:
        """The same as `reset`."""
        self.perform("clear")


class NumberBatchHandle(BatchHandle):
    """A number with `SET`, `INCR` and `DEL`: the last of concurrent assignments wins, and
    increments count unless an assignment or removal has seen them.
    """

    def set(self, number: Numeric) -> None:
        """Write a number. The last of concurrent writes wins; increments that it has not seen are
        added to it.
        """
        self.perform("set", number)

    def increment(self, by: Numeric = 1) -> None:
        """Add a number, exactly. An absent one counts as 0."""
        self.perform("increment", by)

    def reset(self) -> None:
        """The same as `remove`."""
        self.perform("reset")

    def remove(self) -> None:
        """Make it absent. Concurrent operations survive."""
        self.perform("remove")


class PNCounterBatchHandle(BatchHandle):
    """A counter that goes up and down."""

    def increment(self, by: int = 1) -> None:
        """Add a number."""
        self.perform("increment", by)

    def decrement(self, by: int = 1) -> None:
        """Subtract a number."""
        self.perform("decrement", by)


class RWSetBatchHandle(BatchHandle):
    """A set where a remove wins over a concurrent add: an element is present if it was added and
    each removal of it was seen by some add.
    """

    def add(self, element: Element) -> None:
        """Add an element. A removal that has not seen this add wins."""
        self.perform("add", element)

    def add_all(self, elements: Several[Element]) -> None:
        """Add several elements. Removals that have not seen this add win."""
        self.perform("add_all", elements)

    def remove(self, element: Element) -> None:
        """Remove an element, present or not. The removal wins over concurrent adds."""
        self.perform("remove", element)

    def remove_all(self, elements: Several[Element]) -> None:
        """Remove several elements, present or not. The removal wins over concurrent adds."""
        self.perform("remove_all", elements)

    def reset(self) -> None:
        """Forget all adds and removals seen. Concurrent adds survive."""
        self.perform("reset")

    def clear(self) -> None:
        """The same as `reset`."""
        self.perform("clear")


class ResettableCounterBatchHandle(BatchHandle):
    """A counter whose reset removes exactly the deltas that it has seen; concurrent ones stay."""

    def increment(self, by: int = 1) -> None:
        """Add a number."""
        self.perform("increment", by)

    def decrement(self, by: int = 1) -> None:
        """Subtract a number."""
        self.perform("decrement", by)

    def reset(self) -> None:
        """Reset to the seen past: removes all deltas seen. Concurrent deltas survive."""
        self.perform("reset")


class SharedListBatchHandle(BatchHandle):
    """A list that many replicas edit at once: values inserted together stay together, and any
    replica that has seen an element can delete it for all.
    """

    def insert(self, index: int, value: PlainLike) -> None:
        """Insert a value before the element at an index, as list.insert takes indices."""
        self.perform("insert", index, value)

    def insert_all(self, index: int, values: Several[PlainLike]) -> None:
        """Insert several values before the element at an index. They stay together."""
        self.perform("insert_all", index, values)

    def replace(self, index: int, value: PlainLike) -> None:
        """Give the element at an index another value. This survives a concurrent deletion."""
        self.perform("replace", index, value)

    def delete(self, index: int, count: int = 1) -> None:
        """Delete the element at an index, or `count` of them."""
        self.perform("delete", index, count)

    def place(
        self, parent: Identity | None, side: Literal["L", "R"], values: Several[PlainLike]
    ) -> None:
        """Insert values to the left or right of an element, or (None) at an end."""
        self.perform("place", parent, side, values)

    def write(self, identity: Identity, value: PlainLike) -> None:
        """Give an element, by its identity, another value."""
        self.perform("write", identity, value)

    def kill(self, runs: list[Run]) -> None:
        """Delete elements by their identities."""
        self.perform("kill", runs)

    def reset(self) -> None:
        """Delete all elements seen. Concurrent insertions survive."""
        self.perform("reset")


class SharedTextBatchHandle(BatchHandle):
    """A text: characters typed together, forwards or backwards, stay together."""

    def insert(self, index: int, text: str) -> None:
        """Insert a text before the character at an index, as list.insert takes indices."""
        self.perform("insert", index, text)

    def delete(self, index: int, count: int = 1) -> None:
        """Delete the character at an index, or `count` of them."""
        self.perform("delete", index, count)

    def place(self, parent: Identity | None, side: Literal["L", "R"], text: str) -> None:
        """Insert a text to the left or right of a character, or (None) at an end."""
        self.perform("place", parent, side, text)

    def kill(self, runs: list[Run]) -> None:
        """Delete characters by their identities."""
        self.perform("kill", runs)

    def reset(self) -> None:
        """Delete all characters seen. Concurrent insertions survive."""
        self.perform("reset")


class SortedMapBatchHandle(BatchHandle):
    """Members with scores, lowest first. The last of concurrent assignments to a member wins, and
    increments count unless an assignment has seen them.
    """

    def set(self, member: Element, score: Numeric) -> None:
        """Give a member a score. The last of concurrent ones wins."""
        self.perform("set", member, score)

    def increment(self, member: Element, by: Numeric = 1) -> None:
        """Add to a member's score, exactly. An absent member starts at 0."""
        self.perform("increment", member, by)

    def remove(self, member: Element) -> None:
        """Remove a member. Concurrent operations survive."""
        self.perform("remove", member)

    def reset(self) -> None:
        """Remove all members. Concurrent operations survive."""
        self.perform("reset")


class TwoPhaseSetBatchHandle(BatchHandle):
    """A set where a remove is final: later and concurrent adds of that element do not count."""

    def add(self, element: Element) -> None:
        """Add an element. Has no effect if it was ever removed."""
        self.perform("add", element)

    def add_all(self, elements: Several[Element]) -> None:
        """Add several elements. Has no effect for those that were ever removed."""
        self.perform("add_all", elements)

    def remove(self, element: Element) -> None:
        """Remove an element forever, present or not."""
        self.perform("remove", element)

    def remove_all(self, elements: Several[Element]) -> None:
        """Remove several elements forever, present or not."""
        self.perform("remove_all", elements)


BATCH_HANDLES: Final[Mapping[type[PureOpCRDT[Any]], type[BatchHandle]]] = {
    AWMap: AWMapBatchHandle,
    AWSet: AWSetBatchHandle,
    BoundedCounter: BoundedCounterBatchHandle,
    DWFlag: DWFlagBatchHandle,
    EWFlag: EWFlagBatchHandle,
    GCounter: GCounterBatchHandle,
    GOMap: GOMapBatchHandle,
    GSet: GSetBatchHandle,
    LWWRegister: LWWRegisterBatchHandle,
    MVRegister: MVRegisterBatchHandle,
    Number: NumberBatchHandle,
    PNCounter: PNCounterBatchHandle,
    RWSet: RWSetBatchHandle,
    ResettableCounter: ResettableCounterBatchHandle,
    SharedList: SharedListBatchHandle,
    SharedText: SharedTextBatchHandle,
    SortedMap: SortedMapBatchHandle,
    TwoPhaseSet: TwoPhaseSetBatchHandle,
}
"""Of the types of this package."""


class TypedBatch(BatchOwner):
    """What collects operations: `object` gives a handle, by the type of the object."""

    @overload
    def object(self, name: str, crdt_type: type[AWMap]) -> AWMapBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[AWSet]) -> AWSetBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[BoundedCounter]) -> BoundedCounterBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[DWFlag]) -> DWFlagBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[EWFlag]) -> EWFlagBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[GCounter]) -> GCounterBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[GOMap]) -> GOMapBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[GSet]) -> GSetBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[LWWRegister]) -> LWWRegisterBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[MVRegister]) -> MVRegisterBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[Number]) -> NumberBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[PNCounter]) -> PNCounterBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[RWSet]) -> RWSetBatchHandle: ...

    @overload
    def object(
        self, name: str, crdt_type: type[ResettableCounter]
    ) -> ResettableCounterBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[SharedList]) -> SharedListBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[SharedText]) -> SharedTextBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[SortedMap]) -> SortedMapBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[TwoPhaseSet]) -> TwoPhaseSetBatchHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[PureOpCRDT[Any]]) -> BatchHandle: ...

    def object(self, name: str, crdt_type: type[PureOpCRDT[Any]]) -> BatchHandle:
        """The object called `name` of that type, to add operations for it to the batch."""
        return nearest(crdt_type, BATCH_HANDLES, BatchHandle)(self, name, crdt_type)
