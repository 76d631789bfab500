"""A sequence whose concurrent insertions do not interleave, and that keeps nothing of what is gone.

The tree is Fugue's: an element hangs to the left or to the right of another one (Weidner and
Kleppmann, "The Art of the Fugue: Minimizing Interleaving in Collaborative Text Editing", 2023). The
order among those on one side of one parent is RGA's: the newest stands next to the parent (Roh et
al., "Replicated abstract data types", 2011). Fugue orders them by identity, so every element would
have to remember its place in the tree for ever; a newcomer that always goes next to its parent asks
nothing of what is stable, which therefore keeps its identity only.
"""

from bisect import bisect_right, insort
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeAlias, TypeVar

from crdtcast.datatypes.operations import Operation, exact, integer, natural
from crdtcast.datatypes.ordered import Block, CountedTree
from crdtcast.datatypes.polog import Entry, Everything
from crdtcast.datatypes.pure import Arrival, Arrived, PureOpCRDT
from crdtcast.exceptions import InvalidOperationError
from crdtcast.tags import Tag

V = TypeVar("V")

Identity: TypeAlias = tuple[str, int, int, int]
"""Of an element: origin and counter of the message that inserted it, the operation's index in the
message, the element's place in the operation.
"""

LEFT: Final = "L"
RIGHT: Final = "R"


class Place(NamedTuple):
    """Where an unstable element hangs. `parent` None: at the begin (to its right) or the end (to
    its left) of the sequence.
    """

    parent: Identity | None
    side: str
    stamp: int


class Member:
    """An element, or what is left of one: `kills` counts unstable removals that hit it. Once it is
    stable it has no `place`.
    """

    __slots__ = ("identity", "kills", "leaf", "place", "value")

    def __init__(self, identity: Identity, value: Any, place: Place | None) -> None:
        self.identity = identity
        self.value = value
        self.place = place
        self.kills = 0
        self.leaf: Block


def _age(member: Member) -> tuple[int, Identity]:
    """Siblings stand in this order, the newest next to their parent. It extends causality."""
    assert member.place is not None
    return member.place.stamp, member.identity


class _Members(CountedTree[Member]):
    """Live members have positions; dead ones stand among them."""

    __slots__ = ()

    def counts(self, item: Member) -> bool:
        return not item.kills

    def moved(self, item: Member, leaf: Block) -> None:
        item.leaf = leaf


def identity(value: Any) -> Any:
    """[origin, counter, index, number], or None for the begin or end."""
    if value is not None:
        _natural_numbers(value, 4)
        return list(value)
    return None


def run_of_identities(value: Any) -> Any:
    """A list of [origin, counter, index, first number, how many]."""
    if type(value) is not list:
        raise ValueError(f"a {type(value).__name__} is no list of runs of identities")
    for run in value:
        _natural_numbers(run, 5)
        if run[4] > _LONGEST:
            raise ValueError(f"a run of {run[4]} identities is longer than {_LONGEST}")
    return [list(run) for run in value]


_LONGEST: Final = 2**24


def _natural_numbers(value: Any, length: int) -> None:
    if (
        type(value) not in (list, tuple)
        or len(value) != length
        or type(value[0]) is not str
        or any(type(number) is not int or number < 0 for number in value[1:])
    ):
        raise ValueError(f"{ascii(value)[:60]} is no identity of {length} parts")


def side_of_parent(value: Any) -> Any:
    if value not in (LEFT, RIGHT):
        raise ValueError(f"{ascii(value)[:60]} is no side: {LEFT!r} or {RIGHT!r}")
    return value


def _values(value: Any) -> Any:
    if type(value) is not list and type(value) is not tuple:
        raise ValueError(f"a {type(value).__name__} is no list or tuple of values to insert")
    return exact(list(value))


class Positions(PureOpCRDT[V]):
    """What `SharedList` and `SharedText` share: all but what an element is and how it is shown."""

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        self.stamp = 0
        """The greatest Lamport stamp seen. Must never fall, so a map keeps it beyond a removal."""
        self._members = _Members()
        self._by_identity: dict[Identity, Member] = {}
        # Unstable children of one parent on one side, oldest first.
        self._children: dict[tuple[Identity | None, str], list[Member]] = {}

    # ---- positions ----------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Any]:
        return (member.value for member in self._members if not member.kills)

    def __getitem__(self, index: int) -> Any:
        """The element at an index, from the end if it is negative. Logarithmic."""
        return self._at(index).value

    def identity_at(self, index: int) -> Identity:
        """What names the element at an index as long as it lives, whatever is inserted before it:
        for cursors.
        """
        return self._at(index).identity

    def index_of(self, identity: Identity) -> int | None:
        """Where that element is now; None if it is not, or not any more. Logarithmic."""
        member = self._by_identity.get(identity)
        if member is None or member.kills:
            return None
        return self._members.rank(member.leaf, member.leaf.items.index(member))

    def _at(self, index: int) -> Member:
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"index {index} in a {self.TYPE} of {len(self)}")
        return self._members.at(position)

    # ---- issuing ------------------------------------------------------------------------------

    def prepare(self, name: str, *args: Any, after: Sequence[Sequence[Any]] = ()) -> list[Any]:
        """As `PureOpCRDT.prepare`; indices become identities here, and refer to the present state
        also behind other operations of the same message.
        """
        try:
            if name in ("insert", "insert_all"):
                index, given = Operation(integer, exact).check(args)
                args = (*self._hook(index), self.inserted(name, given))
                name = "place"
            elif name == "delete":
                args = (self._runs(*Operation(integer, integer, defaults=(1,)).check(args)),)
                name = "kill"
        except (ValueError, IndexError) as refusal:
            raise InvalidOperationError(f"{self.TYPE}.{name}: {refusal}") from refusal
        return super().prepare(name, *args, after=after)

    def inserted(self, name: str, given: Any) -> Any:
        """The values that `insert` or `insert_all` inserts."""
        return given

    def _hook(self, index: int) -> tuple[list[Any] | None, str]:
        """Parent and side of what is to come before the element at `index`, as in list.insert.

        Only a live element is named: of a dead one, a replica may know nothing any more.
        """
        size = len(self)
        index = max(index + size, 0) if index < 0 else min(index, size)
        if size == 0:
            return None, LEFT
        if index == 0:
            return list(self._members.at(0).identity), LEFT
        left = self._members.at(index - 1).identity
        # To the right of its left neighbour, so that what is typed forwards is one chain; if the
        # neighbour has somebody there, to the left of that one: backwards, too.
        if index < size and (left, RIGHT) in self._children:
            return list(self._members.at(index).identity), LEFT
        return list(left), RIGHT

    def _runs(self, index: int, count: int) -> list[list[Any]]:
        if count < 0:
            raise ValueError(f"a count of {count}")
        first = index + len(self) if index < 0 else index
        if first < 0 or first + count > len(self):
            raise IndexError(f"no {count} elements at index {index}: there are {len(self)}")
        return _runs(self._members.at(number).identity for number in range(first, first + count))

    def permit(self, name: str, args: Sequence[Any], after: Sequence[Sequence[Any]]) -> None:
        if name == "place" and args[0] is not None and self.index_of(tuple(args[0])) is None:
            raise InvalidOperationError(f"{self.TYPE}.place: no element {args[0]} is here")

    def ship(self, name: str, args: list[Any], after: Sequence[Sequence[Any]]) -> list[Any]:
        return [self.stamp + 1]

    # ---- arriving -----------------------------------------------------------------------------

    def arrival(self, operation: Arrived) -> Arrival:
        if operation.name == "reset":
            return Arrival(leaves=self._kills_of_all(operation.tag, operation.index))
        if operation.name == "kill":
            hit = (
                (origin, counter, index, number)
                for origin, counter, index, first, count in operation.args[0]
                for number in range(first, first + count)
            )
            return Arrival(
                leaves=[(("x", *name), None) for name in hit if name in self._by_identity]
            )
        parent, side, values, stamp = operation.args
        origin, counter = operation.tag.dot
        leaves: list[tuple[Hashable, Any]] = []
        for number, value in enumerate(values):
            name = [origin, counter, operation.index, number]
            leaves.append((tuple(name), [parent, side, stamp, value]))
            parent, side = name, RIGHT
        return Arrival(leaves=leaves)

    def _kills_of_all(self, tag: Tag, index: int) -> list[tuple[Hashable, Any]]:
        seen: list[tuple[Hashable, Any]] = []
        for member in self._members:
            origin, counter, within, _ = member.identity
            before = (
                within < index
                if (origin, counter) == tag.dot
                else (member.place is None or tag.past.get(origin, 0) >= counter)
            )
            if before:
                seen.append((("x", *member.identity), None))
        return seen

    def clear_stable(self, slot: Hashable | Everything) -> None:
        """Nothing: removals name what they remove."""

    def forget(self, tag: Tag, index: int = 0) -> None:
        for slot, content in self._kills_of_all(tag, index):
            entry = Entry(tag, index, slot, content)
            self.log.add(entry)
            self.entered(entry)

    def entered(self, entry: Entry) -> None:
        name: Any = entry.slot
        if len(name) == 5:
            self._kill(self._by_identity[name[1:]])
            return
        parent, side, stamp, value = entry.content
        self.stamp = max(self.stamp, stamp)
        above = None if parent is None else tuple(parent)
        member = Member(name, value, Place(above, side, stamp))
        self._members.insert(*self._where(member), member)
        self._by_identity[name] = member
        self._adopt(member)

    def _where(self, new: Member) -> tuple[Block, int]:
        """Leaf and offset of a newcomer: beyond all that hangs from siblings that are newer."""
        assert new.place is not None
        parent, side, _ = new.place
        siblings = self._children.get((parent, side), [])
        younger = bisect_right(siblings, _age(new), key=_age)
        if younger < len(siblings):
            neighbour = self._outermost(siblings[younger], side)
        elif parent in self._by_identity:
            neighbour = self._by_identity[parent]
        else:  # at an end; or in a copy of a part of the history, which may lack the parent
            first, last = self._members.ends()
            return (first, 0) if side == RIGHT else (last, len(last.items))
        leaf = neighbour.leaf
        return leaf, leaf.items.index(neighbour) + (side == RIGHT)

    def _outermost(self, member: Member, side: str) -> Member:
        """The last in a direction of all that hangs from `member`, itself included."""
        while children := self._children.get((member.identity, side)):
            member = children[0]
        return member

    def _adopt(self, member: Member) -> None:
        assert member.place is not None
        parent, side, _ = member.place
        insort(self._children.setdefault((parent, side), []), member, key=_age)

    def _kill(self, member: Member) -> None:
        if not member.kills:
            self._members.reweigh(member.leaf, -1)
        member.kills += 1

    # ---- stability ----------------------------------------------------------------------------

    def stabilise(self, entry: Entry) -> None:
        name: Any = entry.slot
        if len(name) == 4:
            self._settle(self._by_identity[name])
        elif (member := self._by_identity.get(name[1:])) is not None:
            if member.kills > 1:
                member.kills -= 1
            else:
                self._members.remove(member.leaf, member.leaf.items.index(member))
                del self._by_identity[member.identity]

    def _settle(self, member: Member) -> None:
        """A stable element needs no place: whoever comes later is newer, so goes next to their
        parent.
        """
        assert member.place is not None
        parent, side, _ = member.place
        siblings = self._children[parent, side]
        siblings.remove(member)
        if not siblings:
            del self._children[parent, side]
        member.place = None

    @property
    def settled(self) -> bool:
        """Whether nothing is left but the stamp."""
        return not self._by_identity

    @property
    def blank(self) -> bool:
        return not len(self)

    # ---- again elsewhere ----------------------------------------------------------------------

    @classmethod
    def rebase(cls, operation: list[Any], base: Self, theirs: Self) -> list[list[Any]]:
        """An insertion goes next to what it stood next to, as far as that is still there; a removal
        removes what is still there of what it named. `reset` yields to any change.
        """
        name, *args = operation
        if name == "kill":
            alive = [each for each in _identities(args[0]) if theirs.index_of(each) is not None]
            return [["kill", _runs(alive)]] if alive else []
        if name != "place":
            return super().rebase(operation, base, theirs)
        parent, side, values, _ = args
        at = None if parent is None else base.index_of(tuple(parent))
        virtual = 0 if side == RIGHT else len(base)
        index = virtual if at is None else at + (side == RIGHT)
        hook = theirs._hook(theirs._counterpart(base, index))
        return [theirs.prepare("place", *hook, values)]

    def _counterpart(self, base: Self, index: int) -> int:
        """The index here of what is at `index` there: behind the last element before it that both
        have, and behind what was issued again since, known by its values.
        """
        since: list[Any] = []
        here = 0
        for number in range(index - 1, -1, -1):
            member = base._members.at(number)
            found = self.index_of(member.identity)
            if found is not None:
                here = found + 1
                break
            since.append(member.value)
        for value in reversed(since):
            if here < len(self) and self[here] == value:
                here += 1
        return here

    # ---- snapshots ----------------------------------------------------------------------------

    def dump_stable(self) -> Any:
        """The stamp, and all members in order as [origin, counter, index, number, values]: what
        hangs together in one message is one run. The log has the places of the unstable ones.
        """
        runs: list[list[Any]] = []
        for member in self._members:
            origin, counter, index, number = member.identity
            if runs:
                *head, first, values = runs[-1]
                if head == [origin, counter, index] and number == first + len(values):
                    values.append(member.value)
                    continue
            runs.append([origin, counter, index, number, [member.value]])
        return [self.stamp, runs]

    def load_stable(self, dumped: Any, version: int) -> None:
        self.stamp, runs = dumped
        for origin, counter, index, first, values in runs:
            for number, value in enumerate(values, first):
                member = Member((origin, counter, index, number), value, None)
                _, last = self._members.ends()
                self._members.insert(last, len(last.items), member)
                self._by_identity[member.identity] = member

    def reentered(self, entry: Entry) -> None:
        name: Any = entry.slot
        if len(name) == 5:
            if (killed := self._by_identity.get(name[1:])) is not None:
                self._kill(killed)
            return
        member = self._by_identity[name]
        parent, side, stamp, _ = entry.content
        above = None if parent is None else tuple(parent)
        member.place = Place(above, side, stamp)
        self._adopt(member)


def _identities(runs: Iterable[Sequence[Any]]) -> Iterator[Identity]:
    for origin, counter, index, first, count in runs:
        for number in range(first, first + count):
            yield origin, counter, index, number


def _runs(identities: Iterable[Identity]) -> list[list[Any]]:
    runs: list[list[Any]] = []
    for origin, counter, index, number in identities:
        if runs and runs[-1][:3] == [origin, counter, index] and number == sum(runs[-1][3:]):
            runs[-1][4] += 1
        else:
            runs.append([origin, counter, index, number, 1])
    return runs


class SharedList(Positions[list[Any]]):
    """A list that many edit at once: what somebody inserts in one go stays together, and an element
    goes when anybody who saw it deletes it.

    Operations: `insert(index, value)`, `insert_all(index, values)` as list.insert takes indices,
    `delete(index, count=1)`, `reset()` deletes all that it has seen. By identity: `place(parent,
    "L" or "R", values)`, `kill(runs)`. Values are anything that arrives unchanged (`exact`).
    Insertions ship a Lamport stamp; an element's identity is its message's dot.
    """

    TYPE: ClassVar[str] = "sequence"
    OPERATIONS = {  # noqa: RUF012
        "insert": Operation(integer, exact, sent_as="place"),
        "insert_all": Operation(integer, _values, sent_as="place"),
        "delete": Operation(integer, integer, defaults=(1,), sent_as="kill"),
        "place": Operation(identity, side_of_parent, _values, ships=(natural,)),
        "kill": Operation(run_of_identities),
        "reset": Operation(),
    }

    def inserted(self, name: str, given: Any) -> Any:
        return [given] if name == "insert" else given

    @property
    def value(self) -> list[Any]:
        return [exact(item) for item in self]
