"""Handles of the types of this package for threads: the operations of each as methods.

Generated: change the types, and run `python -m crdtcast.handle_source`.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar, overload

from crdtcast.causality.tags import Tag
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
from crdtcast.replica.handle import nearest
from crdtcast.sync.handle import HandleOwner, SyncHandle

C = TypeVar("C", bound=PureOpCRDT[Any])


class AWMapSyncHandle(SyncHandle[AWMap]):
    """A map where an update wins over a concurrent removal of its key. A removal resets only what
    it has seen of the value. A key is not shown while its value equals that of a new object.
    """

    def update(self, name: Element, crdt_type: NestedType, operation: NestedOperation) -> Tag:
        """Apply an operation, [name, argument, ...], to the value at a name and type. It survives a
        concurrent removal.
        """
        return self.perform("update", name, crdt_type, operation)

    def remove(self, name: Element, crdt_type: NestedType) -> Tag:
        """Reset the value at a name and type. Concurrent updates survive."""
        return self.perform("remove", name, crdt_type)

    def batch(self, updates: Several[NestedUpdate], removals: Several[NestedRemoval]) -> Tag:
        """Apply updates, [name, type, operation], and removals, [name, type], of different keys."""
        return self.perform("batch", updates, removals)

    def reset(self) -> Tag:
        """Reset all values. Concurrent updates survive."""
        return self.perform("reset")


class AWSetSyncHandle(SyncHandle[AWSet]):
    """A set where an add wins over a concurrent remove: a removal removes only the adds that it has
    seen.
    """

    def add(self, element: Element) -> Tag:
        """Add an element. It survives each removal that has not seen this add."""
        return self.perform("add", element)

    def add_all(self, elements: Several[Element]) -> Tag:
        """Add several elements. They survive each removal that has not seen this add."""
        return self.perform("add_all", elements)

    def remove(self, element: Element) -> Tag:
        """Remove an element. A concurrent add of it survives."""
        return self.perform("remove", element)

    def remove_all(self, elements: Several[Element]) -> Tag:
        """Remove several elements. Concurrent adds of them survive."""
        return self.perform("remove_all", elements)

    def reset(self) -> Tag:
        """Remove all elements. Concurrent adds survive."""
        return self.perform("reset")

    def clear(self) -> Tag:
        """The same as `reset`."""
        return self.perform("clear")


class BoundedCounterSyncHandle(SyncHandle[BoundedCounter]):
    """A counter that never goes below zero: a decrement needs rights, and spends them."""

    def increment(self, by: int = 1) -> Tag:
        """Add a positive number, which gives this member the same number of rights."""
        return self.perform("increment", by)

    def decrement(self, by: int = 1) -> Tag:
        """Subtract a positive number. Refused if this member has fewer rights."""
        return self.perform("decrement", by)

    def transfer(self, amount: int, to: str) -> Tag:
        """Give rights of this member to another owner. Refused if it has fewer."""
        return self.perform("transfer", amount, to)


class DWFlagSyncHandle(SyncHandle[DWFlag]):
    """A flag where disabling wins: on if it was enabled, and each disable was seen by some enable."""

    def enable(self) -> Tag:
        """Switch it on. A disable that has not seen this wins."""
        return self.perform("enable")

    def disable(self) -> Tag:
        """Switch it off. This wins over concurrent enables."""
        return self.perform("disable")

    def reset(self) -> Tag:
        """Forget all enables and disables seen. Concurrent ones survive."""
        return self.perform("reset")

    def clear(self) -> Tag:
        """The same as `reset`."""
        return self.perform("clear")


class EWFlagSyncHandle(SyncHandle[EWFlag]):
    """A flag where enabling wins: a disable removes only the enables that it has seen."""

    def enable(self) -> Tag:
        """Switch it on. This survives each disable that has not seen it."""
        return self.perform("enable")

    def disable(self) -> Tag:
        """Switch it off. A concurrent enable survives."""
        return self.perform("disable")

    def reset(self) -> Tag:
        """The same as `disable`."""
        return self.perform("reset")

    def clear(self) -> Tag:
        """The same as `disable`."""
        return self.perform("clear")


class GCounterSyncHandle(SyncHandle[GCounter]):
    """A counter that only grows."""

    def increment(self, by: int = 1) -> Tag:
        """Add a number that is not negative."""
        return self.perform("increment", by)


class GOMapSyncHandle(SyncHandle[GOMap]):
    """A map that only gains keys; a key stays even if its value becomes empty."""

    def update(self, name: Element, crdt_type: NestedType, operation: NestedOperation) -> Tag:
        """Apply an operation, [name, argument, ...], to the value at a name and type."""
        return self.perform("update", name, crdt_type, operation)


class GSetSyncHandle(SyncHandle[GSet]):
    """A set that only grows."""

    def add(self, element: Element) -> Tag:
        """Add an element."""
        return self.perform("add", element)

    def add_all(self, elements: Several[Element]) -> Tag:
        """Add several elements."""
        return self.perform("add_all", elements)


class LWWRegisterSyncHandle(SyncHandle[LWWRegister]):
    """A register that shows the last of the values written concurrently, by the clock."""

    def assign(self, value: PlainLike) -> Tag:
        """Write a value that replaces all values seen. The last of concurrent ones is shown."""
        return self.perform("assign", value)

    def reset(self) -> Tag:
        """Remove all values seen. Concurrent ones survive."""
        return self.perform("reset")

    def clear(self) -> Tag:
        """The same as `reset`."""
        return self.perform("clear")


class MVRegisterSyncHandle(SyncHandle[MVRegister]):
    """A register that shows all values written concurrently; a later write that has seen them
    replaces them.
    """

    def assign(self, value: PlainLike) -> Tag:
        """Write a value that replaces all values seen. Concurrent values are kept, too."""
        return self.perform("assign", value)

    def reset(self) -> Tag:
        """Remove all values seen. Concurrent ones survive."""
        return self.perform("reset")

    def clear(self) -> Tag:
        """The same as `reset`."""
        return self.perform("clear")


class NumberSyncHandle(SyncHandle[Number]):
    """A number with `SET`, `INCR` and `DEL`: the last of concurrent assignments wins, and
    increments count unless an assignment or removal has seen them.
    """

    def set(self, number: Numeric) -> Tag:
        """Write a number. The last of concurrent writes wins; increments that it has not seen are
        added to it.
        """
        return self.perform("set", number)

    def increment(self, by: Numeric = 1) -> Tag:
        """Add a number, exactly. An absent one counts as 0."""
        return self.perform("increment", by)

    def reset(self) -> Tag:
        """The same as `remove`."""
        return self.perform("reset")

    def remove(self) -> Tag:
        """Make it absent. Concurrent operations survive."""
        return self.perform("remove")


class PNCounterSyncHandle(SyncHandle[PNCounter]):
    """A counter that goes up and down."""

    def increment(self, by: int = 1) -> Tag:
        """Add a number."""
        return self.perform("increment", by)

    def decrement(self, by: int = 1) -> Tag:
        """Subtract a number."""
        return self.perform("decrement", by)


class RWSetSyncHandle(SyncHandle[RWSet]):
    """A set where a remove wins over a concurrent add: an element is present if it was added and
    each removal of it was seen by some add.
    """

    def add(self, element: Element) -> Tag:
        """Add an element. A removal that has not seen this add wins."""
        return self.perform("add", element)

    def add_all(self, elements: Several[Element]) -> Tag:
        """Add several elements. Removals that have not seen this add win."""
        return self.perform("add_all", elements)

    def remove(self, element: Element) -> Tag:
        """Remove an element, present or not. The removal wins over concurrent adds."""
        return self.perform("remove", element)

    def remove_all(self, elements: Several[Element]) -> Tag:
        """Remove several elements, present or not. The removal wins over concurrent adds."""
        return self.perform("remove_all", elements)

    def reset(self) -> Tag:
        """Forget all adds and removals seen. Concurrent adds survive."""
        return self.perform("reset")

    def clear(self) -> Tag:
        """The same as `reset`."""
        return self.perform("clear")


class ResettableCounterSyncHandle(SyncHandle[ResettableCounter]):
    """A counter whose reset removes exactly the deltas that it has seen; concurrent ones stay."""

    def increment(self, by: int = 1) -> Tag:
        """Add a number."""
        return self.perform("increment", by)

    def decrement(self, by: int = 1) -> Tag:
        """Subtract a number."""
        return self.perform("decrement", by)

    def reset(self) -> Tag:
        """Reset to the seen past: removes all deltas seen. Concurrent deltas survive."""
        return self.perform("reset")


class SharedListSyncHandle(SyncHandle[SharedList]):
    """A list that many replicas edit at once: values inserted together stay together, and any
    replica that has seen an element can delete it for all.
    """

    def insert(self, index: int, value: PlainLike) -> Tag:
        """Insert a value before the element at an index, as list.insert takes indices."""
        return self.perform("insert", index, value)

    def insert_all(self, index: int, values: Several[PlainLike]) -> Tag:
        """Insert several values before the element at an index. They stay together."""
        return self.perform("insert_all", index, values)

    def replace(self, index: int, value: PlainLike) -> Tag:
        """Give the element at an index another value. This survives a concurrent deletion."""
        return self.perform("replace", index, value)

    def delete(self, index: int, count: int = 1) -> Tag:
        """Delete the element at an index, or `count` of them."""
        return self.perform("delete", index, count)

    def place(
        self, parent: Identity | None, side: Literal["L", "R"], values: Several[PlainLike]
    ) -> Tag:
        """Insert values to the left or right of an element, or (None) at an end."""
        return self.perform("place", parent, side, values)

    def write(self, identity: Identity, value: PlainLike) -> Tag:
        """Give an element, by its identity, another value."""
        return self.perform("write", identity, value)

    def kill(self, runs: list[Run]) -> Tag:
        """Delete elements by their identities."""
        return self.perform("kill", runs)

    def reset(self) -> Tag:
        """Delete all elements seen. Concurrent insertions survive."""
        return self.perform("reset")


class SharedTextSyncHandle(SyncHandle[SharedText]):
    """A text: characters typed together, forwards or backwards, stay together."""

    def insert(self, index: int, text: str) -> Tag:
        """Insert a text before the character at an index, as list.insert takes indices."""
        return self.perform("insert", index, text)

    def delete(self, index: int, count: int = 1) -> Tag:
        """Delete the character at an index, or `count` of them."""
        return self.perform("delete", index, count)

    def place(self, parent: Identity | None, side: Literal["L", "R"], text: str) -> Tag:
        """Insert a text to the left or right of a character, or (None) at an end."""
        return self.perform("place", parent, side, text)

    def kill(self, runs: list[Run]) -> Tag:
        """Delete characters by their identities."""
        return self.perform("kill", runs)

    def reset(self) -> Tag:
        """Delete all characters seen. Concurrent insertions survive."""
        return self.perform("reset")


class SortedMapSyncHandle(SyncHandle[SortedMap]):
    """Members with scores, lowest first. The last of concurrent assignments to a member wins, and
    increments count unless an assignment has seen them.
    """

    def set(self, member: Element, score: Numeric) -> Tag:
        """Give a member a score. The last of concurrent ones wins."""
        return self.perform("set", member, score)

    def increment(self, member: Element, by: Numeric = 1) -> Tag:
        """Add to a member's score, exactly. An absent member starts at 0."""
        return self.perform("increment", member, by)

    def remove(self, member: Element) -> Tag:
        """Remove a member. Concurrent operations survive."""
        return self.perform("remove", member)

    def reset(self) -> Tag:
        """Remove all members. Concurrent operations survive."""
        return self.perform("reset")


class TwoPhaseSetSyncHandle(SyncHandle[TwoPhaseSet]):
    """A set where a remove is final: later and concurrent adds of that element do not count."""

    def add(self, element: Element) -> Tag:
        """Add an element. Has no effect if it was ever removed."""
        return self.perform("add", element)

    def add_all(self, elements: Several[Element]) -> Tag:
        """Add several elements. Has no effect for those that were ever removed."""
        return self.perform("add_all", elements)

    def remove(self, element: Element) -> Tag:
        """Remove an element forever, present or not."""
        return self.perform("remove", element)

    def remove_all(self, elements: Several[Element]) -> Tag:
        """Remove several elements forever, present or not."""
        return self.perform("remove_all", elements)


SYNC_HANDLES: Final[Mapping[type[PureOpCRDT[Any]], type[SyncHandle[Any]]]] = {
    AWMap: AWMapSyncHandle,
    AWSet: AWSetSyncHandle,
    BoundedCounter: BoundedCounterSyncHandle,
    DWFlag: DWFlagSyncHandle,
    EWFlag: EWFlagSyncHandle,
    GCounter: GCounterSyncHandle,
    GOMap: GOMapSyncHandle,
    GSet: GSetSyncHandle,
    LWWRegister: LWWRegisterSyncHandle,
    MVRegister: MVRegisterSyncHandle,
    Number: NumberSyncHandle,
    PNCounter: PNCounterSyncHandle,
    RWSet: RWSetSyncHandle,
    ResettableCounter: ResettableCounterSyncHandle,
    SharedList: SharedListSyncHandle,
    SharedText: SharedTextSyncHandle,
    SortedMap: SortedMapSyncHandle,
    TwoPhaseSet: TwoPhaseSetSyncHandle,
}
"""Of the types of this package."""


class TypedSyncObjects(HandleOwner):
    """What has objects: `object` gives a handle, by the type of the object."""

    @overload
    def object(self, name: str, crdt_type: type[AWMap]) -> AWMapSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[AWSet]) -> AWSetSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[BoundedCounter]) -> BoundedCounterSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[DWFlag]) -> DWFlagSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[EWFlag]) -> EWFlagSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[GCounter]) -> GCounterSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[GOMap]) -> GOMapSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[GSet]) -> GSetSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[LWWRegister]) -> LWWRegisterSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[MVRegister]) -> MVRegisterSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[Number]) -> NumberSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[PNCounter]) -> PNCounterSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[RWSet]) -> RWSetSyncHandle: ...

    @overload
    def object(
        self, name: str, crdt_type: type[ResettableCounter]
    ) -> ResettableCounterSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[SharedList]) -> SharedListSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[SharedText]) -> SharedTextSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[SortedMap]) -> SortedMapSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[TwoPhaseSet]) -> TwoPhaseSetSyncHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[C]) -> SyncHandle[C]: ...

    def object(self, name: str, crdt_type: type[PureOpCRDT[Any]]) -> SyncHandle[Any]:
        """The object called `name` of that type; its first operation, here or elsewhere, makes it.

        Raises TypeClashError if the name has another type.
        """
        return nearest(crdt_type, SYNC_HANDLES, SyncHandle)(self, name, crdt_type)
