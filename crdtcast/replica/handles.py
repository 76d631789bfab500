"""Handles of the types of this package: the operations of each as methods.

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
from crdtcast.replica.handle import Handle, ObjectOwner, nearest

C = TypeVar("C", bound=PureOpCRDT[Any])


class AWMapHandle(Handle[AWMap]):
    """A map where an update wins over a concurrent removal of its key. A removal resets only what
    it has seen of the value. A key is not shown while its value equals that of a new object.
    """

    async def update(self, name: Element, crdt_type: NestedType, operation: NestedOperation) -> Tag:
        """Apply an operation, [name, argument, ...], to the value at a name and type. It survives a
        concurrent removal.
        """
        return await self.perform("update", name, crdt_type, operation)

    async def remove(self, name: Element, crdt_type: NestedType) -> Tag:
        """Reset the value at a name and type. Concurrent updates survive."""
        return await self.perform("remove", name, crdt_type)

    async def batch(self, updates: Several[NestedUpdate], removals: Several[NestedRemoval]) -> Tag:
        """Apply updates, [name, type, operation], and removals, [name, type], of different keys."""
        return await self.perform("batch", updates, removals)

    async def reset(self) -> Tag:
        """Reset all values. Concurrent updates survive."""
        return await self.perform("reset")


class AWSetHandle(Handle[AWSet]):
    """A set where an add wins over a concurrent remove: a removal removes only the adds that it has
    seen.
    """

    async def add(self, element: Element) -> Tag:
        """Add an element. It survives each removal that has not seen this add."""
        return await self.perform("add", element)

    async def add_all(self, elements: Several[Element]) -> Tag:
        """Add several elements. They survive each removal that has not seen this add."""
        return await self.perform("add_all", elements)

    async def remove(self, element: Element) -> Tag:
        """Remove an element. A concurrent add of it survives."""
        return await self.perform("remove", element)

    async def remove_all(self, elements: Several[Element]) -> Tag:
        """Remove several elements. Concurrent adds of them survive."""
        return await self.perform("remove_all", elements)

    async def reset(self) -> Tag:
        """Remove all elements. Concurrent adds survive."""
        return await self.perform("reset")

    async def clear(self) -> Tag:
        """The same as `reset`."""
        return await self.perform("clear")


class BoundedCounterHandle(Handle[BoundedCounter]):
    """A counter that never goes below zero: a decrement needs rights, and spends them."""

    async def increment(self, by: int = 1) -> Tag:
        """Add a positive number, which gives this member the same number of rights."""
        return await self.perform("increment", by)

    async def decrement(self, by: int = 1) -> Tag:
        """Subtract a positive number. Refused if this member has fewer rights."""
        return await self.perform("decrement", by)

    async def transfer(self, amount: int, to: str) -> Tag:
        """Give rights of this member to another owner. Refused if it has fewer."""
        return await self.perform("transfer", amount, to)


class DWFlagHandle(Handle[DWFlag]):
    """A flag where disabling wins: on if it was enabled, and each disable was seen by some enable."""

    async def enable(self) -> Tag:
        """Switch it on. A disable that has not seen this wins."""
        return await self.perform("enable")

    async def disable(self) -> Tag:
        """Switch it off. This wins over concurrent enables."""
        return await self.perform("disable")

    async def reset(self) -> Tag:
        """Forget all enables and disables seen. Concurrent ones survive."""
        return await self.perform("reset")

    async def clear(self) -> Tag:
        """The same as `reset`."""
        return await self.perform("clear")


class EWFlagHandle(Handle[EWFlag]):
    """A flag where enabling wins: a disable removes only the enables that it has seen."""

    async def enable(self) -> Tag:
        """Switch it on. This survives each disable that has not seen it."""
        return await self.perform("enable")

    async def disable(self) -> Tag:
        """Switch it off. A concurrent enable survives."""
        return await self.perform("disable")

    async def reset(self) -> Tag:
        """The same as `disable`."""
        return await self.perform("reset")

    async def clear(self) -> Tag:
        """The same as `disable`."""
        return await self.perform("clear")


class GCounterHandle(Handle[GCounter]):
    """A counter that only grows."""

    async def increment(self, by: int = 1) -> Tag:
        """Add a number that is not negative."""
        return await self.perform("increment", by)


class GOMapHandle(Handle[GOMap]):
    """A map that only gains keys; a key stays even if its value becomes empty."""

    async def update(self, name: Element, crdt_type: NestedType, operation: NestedOperation) -> Tag:
        """Apply an operation, [name, argument, ...], to the value at a name and type."""
        return await self.perform("update", name, crdt_type, operation)


class GSetHandle(Handle[GSet]):
    """A set that only grows."""

    async def add(self, element: Element) -> Tag:
        """Add an element."""
        return await self.perform("add", element)

    async def add_all(self, elements: Several[Element]) -> Tag:
        """Add several elements."""
        return await self.perform("add_all", elements)


class LWWRegisterHandle(Handle[LWWRegister]):
    """A register that shows the last of the values written concurrently, by the clock."""

    async def assign(self, value: PlainLike) -> Tag:
        """Write a value that replaces all values seen. The last of concurrent ones is shown."""
        return await self.perform("assign", value)

    async def reset(self) -> Tag:
        """Remove all values seen. Concurrent ones survive."""
        return await self.perform("reset")

    async def clear(self) -> Tag:
        """The same as `reset`."""
        return await self.perform("clear")


class MVRegisterHandle(Handle[MVRegister]):
    """A register that shows all values written concurrently; a later write that has seen them
    replaces them.
    """

    async def assign(self, value: PlainLike) -> Tag:
        """Write a value that replaces all values seen. Concurrent values are kept, too."""
        return await self.perform("assign", value)

    async def reset(self) -> Tag:
        """Remove all values seen. Concurrent ones survive."""
        return await self.perform("reset")

    async def clear(self) -> Tag:
        """The same as `reset`."""
        return await self.perform("clear")


class NumberHandle(Handle[Number]):
    """A number with `SET`, `INCR` and `DEL`: the last of concurrent assignments wins, and
    increments count unless an assignment or removal has seen them.
    """

    async def set(self, number: Numeric) -> Tag:
        """Write a number. The last of concurrent writes wins; increments that it has not seen are
        added to it.
        """
        return await self.perform("set", number)

    async def increment(self, by: Numeric = 1) -> Tag:
        """Add a number, exactly. An absent one counts as 0."""
        return await self.perform("increment", by)

    async def reset(self) -> Tag:
        """The same as `remove`."""
        return await self.perform("reset")

    async def remove(self) -> Tag:
        """Make it absent. Concurrent operations survive."""
        return await self.perform("remove")


class PNCounterHandle(Handle[PNCounter]):
    """A counter that goes up and down."""

    async def increment(self, by: int = 1) -> Tag:
        """Add a number."""
        return await self.perform("increment", by)

    async def decrement(self, by: int = 1) -> Tag:
        """Subtract a number."""
        return await self.perform("decrement", by)


class RWSetHandle(Handle[RWSet]):
    """A set where a remove wins over a concurrent add: an element is present if it was added and
    each removal of it was seen by some add.
    """

    async def add(self, element: Element) -> Tag:
        """Add an element. A removal that has not seen this add wins."""
        return await self.perform("add", element)

    async def add_all(self, elements: Several[Element]) -> Tag:
        """Add several elements. Removals that have not seen this add win."""
        return await self.perform("add_all", elements)

    async def remove(self, element: Element) -> Tag:
        """Remove an element, present or not. The removal wins over concurrent adds."""
        return await self.perform("remove", element)

    async def remove_all(self, elements: Several[Element]) -> Tag:
        """Remove several elements, present or not. The removal wins over concurrent adds."""
        return await self.perform("remove_all", elements)

    async def reset(self) -> Tag:
        """Forget all adds and removals seen. Concurrent adds survive."""
        return await self.perform("reset")

    async def clear(self) -> Tag:
        """The same as `reset`."""
        return await self.perform("clear")


class ResettableCounterHandle(Handle[ResettableCounter]):
    """A counter whose reset removes exactly the deltas that it has seen; concurrent ones stay."""

    async def increment(self, by: int = 1) -> Tag:
        """Add a number."""
        return await self.perform("increment", by)

    async def decrement(self, by: int = 1) -> Tag:
        """Subtract a number."""
        return await self.perform("decrement", by)

    async def reset(self) -> Tag:
        """Reset to the seen past: removes all deltas seen. Concurrent deltas survive."""
        return await self.perform("reset")


class SharedListHandle(Handle[SharedList]):
    """A list that many replicas edit at once: values inserted together stay together, and any
    replica that has seen an element can delete it for all.
    """

    async def insert(self, index: int, value: PlainLike) -> Tag:
        """Insert a value before the element at an index, as list.insert takes indices."""
        return await self.perform("insert", index, value)

    async def insert_all(self, index: int, values: Several[PlainLike]) -> Tag:
        """Insert several values before the element at an index. They stay together."""
        return await self.perform("insert_all", index, values)

    async def replace(self, index: int, value: PlainLike) -> Tag:
        """Give the element at an index another value. This survives a concurrent deletion."""
        return await self.perform("replace", index, value)

    async def delete(self, index: int, count: int = 1) -> Tag:
        """Delete the element at an index, or `count` of them."""
        return await self.perform("delete", index, count)

    async def place(
        self, parent: Identity | None, side: Literal["L", "R"], values: Several[PlainLike]
    ) -> Tag:
        """Insert values to the left or right of an element, or (None) at an end."""
        return await self.perform("place", parent, side, values)

    async def write(self, identity: Identity, value: PlainLike) -> Tag:
        """Give an element, by its identity, another value."""
        return await self.perform("write", identity, value)

    async def kill(self, runs: list[Run]) -> Tag:
        """Delete elements by their identities."""
        return await self.perform("kill", runs)

    async def reset(self) -> Tag:
        """Delete all elements seen. Concurrent insertions survive."""
        return await self.perform("reset")


class SharedTextHandle(Handle[SharedText]):
    """A text: characters typed together, forwards or backwards, stay together."""

    async def insert(self, index: int, text: str) -> Tag:
        """Insert a text before the character at an index, as list.insert takes indices."""
        return await self.perform("insert", index, text)

    async def delete(self, index: int, count: int = 1) -> Tag:
        """Delete the character at an index, or `count` of them."""
        return await self.perform("delete", index, count)

    async def place(self, parent: Identity | None, side: Literal["L", "R"], text: str) -> Tag:
        """Insert a text to the left or right of a character, or (None) at an end."""
        return await self.perform("place", parent, side, text)

    async def kill(self, runs: list[Run]) -> Tag:
        """Delete characters by their identities."""
        return await self.perform("kill", runs)

    async def reset(self) -> Tag:
        """Delete all characters seen. Concurrent insertions survive."""
        return await self.perform("reset")


class SortedMapHandle(Handle[SortedMap]):
    """Members with scores, lowest first. The last of concurrent assignments to a member wins, and
    increments count unless an assignment has seen them.
    """

    async def set(self, member: Element, score: Numeric) -> Tag:
        """Give a member a score. The last of concurrent ones wins."""
        return await self.perform("set", member, score)

    async def increment(self, member: Element, by: Numeric = 1) -> Tag:
        """Add to a member's score, exactly. An absent member starts at 0."""
        return await self.perform("increment", member, by)

    async def remove(self, member: Element) -> Tag:
        """Remove a member. Concurrent operations survive."""
        return await self.perform("remove", member)

    async def reset(self) -> Tag:
        """Remove all members. Concurrent operations survive."""
        return await self.perform("reset")


class TwoPhaseSetHandle(Handle[TwoPhaseSet]):
    """A set where a remove is final: later and concurrent adds of that element do not count."""

    async def add(self, element: Element) -> Tag:
        """Add an element. Has no effect if it was ever removed."""
        return await self.perform("add", element)

    async def add_all(self, elements: Several[Element]) -> Tag:
        """Add several elements. Has no effect for those that were ever removed."""
        return await self.perform("add_all", elements)

    async def remove(self, element: Element) -> Tag:
        """Remove an element forever, present or not."""
        return await self.perform("remove", element)

    async def remove_all(self, elements: Several[Element]) -> Tag:
        """Remove several elements forever, present or not."""
        return await self.perform("remove_all", elements)


HANDLES: Final[Mapping[type[PureOpCRDT[Any]], type[Handle[Any]]]] = {
    AWMap: AWMapHandle,
    AWSet: AWSetHandle,
    BoundedCounter: BoundedCounterHandle,
    DWFlag: DWFlagHandle,
    EWFlag: EWFlagHandle,
    GCounter: GCounterHandle,
    GOMap: GOMapHandle,
    GSet: GSetHandle,
    LWWRegister: LWWRegisterHandle,
    MVRegister: MVRegisterHandle,
    Number: NumberHandle,
    PNCounter: PNCounterHandle,
    RWSet: RWSetHandle,
    ResettableCounter: ResettableCounterHandle,
    SharedList: SharedListHandle,
    SharedText: SharedTextHandle,
    SortedMap: SortedMapHandle,
    TwoPhaseSet: TwoPhaseSetHandle,
}
"""Of the types of this package."""


class TypedObjects(ObjectOwner):
    """What has objects: `object` gives a handle, by the type of the object."""

    @overload
    def object(self, name: str, crdt_type: type[AWMap]) -> AWMapHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[AWSet]) -> AWSetHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[BoundedCounter]) -> BoundedCounterHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[DWFlag]) -> DWFlagHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[EWFlag]) -> EWFlagHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[GCounter]) -> GCounterHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[GOMap]) -> GOMapHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[GSet]) -> GSetHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[LWWRegister]) -> LWWRegisterHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[MVRegister]) -> MVRegisterHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[Number]) -> NumberHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[PNCounter]) -> PNCounterHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[RWSet]) -> RWSetHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[ResettableCounter]) -> ResettableCounterHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[SharedList]) -> SharedListHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[SharedText]) -> SharedTextHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[SortedMap]) -> SortedMapHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[TwoPhaseSet]) -> TwoPhaseSetHandle: ...

    @overload
    def object(self, name: str, crdt_type: type[C]) -> Handle[C]: ...

    def object(self, name: str, crdt_type: type[PureOpCRDT[Any]]) -> Handle[Any]:
        """The object called `name` of that type; its first operation, here or elsewhere, makes it.

        Raises TypeClashError if the name has another type.
        """
        return nearest(crdt_type, HANDLES, Handle)(self, name, crdt_type)
