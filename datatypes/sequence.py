"""A sequence whose concurrent insertions do not interleave, and that keeps nothing of removed elements.

The tree is Fugue's: an element hangs to the left or to the right of another one (Weidner and Kleppmann, "The Art of the
Fugue: Minimizing Interleaving in Collaborative Text Editing", 2023). The order of the elements on one side of one
parent is RGA's: the newest stands next to the parent (Roh et al., "Replicated abstract data types", 2011). Fugue orders
them by identity, so every element would have to keep its place in the tree forever. A new element that always goes next
to its parent needs nothing of stable ones, so these keep only their identity.

The value of an element is a register in that place: a replacement and a removal clear the values that they have seen,
and an element without a value is gone.
"""

from bisect import bisect_right, insort
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from operator import index as as_index
from typing import Any, ClassVar, Final, Generic, Literal, Self, TypeVar

from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes.canonical import canonical
from crdtcast.datatypes.elements import GONE, ElementIndex, Elements, Place, SequenceElement, age
from crdtcast.datatypes.identities import (
    Identity,
    apart,
    identity,
    identity_of_one,
    in_runs,
    run_of_identities,
    runs_of,
)
from crdtcast.datatypes.lamport import Stamps
from crdtcast.datatypes.operations import (
    Operation,
    Plain,
    PlainLike,
    Several,
    exact,
    integer,
    natural,
)
from crdtcast.datatypes.ordered import Block
from crdtcast.datatypes.polog import Entry, Everything
from crdtcast.datatypes.previous_life import Former
from crdtcast.datatypes.pure import SLIGHT, Arrival, Arrived, PureOpCRDT
from crdtcast.exceptions import InvalidOperationError
from crdtcast.short_repr import shown

V = TypeVar("V")
T = TypeVar("T")

LEFT: Final = "L"
RIGHT: Final = "R"

# Slots: an insertion uses that of the element's identity; replacements and removals add one of these prefixes.
WRITTEN: Final = "w"
KILLED: Final = "x"


MOST_WALKED: Final = 10_000
"""Most elements at home that are searched for one that the group has, too."""

_STAMPED: Final = frozenset({"place", "write"})
"""Operations whose stamps count for later ones."""


def side_of_parent(value: Literal["L", "R"]) -> Literal["L", "R"]:
    """`L` or `R`."""
    if value not in (LEFT, RIGHT):
        raise ValueError(f"{shown(value)} is not a side: give {LEFT!r} or {RIGHT!r}")
    return value


def _values(value: Several[PlainLike]) -> Plain:
    """Values from a list or tuple."""
    kind: type = type(value)
    if kind is not list and kind is not tuple:
        raise ValueError(f"a {kind.__name__} is not a list or tuple of values to insert")
    return exact(list(value))


_AT: Final = Operation(index=integer, value=exact)
_FROM: Final = Operation(index=integer, count=integer, defaults=(1,))
"""The arguments from callers: an index and a value, an index and a count."""


class Positions(PureOpCRDT[V], Generic[V, T]):
    """The common part of `SharedList` and `SharedText`: everything except what an element is and how it is shown."""

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        self._stamps = Stamps()
        self._members = ElementIndex()
        self._elements = Elements()
        # Unstable children of one parent on one side, oldest first.
        self._children: dict[tuple[Identity | None, str], list[SequenceElement]] = {}
        # The elements that the last resetting message has inserted or replaced after its reset.
        self._since_reset: dict[Identity, None] = {}

    # ---- positions ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[T]:
        return (member.value for member in self._members.counted())

    def __getitem__(self, index: int) -> T:
        """The element at an index, from the end if it is negative. Logarithmic."""
        found: T = self._at(index).value
        return found

    def identity_at(self, index: int) -> Identity:
        """The identity of the element at an index, which stays the same while it lives, whatever is inserted before it.
        For cursors.
        """
        return self._at(index).identity

    def index_of(self, identity: Identity) -> int | None:
        """The present index of that element; None if it is absent or gone. Logarithmic."""
        member = self._elements.get(identity)
        if member is None or member.value is GONE:
            return None
        return self._members.rank(member.leaf, member.leaf.items.index(member))

    def _at(self, index: int) -> SequenceElement:
        position = as_index(index)
        position += len(self) if position < 0 else 0
        if not 0 <= position < len(self):
            raise IndexError(f"index {shown(index)} is outside a {self.TYPE} of {len(self)}")
        return self._members.at(position)

    # ---- issuing ------------------------------------------------------------------------------

    def prepare(self, name: str, *args: Any, after: Sequence[Sequence[Any]] = ()) -> list[Any]:
        """As `PureOpCRDT.prepare`. Turns indices into identities; indices refer to the present state, also after other
        operations of the same message.
        """
        try:
            if name in ("insert", "insert_all"):
                index, given = _AT.check(args)
                args = (*self._hook(index), self.inserted(name, given))
                name = "place"
            elif name == "delete":
                args = (self._runs(*_FROM.check(args)),)
                name = "kill"
            elif name == "replace":
                index, given = _AT.check(args)
                args = (list(self.identity_at(index)), given)
                name = "write"
        except (ValueError, IndexError) as refusal:
            raise InvalidOperationError(f"{self.TYPE}.{name}: {refusal}") from refusal
        return super().prepare(name, *args, after=after)

    def inserted(self, name: str, given: Any) -> Any:
        """The values of an `insert` or `insert_all`."""
        return given

    def _hook(self, index: int) -> tuple[list[Any] | None, str]:
        """Parent and side of an element to insert before the one at `index`, as in list.insert.

        The parent is always a live element, because other replicas may have dropped a dead one.
        """
        size = len(self)
        index = max(index + size, 0) if index < 0 else min(index, size)
        if size == 0:
            return None, LEFT
        if index == 0:
            return list(self._members.at(0).identity), LEFT
        left = self._members.at(index - 1).identity
        # To the right of the left neighbour, so that forward typing makes one chain. If that has a child there, to the
        # left of that child: so backward typing makes a chain, too.
        if index < size and (left, RIGHT) in self._children:
            return list(self._members.at(index).identity), LEFT
        return list(left), RIGHT

    def _runs(self, index: int, count: int) -> list[list[Any]]:
        if count < 0:
            raise ValueError(f"invalid count {count}: give 1 or more")
        first = index + len(self) if index < 0 else index
        if first < 0 or first + count > len(self):
            raise IndexError(
                f"cannot delete {count} elements at index {index}: there are {len(self)}"
            )
        return runs_of(self._members.at(number).identity for number in range(first, first + count))

    def permit(self, name: str, args: Sequence[Any], after: Sequence[Sequence[Any]]) -> None:
        if name not in ("place", "write") or args[0] is None:
            return
        if self.index_of(tuple(args[0])) is None:
            raise InvalidOperationError(
                f"{self.TYPE}.{name}: this replica has no element {args[0]}"
            )

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        """Drops replacements of elements that a later operation replaces or deletes, and everything before a reset."""
        written = {tuple(operation[1]) for operation in operations if operation[0] == "write"}
        overwritten: set[Any] = set()
        kept: list[list[Any]] = []
        for operation in reversed(operations):
            name, *args = operation
            if name == "write":
                if tuple(args[0]) in overwritten:
                    continue
                overwritten.add(tuple(args[0]))
            elif name == "kill" and written:
                overwritten.update(each for each in written if in_runs(each, args[0]))
            kept.append(operation)
            if name == "reset":
                break
        return kept[::-1]

    # ---- arriving -----------------------------------------------------------------------------

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "reset":
            return _removal(
                self._seen(self._counted(operation.tag), operation.tag, operation.index)
            )
        if operation.name == "kill":
            named = (
                each for run in apart(operation.args[0]) for each in self._elements.within(run)
            )
            return _removal(self._seen(named, operation.tag, operation.index))
        target, *rest = operation.args
        stamp = self._stamps.of(operation.tag)
        seen = self._names_seen(target, operation)
        if operation.name == "write":
            slot = (WRITTEN, *target)
            return Arrival((slot,), ((slot, [*rest, stamp]),)) if seen else Arrival()
        parent = target if seen else None
        side, values = rest
        origin, counter = operation.tag.dot
        leaves: list[tuple[Hashable, Any]] = []
        for number, value in enumerate(values):
            name = [origin, counter, operation.index, number]
            leaves.append((tuple(name), [parent, side, stamp, value]))
            parent, side = name, RIGHT
        return Arrival(leaves=leaves)

    def effect(
        self, operation: Sequence[Any], tag: Tag, index: int = 0, version: int | None = None
    ) -> None:
        super().effect(operation, tag, index, version)
        if operation[0] == "reset":
            self._cleared_by, self._since_reset = tag.dot, {}
        elif operation[0] in _STAMPED:
            self._stamps.count(tag)
            if self._cleared_by == tag.dot:
                self._since_reset.update(dict.fromkeys(_touched_by(operation, tag, index)))

    def _counted(self, tag: Tag) -> Iterable[SequenceElement]:
        """The elements that a reset may remove. The second reset of a message: only what that has added since the
        first.
        """
        if self._cleared_by != tag.dot:
            return self._members.counted()
        return filter(None, map(self._elements.get, self._since_reset))

    def _names_seen(self, identity: Any, operation: Arrived) -> bool:
        """Whether the element exists, and was inserted before the operation."""
        member = None if identity is None else self._elements.get(tuple(identity))
        return member is not None and _is_before(member, operation.tag, operation.index)

    def _seen(self, members: Iterable[SequenceElement], tag: Tag, index: int) -> list[Identity]:
        """Of these, the live elements inserted before operation `index` of the message tagged `tag`.

        A dead one needs no further removal: it is dropped once its removal is stable, since nothing that arrives later
        has seen it alive.
        """
        return [
            member.identity
            for member in members
            if member.value is not GONE and _is_before(member, tag, index)
        ]

    def clear_stable(self, slot: Hashable | Everything) -> None:
        """Keep only those values of an element that the arrival has not seen."""
        written: Any = slot
        self._show(self._elements[written[1:]], _worth(self.log.in_slot(slot)))

    def forget(self, tag: Tag, index: int = 0) -> None:
        new = Arrived("forget", (), tag, index)
        clears, leaves = _removal(self._seen(self._counted(tag), tag, index))
        self._cleared_by, self._since_reset = tag.dot, {}
        assert not isinstance(clears, Everything)
        for slot in clears:
            self._clear_slot(slot, new)
        for slot, content in leaves:
            entry = Entry(tag, index, slot, content)
            self.log.add(entry)
            self.entered(entry)

    def entered(self, entry: Entry) -> None:
        name: Any = entry.slot
        if name[0] == KILLED and len(name) == 5:
            self._elements[name[1:]].kills += 1
            return
        if len(name) == 5:
            self._show(self._elements[name[1:]], _worth(self.log.in_slot(name)))
            return
        parent, side, stamp, value = entry.content
        above = None if parent is None else tuple(parent)
        member = SequenceElement(name, value, Place(above, side, stamp))
        self._members.insert(*self._where(member), member)
        self._elements.add(member)
        self._adopt(member)

    def _where(self, new: SequenceElement) -> tuple[Block, int]:
        """Leaf and offset of a new element: beyond everything that hangs from newer siblings."""
        assert new.place is not None
        parent, side, _ = new.place
        siblings = self._children.get((parent, side), [])
        younger = bisect_right(siblings, age(new), key=age)
        if younger < len(siblings):
            neighbour = self._outermost(siblings[younger], side)
        elif parent is not None and parent in self._elements:
            neighbour = self._elements[parent]
        else:  # at an end, or in a copy of part of the history without the parent
            first, last = self._members.ends()
            return (first, 0) if side == RIGHT else (last, len(last.items))
        leaf = neighbour.leaf
        return leaf, leaf.items.index(neighbour) + (side == RIGHT)

    def _outermost(self, member: SequenceElement, side: str) -> SequenceElement:
        """The last element in a direction that hangs from `member`, or `member` itself."""
        while children := self._children.get((member.identity, side)):
            member = children[0]
        return member

    def _adopt(self, member: SequenceElement) -> None:
        assert member.place is not None
        parent, side, _ = member.place
        insort(self._children.setdefault((parent, side), []), member, key=age)

    def _show(self, member: SequenceElement, value: Any) -> None:
        """Set the value of an element; GONE means that it is dead."""
        came = (member.value is GONE) - (value is GONE)
        member.value = value
        if came:
            self._members.reweigh(member.leaf, came)

    # ---- stability ----------------------------------------------------------------------------

    def stabilise(self, entry: Entry) -> None:
        """A value stays as it is. A dead place is dropped with the last of the removals that hit it: an operation that
        refers to it had not seen one of them, so none can come any more.
        """
        name: Any = entry.slot
        if len(name) == 4:
            self._settle(self._elements[name])
        elif name[0] == KILLED and (member := self._elements.get(name[1:])) is not None:
            member.kills -= 1
            if not member.kills and member.value is GONE:
                self._members.remove(member.leaf, member.leaf.items.index(member))
                self._elements.remove(member)

    def stable(self, tag: Tag) -> None:
        super().stable(tag)
        self._stamps.stable(tag.dot)

    def _settle(self, member: SequenceElement) -> None:
        """A stable element needs no place: every later sibling is newer, and so goes next to their parent."""
        assert member.place is not None
        parent, side, _ = member.place
        siblings = self._children[parent, side]
        siblings.remove(member)
        if not siblings:
            del self._children[parent, side]
        member.place = None

    @property
    def untouched(self) -> bool:
        """Whether it equals a new one, which may count stamps from 0, because everything counted in this one is in the
        past of all later arrivals.
        """
        return not (self._elements or self._stamps)

    @property
    def slight(self) -> bool:
        return len(self._elements) <= SLIGHT and not self._stamps

    @property
    def blank(self) -> bool:
        return not len(self)

    # ---- issuing again ------------------------------------------------------------------------

    @classmethod
    def rebase(cls, operation: list[Any], base: Self, theirs: Self) -> list[list[Any]]:
        """An insertion goes next to its old neighbour, if that still exists. A removal removes those of its elements
        that still exist. A replacement yields if the element was replaced or removed since. `reset` yields to any
        change.
        """
        if operation[0] == "reset":
            return super().rebase(operation, base, theirs)
        return cls.rebase_behind(operation, base, theirs, base, theirs, Former.unknown())

    @classmethod
    def rebase_behind(
        cls,
        operation: list[Any],
        base: Self,
        theirs: Self,
        home: Self,
        present: Self,
        former: Former[Self],
    ) -> list[list[Any]]:
        name, *args = operation
        if name == "place":
            return [present._place_again(args, replace(former, home=home))]
        if name == "kill":
            found = present._runs_again(args[0], former)
            return _kill(now for was, now in found if _is_equal(home._elements.get(was), now))
        if name == "write":
            target = tuple(args[0])
            before, mine = (each._elements.get(target) for each in (base, home))
            now, _ = present._known_again(target, former)
            since, _ = theirs._known_again(target, former)
            if _is_equal(mine, now) and (before is None or _is_equal(before, since)):
                assert now is not None
                return [["write", list(now.identity), args[1]]]
            return []
        return super().rebase_behind(operation, base, theirs, home, present, former)

    @classmethod
    def rebase_blind(
        cls, operation: list[Any], present: Self, former: Former[Self]
    ) -> list[list[Any]]:
        """As `rebase_behind`, but it is unknown whether a replacement had been seen: a removal spares elements that
        show one. A replacement yields, except that of an own element which was sent again and which no other replica
        has replaced.
        """
        name, *args = operation
        if name == "place":
            return [present._place_again(args, former)]
        if name == "kill":
            found = present._runs_again(args[0], former)
            return _kill(now for was, now in found if present._is_as_it_was(now, was))
        if name == "write":
            now, is_copy = present._known_again(tuple(args[0]), former)
            if (
                now is not None
                and is_copy
                and now.place is not None  # a stable replacement no longer shows
                and now.value is not GONE
                and present._is_as_it_was(now, tuple(args[0]))
            ):
                return [["write", list(now.identity), args[1]]]
        return super().rebase_blind(operation, present, former)

    def _is_as_it_was(self, member: SequenceElement, was: Identity) -> bool:
        """Whether no replacement by another replica shows: since the element was sent again, or ever, if it was not."""
        own = None if member.identity == was else member.identity[0]
        replacements = self.log.in_slot((WRITTEN, *member.identity))
        return all(entry.tag.dot.origin == own for entry in replacements)

    def _runs_again(
        self, runs: Iterable[list[Any]], former: Former[Self]
    ) -> Iterator[tuple[Identity, SequenceElement]]:
        """The elements of runs, also under the identities of their copies; each with the identity that named it."""
        for run in runs:
            yield from ((each.identity, each) for each in self._elements.within(run))
            origin, counter, index, first, count = run
            again = former.renamed(Dot(origin, counter), index)
            if again is not None:
                for each in self._elements.within([*again[0], again[1], first, count]):
                    yield (origin, counter, index, each.identity[3]), each

    def _known_again(
        self, identity: Identity, former: Former[Self]
    ) -> tuple[SequenceElement | None, bool]:
        """The element, also under the identity of its copy; and whether it is a copy."""
        member = self._elements.get(identity)
        if member is not None:
            return member, False
        origin, counter, index, number = identity
        again = former.renamed(Dot(origin, counter), index)
        if again is None:
            return None, False
        return self._elements.get((*again[0], again[1], number)), True

    def _place_again(self, args: Sequence[Any], former: Former[Self]) -> list[Any]:
        """An insertion at its anchor, or else next to the nearest element on that side of its place."""
        parent, side, values = args
        if parent is not None:
            member, _ = self._known_again(tuple(parent), former)
            if member is not None and member.value is not GONE:
                parent = list(member.identity)
            else:
                index = len(self) if member is None else self._before(member)
                index = self._place_at_home(tuple(parent), former, index)
                parent = self._neighbour(index, side)
        return ["place", parent, side, values]

    def _neighbour(self, index: int, side: str) -> list[Any] | None:
        """The parent on that side for an insertion before the element at an index; None: beginning or end."""
        if side == RIGHT:
            return list(self._members.at(index - 1).identity) if index else None
        return list(self._members.at(index).identity) if index < len(self) else None

    def _before(self, member: SequenceElement) -> int:
        """The number of live elements before this one, which may be dead."""
        return self._members.rank(member.leaf, member.leaf.items.index(member))

    def _place_at_home(self, parent: Identity, former: Former[Self], otherwise: int) -> int:
        """The index, in this sequence, for what was inserted at home: after the nearest element before it that is alive
        in this one, so that own elements keep their order.
        """
        home = former.home
        if home is None:
            return otherwise
        inserted = home._elements.get((*former.dot, former.index, 0)) or home._elements.get(parent)
        if inserted is None:
            return otherwise
        walk = home._members.before(inserted.leaf, inserted.leaf.items.index(inserted))
        for each in islice(walk, MOST_WALKED):
            member, _ = self._known_again(each.identity, former)
            if member is not None and member.value is not GONE:
                return self._before(member) + 1
        return 0 if next(walk, None) is None else otherwise

    # ---- snapshots ----------------------------------------------------------------------------

    def dump_stable(self) -> Any:
        """The stamps, and all members in order as [origin, counter, index, number, values]: neighbours from one
        operation are one run. A dead member is a separate run, with None for its values. The log has the places of
        unstable members.
        """
        runs: list[list[Any]] = []
        for member in self._members:
            origin, counter, index, number = member.identity
            if member.value is GONE:
                runs.append([*member.identity, None])
                continue
            if runs and runs[-1][4] is not None:
                *head, first, values = runs[-1]
                if head == [origin, counter, index] and number == first + len(values):
                    values.append(member.value)
                    continue
            runs.append([origin, counter, index, number, [member.value]])
        return [self._stamps.dump(), runs]

    def load_stable(self, dumped: Any, version: int) -> None:
        stamps, runs = dumped
        self._stamps.load(stamps)
        for *first, values in runs:
            origin, counter, index, number = identity_of_one(first)
            worth: Any = [GONE] if values is None else exact(values)
            for at, value in enumerate(worth, number):
                member = SequenceElement((origin, counter, index, at), value, None)
                self._elements.add(member)
                _, last = self._members.ends()
                self._members.insert(last, len(last.items), member)

    def reentered(self, entry: Entry) -> None:
        name: Any = entry.slot
        member = self._elements[name[-4:]]
        if name[0] == KILLED and len(name) == 5:
            member.kills += 1
        elif name[0] == WRITTEN and len(name) == 5:
            value, stamp = entry.content
            exact(value)
            natural(stamp)
        elif len(name) == 4:
            parent, side, stamp, _ = entry.content
            above = None if identity(parent) is None else tuple(parent)
            member.place = Place(above, side_of_parent(side), natural(stamp))
            upper = None if above is None else self._elements.get(above)
            if upper is not None and upper.place is not None and age(upper) >= age(member):
                raise ValueError(f"{list(name)} is attached to a later element")
            self._adopt(member)
        else:
            raise ValueError(f"{shown(name)} is not the name of an element")


def _is_before(member: SequenceElement, tag: Tag, index: int) -> bool:
    """Whether a member was inserted before operation `index` of the message tagged `tag`. Otherwise the operation
    cannot have seen it.
    """
    origin, counter, at, _ = member.identity
    if (origin, counter) == tag.dot:
        return at < index
    return member.place is None or tag.past.get(origin, 0) >= counter


def _is_equal(one: SequenceElement | None, other: SequenceElement | None) -> bool:
    """Whether both are alive, and have equal values."""
    return (
        one is not None
        and other is not None
        and GONE not in (one.value, other.value)
        and canonical(one.value) == canonical(other.value)
    )


def _kill(members: Iterable[SequenceElement]) -> list[list[Any]]:
    """The operation that removes the live ones among them."""
    alive = [each.identity for each in members if each.value is not GONE]
    return [["kill", runs_of(alive)]] if alive else []


def _touched_by(operation: Sequence[Any], tag: Tag, index: int) -> Iterator[Identity]:
    """The elements that an operation inserts or replaces."""
    name, *args = operation
    if name == "write":
        yield tuple(args[0])
    else:
        yield from ((*tag.dot, index, number) for number in range(len(args[2])))


def _removal(identities: Iterable[Identity]) -> Arrival:
    names = dict.fromkeys(identities)
    return Arrival(
        [(WRITTEN, *name) for name in names], [((KILLED, *name), None) for name in names]
    )


def _worth(written: Collection[Entry]) -> Any:
    """The replacement with the greatest stamp."""
    return max(written, key=_recency).content[0] if written else GONE


def _recency(entry: Entry) -> tuple[Any, ...]:
    return entry.content[1], entry.tag.dot, entry.index


class SharedList(Positions[list[Plain], Plain]):
    """A list that many replicas edit at once: values inserted together stay together, and any replica that has seen an
    element can delete it for all.

    Operations: `insert(index, value)`, `insert_all(index, values)` with indices as in list.insert, `replace(index,
    value)`, `delete(index, count=1)`; `reset()` deletes all that it has seen. By identity: `place(parent, side,
    values)`, `write(identity, value)`, `kill(runs)`. Values are anything that arrives unchanged (`exact`). A
    replacement survives a deletion that has not seen it. Of several, the one with the greatest Lamport stamp is shown,
    which every replica computes itself (crdtcast.datatypes.lamport). An element's identity is the dot of its message,
    the operation's index in it, and the element's number in that.
    """

    TYPE: ClassVar[str] = "sequence"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "insert": Operation(
            "Insert a value before the element at an index, as list.insert takes indices.",
            index=integer,
            value=exact,
            sent_as="place",
        ),
        "insert_all": Operation(
            "Insert several values before the element at an index. They stay together.",
            index=integer,
            values=_values,
            sent_as="place",
        ),
        "replace": Operation(
            "Give the element at an index another value. This survives a concurrent deletion.",
            index=integer,
            value=exact,
            sent_as="write",
        ),
        "delete": Operation(
            "Delete the element at an index, or `count` of them.",
            index=integer,
            count=integer,
            defaults=(1,),
            sent_as="kill",
        ),
        "place": Operation(
            "Insert values to the left or right of an element, or (None) at an end.",
            parent=identity,
            side=side_of_parent,
            values=_values,
        ),
        "write": Operation(
            "Give an element, by its identity, another value.",
            identity=identity_of_one,
            value=exact,
        ),
        "kill": Operation("Delete elements by their identities.", runs=run_of_identities),
        "reset": Operation("Delete all elements seen. Concurrent insertions survive."),
    }

    def inserted(self, name: str, given: Any) -> Any:
        return [given] if name == "insert" else given

    @property
    def value(self) -> list[Plain]:
        return [exact(item) for item in self]
