"""What of a document decides whether it can get an update, beyond clocks.

pycrdt 0.14 loses clocks, without a word, when an edit cuts a character of two UTF-16 units; and types that are nested
too deep end the process when they are deleted or read. So such updates are refused. That costs time of the order of the
update: what the document has is noted as it arrives. What was deleted since is looked up in the whole document, which
happens only for updates that would be refused otherwise.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from crdtcast.adapters.pycrdt.update import STRING, TYPE, Id, Struct, Update

MAX_NESTING: Final = 100
"""Most types inside of one another."""

Parent: TypeAlias = str | Id
"""The name of a root, or the id of the item that makes a type."""


class Tree:
    """Which part each struct of a whole document is in."""

    def __init__(self, document: Update) -> None:
        self.document = document
        self._starts = {
            client: [each.clock for each in structs] for client, structs in document.structs.items()
        }
        self._places: dict[Id, tuple[Parent | None, bool]] = {}
        self._outside: dict[Id, Id] = {}

    def find(self, wanted: Id) -> Struct | None:
        """The struct with that id in it."""
        starts = self._starts.get(wanted.client)
        at = bisect_right(starts, wanted.clock) - 1 if starts else -1
        if at < 0:
            return None
        found = self.document.structs[wanted.client][at]
        return found if wanted.clock < found.end else None

    def parent(self, client: int, each: Struct) -> Parent | None:
        """What it is in; None if that is unknown, as for a hole."""
        return self.place(client, each)[0]

    def place(self, client: int, each: Struct) -> tuple[Parent | None, bool]:
        """What it is in, and whether it stands there under a key of a map."""
        way: list[Id] = []
        here = Id(client, each.clock)
        while True:
            if here in self._places:
                place = self._places[here]
                break
            way.append(here)
            beside = each.origin or each.right_origin
            if each.parent is not None or beside is None:
                place = each.parent, each.key is not None
                break
            found = self.find(beside)
            if found is None:
                place = None, False
                self._outside[here] = beside
                break
            each, here = found, Id(beside.client, found.clock)
        outside = self._outside.get(here)
        for passed in way:
            self._places[passed] = place
            if outside is not None:
                self._outside[passed] = outside
        return place

    def outside(self, client: int, each: Struct) -> Id | None:
        """The item outside of this update that is in the same part; None if it says itself what it is in."""
        self.place(client, each)
        return self._outside.get(Id(client, each.clock))


class Structure:
    """What is noted of one document."""

    def __init__(self) -> None:
        self._depths: dict[Id, int] = {}
        """The types within it, and how many are around each at most, with itself."""
        self._pairs: dict[int, set[int]] = {}
        """Of each client, the clocks of the second units of characters that have two."""
        self._deepest: int = 0

    @classmethod
    def of(cls, document: Update) -> "Structure":
        """That of a whole document."""
        structure = cls()
        structure._note_all(document)
        return structure

    def _note_all(self, document: Update) -> None:
        """Start again from the whole document."""
        self._depths, self._pairs, self._deepest = {}, {}, 0
        self.add(document, lambda client: 0)

    def add(self, update: Update, known: Callable[[int], int]) -> None:
        """The document gets this update. known: of a client, the clocks that it has without it."""
        depths = self._depths_in(Tree(update), known, None)
        self._depths.update(depths)
        self._deepest = max([self._deepest, *depths.values()])
        for client, clocks in _pairs_in(update, known).items():
            self._pairs.setdefault(client, set()).update(clocks)

    def refusal(
        self, update: Update, known: Callable[[int], int], document: Callable[[], Update]
    ) -> str | None:
        """Why the document cannot get the update; None if it can.

        known: of a client, the clocks that it has.
        document: makes the whole document.
        """
        if self._doubt(update, known, None) is None:
            return None
        whole = document()
        self._note_all(whole)
        return self._doubt(update, known, Tree(whole))

    def _doubt(self, update: Update, known: Callable[[int], int], whole: Tree | None) -> str | None:
        """Why the document may not get the update, by what is noted; with the whole document, why it cannot."""
        depths = self._depths_in(Tree(update), known, whole)
        if depths and max(depths.values()) > MAX_NESTING:
            return f"it nests types deeper than {MAX_NESTING} levels"
        new = _pairs_in(update, known)

        def cuts(client: int, clock: int) -> bool:
            return clock in new.get(client, ()) or clock in self._pairs.get(client, ())

        for client, each in _new_structs(update, known):
            origin, right_origin = each.origin, each.right_origin
            if (
                (origin is not None and cuts(origin.client, origin.clock + 1))
                or (right_origin is not None and cuts(*right_origin))
                or (each.clock < known(client) and cuts(client, known(client)))
            ):
                return _CUTS
        for client, ranges in update.deletions.items():
            if any(cuts(client, begin) or cuts(client, end) for begin, end in ranges):
                return _CUTS
        return None

    def _depths_in(
        self, tree: Tree, known: Callable[[int], int], whole: Tree | None
    ) -> dict[Id, int]:
        """The depths of the new types of an update; without the whole document perhaps more."""
        found: dict[Id, int] = {}
        for client, each in _new_structs(tree.document, known):
            if each.kind == TYPE:
                self._find_depth(client, each, tree, whole, found)
        return found

    def _find_depth(
        self, client: int, each: Struct, tree: Tree, whole: Tree | None, found: dict[Id, int]
    ) -> None:
        around: list[Id] = []
        while True:
            here = Id(client, each.clock)
            if here in found:
                depth = found[here]
                break
            around.append(here)
            parent = tree.parent(client, each)
            if parent is None:
                depth = self._depth_beside(tree.outside(client, each), whole)
                break
            if isinstance(parent, str):
                depth = 0
                break
            outside = self._depths.get(parent)
            inside = tree.find(parent)
            if outside is not None or inside is None or len(around) > MAX_NESTING:
                depth = outside or 0
                break
            client, each = parent.client, inside
        for one in reversed(around):
            depth += 1
            found[one] = depth

    def _depth_beside(self, beside: Id | None, whole: Tree | None) -> int:
        """How many types are around an item of the document, or more."""
        if beside is None:
            return 0
        if beside in self._depths:
            return self._depths[beside] - 1
        if whole is None:
            return self._deepest
        found = whole.find(beside)
        parent = None if found is None else whole.parent(beside.client, found)
        return self._depths.get(parent, 0) if isinstance(parent, Id) else 0


_CUTS: Final = "it cuts a character of two UTF-16 units, of which pycrdt would lose a part"


def _new_structs(update: Update, known: Callable[[int], int]) -> Iterator[tuple[int, Struct]]:
    """The structs that bring something, with their clients."""
    for client, structs in update.structs.items():
        has = known(client)
        for each in structs:
            if each.end > has:
                yield client, each


def _pairs_in(update: Update, known: Callable[[int], int]) -> dict[int, set[int]]:
    """Of each client, the clocks of the second units of new characters that have two."""
    pairs: dict[int, set[int]] = {}
    for client, each in _new_structs(update, known):
        if each.kind != STRING:
            continue
        text = update.text(each)
        if len(text) == each.length:
            continue
        clock = each.clock
        noted = pairs.setdefault(client, set())
        for character in text:
            clock += 1
            if character > "\uffff":
                noted.add(clock)
                clock += 1
    return pairs
