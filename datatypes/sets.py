"""Sets. Add-wins and remove-wins: Baquero, Almeida and Shoker, "Pure Operation-Based Replicated Data Types", 2017,
section 5. Grow-only and two-phase: Shapiro, Preguiça, Baquero and Zawirski, "A Comprehensive Study of Convergent and
Commutative Replicated Data Types", 2011, section 3.3.
"""

from abc import abstractmethod
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self, cast

from crdtcast.datatypes.canonical import canonical
from crdtcast.datatypes.operations import Element, Operation, collection_of, element
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything
from crdtcast.datatypes.previous_life import Former
from crdtcast.datatypes.pure import SLIGHT, Arrival, Arrived, PureOpCRDT

_ELEMENTS = collection_of(element)


def _members(args: Sequence[Any]) -> Sequence[Element]:
    """The elements that an operation names: one, or a list of them."""
    return args[0] if type(args[0]) is list else args


class ElementSet(PureOpCRDT[frozenset[Element]]):
    """The common part of the four sets: everything except the effect of an operation."""

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        self._stable: set[Element] = set()
        """The elements that are present by stable operations alone."""

    def touched(self) -> Collection[Element]:
        """The elements with entries in the log, each once."""
        return cast(Collection[Element], self.log.slots)

    @abstractmethod
    def __contains__(self, element: object) -> bool:
        """Whether the element is present."""

    def __iter__(self) -> Iterator[Element]:
        touched = self.touched()
        for member in self._stable:
            if member not in touched:
                yield member
        for member in touched:
            if member in self:
                yield member

    def __len__(self) -> int:
        """Number of elements; costs one step per unstable element."""
        touched = self.touched()
        return len(self._stable) + sum(
            (member in self) - (member in self._stable) for member in touched
        )

    @property
    def value(self) -> frozenset[Element]:
        return frozenset(self)

    @property
    def blank(self) -> bool:
        return next(iter(self), None) is None

    @property
    def untouched(self) -> bool:
        return not (self.log or self._stable)

    @property
    def slight(self) -> bool:
        return len(self._stable) <= SLIGHT

    def reentered(self, entry: Entry) -> None:
        member: Any = entry.slot
        element(member)
        self.entered(entry)

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        return self.without_overwritten(operations)

    def dump_stable(self) -> Any:
        return sorted(self._stable, key=canonical)

    def load_stable(self, dumped: Any, version: int) -> None:
        self._stable = {element(member) for member in dumped}


class AddSet(ElementSet):
    """The common part of `GSet` and `AWSet`: an element is present iff an add of it exists."""

    def clear_stable(self, slot: Hashable | Everything) -> None:
        if slot is EVERYTHING:
            self._stable = set()
        else:
            member: Any = slot
            self._stable.discard(member)

    def stabilise(self, entry: Entry) -> None:
        member: Any = entry.slot
        self._stable.add(member)

    def __contains__(self, element: object) -> bool:
        return element in self._stable or element in self.log.slots


class GSet(AddSet):
    """A set that only grows.

    Operations: `add(element)`, `add_all(elements)`. Elements are str, bytes or signed 64-bit integers. When everything
    is stable the state is a plain Python set.
    """

    TYPE: ClassVar[str] = "set_go"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "add": Operation("Add an element.", element=element, additive=True),
        "add_all": Operation("Add several elements.", elements=_ELEMENTS, additive=True),
    }

    def arrival(self, operation: Arrived) -> Arrival:
        added = _members(operation.args)
        # An add replaces the adds of its element that it has seen: a container's reset that has not
        # seen this add must not remove the element.
        return Arrival(added, [(member, None) for member in added])


class AWSet(AddSet):
    """A set where an add wins over a concurrent remove: a removal removes only the adds that it has seen.

    Operations: `add(element)`, `remove(element)`, `add_all(elements)`, `remove_all(elements)`; `reset()` (also
    `clear()`) removes all that it has seen. Adding a present element counts: it survives a remove that did not see it.
    Removals are never stored; when everything is stable the state is a plain Python set. Elements are str, bytes or
    signed 64-bit integers.
    """

    TYPE: ClassVar[str] = "set_aw"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "add": Operation(
            "Add an element. It survives each removal that has not seen this add.",
            element=element,
            additive=True,
        ),
        "add_all": Operation(
            "Add several elements. They survive each removal that has not seen this add.",
            elements=_ELEMENTS,
            additive=True,
        ),
        "remove": Operation("Remove an element. A concurrent add of it survives.", element=element),
        "remove_all": Operation(
            "Remove several elements. Concurrent adds of them survive.", elements=_ELEMENTS
        ),
        "reset": Operation("Remove all elements. Concurrent adds survive."),
        "clear": Operation("The same as `reset`.", sent_as="reset"),
    }

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

    @classmethod
    def rebase(cls, operation: list[Any], base: Any, theirs: Any) -> list[list[Any]]:
        """Element by element: a removal is issued for what was present and still is."""
        return cls.rebase_behind(operation, base, theirs, base, theirs, Former.unknown())

    @classmethod
    def rebase_behind(
        cls,
        operation: list[Any],
        base: Any,
        theirs: Any,
        home: Any,
        present: Any,
        former: Former[Any],
    ) -> list[list[Any]]:
        """A removal is also issued for what only this replica has added."""
        name, *args = operation
        unchanged = base == theirs and home == present
        if name not in ("remove", "remove_all"):
            if cls.OPERATIONS[name].additive or unchanged:
                return [operation]
            if name != "reset":
                return []
        removed = sorted(home, key=canonical) if name == "reset" else _members(args)
        still = [
            member
            for member in removed
            if member in home and member in present and (member in base or member not in theirs)
        ]
        return [["remove_all", still]] if still else []


class RemovalKeepingSet(ElementSet):
    """The common part of the sets that keep stable removals: remove-wins for a while, two-phase forever."""

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        self._removed: set[Element] = set()
        """Elements that are absent whatever adds are in the log."""

    @property
    def untouched(self) -> bool:
        return super().untouched and not self._removed

    @property
    def slight(self) -> bool:
        return super().slight and len(self._removed) <= SLIGHT

    def dump_stable(self) -> Any:
        return [super().dump_stable(), sorted(self._removed, key=canonical)]

    def load_stable(self, dumped: Any, version: int) -> None:
        stable, removed = dumped
        super().load_stable(stable, version)
        self._removed = {element(member) for member in removed}


class RWSet(RemovalKeepingSet):
    """A set where a remove wins over a concurrent add: an element is present if it was added and each removal of it was
    seen by some add.

    Operations: `add(element)`, `remove(element)`, `add_all(elements)`, `remove_all(elements)`, `reset()` (also
    `clear()`). Removing an absent element counts: it wins over an add that did not see it. `reset` forgets the adds and
    removals that it has seen, so a concurrent add survives it. Removals stay in the log until they are stable; then the
    state is a plain Python set.
    """

    TYPE: ClassVar[str] = "set_rw"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "add": Operation(
            "Add an element. A removal that has not seen this add wins.", element=element
        ),
        "add_all": Operation(
            "Add several elements. Removals that have not seen this add win.", elements=_ELEMENTS
        ),
        # A removal wins over what it has not seen, so issuing it again removes nothing more.
        "remove": Operation(
            "Remove an element, present or not. The removal wins over concurrent adds.",
            element=element,
            additive=True,
        ),
        "remove_all": Operation(
            "Remove several elements, present or not. The removal wins over concurrent adds.",
            elements=_ELEMENTS,
            additive=True,
        ),
        "reset": Operation("Forget all adds and removals seen. Concurrent adds survive."),
        "clear": Operation("The same as `reset`.", sent_as="reset"),
    }

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "reset":
            return Arrival(EVERYTHING)
        adds = operation.name in ("add", "add_all")
        members = _members(operation.args)
        return Arrival(members, [(member, adds) for member in members])

    def clear_stable(self, slot: Hashable | Everything) -> None:
        if slot is EVERYTHING:
            self._stable = set()
            self._removed = set()
        else:
            member: Any = slot
            self._stable.discard(member)
            self._removed.discard(member)

    def stabilise(self, entry: Entry) -> None:
        """Keep a stable removal while concurrent adds are in the log: they lose."""
        member: Any = entry.slot
        if not entry.content:
            self._stable.discard(member)
            self._removed.add(member)
        elif member not in self._removed:
            self._stable.add(member)
        if not self.log.in_slot(member):
            self._removed.discard(member)

    @classmethod
    def rebase(cls, operation: list[Any], base: Any, theirs: Any) -> list[list[Any]]:
        """Element by element: an add is issued unless the element was removed since."""
        return cls.rebase_behind(operation, base, theirs, base, theirs, Former.unknown())

    @classmethod
    def rebase_behind(
        cls,
        operation: list[Any],
        base: Any,
        theirs: Any,
        home: Any,
        present: Any,
        former: Former[Any],
    ) -> list[list[Any]]:
        name, *args = operation
        if name not in ("add", "add_all"):
            unchanged = base == theirs and home == present
            return [operation] if cls.OPERATIONS[name].additive or unchanged else []
        wanted = [
            member
            for member in _members(args)
            if (member in theirs or member not in base)
            if (member in present or member not in home)
        ]
        return [["add_all", wanted]] if wanted else []

    @classmethod
    def rebase_blind(
        cls, operation: list[Any], present: Self, former: Former[Self]
    ) -> list[list[Any]]:
        """An add is issued, except for elements that were present, or may have been, and were removed since."""
        name, *args = operation
        if name not in ("add", "add_all"):
            return super().rebase_blind(operation, present, former)
        known = former.remembered
        wanted = [
            member
            for member in _members(args)
            if member in present or (known is not None and member not in known)
        ]
        return [["add_all", wanted]] if wanted else []

    def remember(self, operation: list[Any]) -> Any:
        """The elements of an add that were present before."""
        name, *args = operation
        if name not in ("add", "add_all"):
            return None
        return [member for member in _members(args) if member in self]

    def __contains__(self, element: object) -> bool:
        if element in self._removed:
            return False
        entries = self.log.in_slot(cast(Element, element))
        return all(entry.content for entry in entries) and (
            bool(entries) or element in self._stable
        )


class TwoPhaseSet(RemovalKeepingSet):
    """A set where a remove is final: later and concurrent adds of that element do not count.

    Operations: `add(element)`, `remove(element)`, `add_all(elements)`, `remove_all(elements)`. A removed element stays
    removed forever, so its name is kept forever: stability cannot free it.
    """

    TYPE: ClassVar[str] = "set_2p"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "add": Operation(
            "Add an element. Has no effect if it was ever removed.",
            element=element,
            additive=True,
        ),
        "add_all": Operation(
            "Add several elements. Has no effect for those that were ever removed.",
            elements=_ELEMENTS,
            additive=True,
        ),
        "remove": Operation(
            "Remove an element forever, present or not.", element=element, additive=True
        ),
        "remove_all": Operation(
            "Remove several elements forever, present or not.", elements=_ELEMENTS, additive=True
        ),
    }

    def arrival(self, operation: Arrived) -> Arrival:
        """Slots are (element, whether removed): an add never clears a removal."""
        members = _members(operation.args)
        if operation.name in ("add", "add_all"):
            adds = [(member, False) for member in members]
            return Arrival(adds, [(slot, None) for slot in adds])
        removals = [(member, True) for member in members]
        seen = [*removals, *((member, False) for member in members)]
        return Arrival(seen, [(slot, None) for slot in removals])

    def clear_stable(self, slot: Hashable | Everything) -> None:
        if slot is EVERYTHING:
            self._stable = set()
            self._removed = set()
        else:
            pair: Any = slot
            member, removed = pair
            (self._removed if removed else self._stable).discard(member)

    def stabilise(self, entry: Entry) -> None:
        slot: Any = entry.slot
        member, removed = slot
        if removed:
            self._stable.discard(member)
            self._removed.add(member)
        elif member not in self._removed:
            self._stable.add(member)

    def __contains__(self, element: object) -> bool:
        slots = self.log.slots
        return (
            (element in self._stable or (element, False) in slots)
            and element not in self._removed
            and (element, True) not in slots
        )

    def reentered(self, entry: Entry) -> None:
        slot: Any = entry.slot
        member, removed = slot
        element(member)
        if type(removed) is not bool:
            raise ValueError(f"{removed!r} does not say whether an element is removed")
        self.entered(entry)

    def touched(self) -> Collection[Element]:
        return {cast(tuple[Element, bool], slot)[0]: None for slot in self.log.slots}
