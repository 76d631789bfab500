"""`YDoc`: a Yjs document as a replicated type.

A message carries an update of Yjs, and the state is a document of pycrdt that only such messages change. Causal
broadcast gives what plain pycrdt lacks: an update arrives after all that it needs, so none is kept pending, where
pycrdt 0.14 can lose it.

The document is the union of the stable part and the log: the log only says which clocks of which clients an unstable
message has brought (`causal_state`). So a deletion, which removes what it has seen, removes the same items at every
replica. They stay as tombstones of a few bytes: an old copy of the document that comes back later must not bring them
back.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Self
from weakref import WeakSet

from pycrdt import Doc, merge_updates

from crdtcast.adapters.pycrdt.causal_state import CausalState
from crdtcast.adapters.pycrdt.content import (
    Content,
    RootKind,
    content_of,
    digest_of_document,
    read_root,
    sorted_document,
)
from crdtcast.adapters.pycrdt.errors import MissingUpdatesError
from crdtcast.adapters.pycrdt.follower import Applied, Follower
from crdtcast.adapters.pycrdt.scratch import Scratch
from crdtcast.adapters.pycrdt.structure import Structure
from crdtcast.adapters.pycrdt.update import (
    Missing,
    Update,
    deletes_no_more,
    encoded_deletions,
    parsed,
    parsed_vector,
)
from crdtcast.causality.member_id import name_of
from crdtcast.causality.tags import Tag
from crdtcast.datatypes.differences import Difference, Within, differences
from crdtcast.datatypes.memory import Memory
from crdtcast.datatypes.operations import Operation, natural, positive, text
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything
from crdtcast.datatypes.previous_life import Former
from crdtcast.datatypes.pure import KEPT, Arrival, Arrived, Change, PureOpCRDT
from crdtcast.exceptions import InvalidOperationError
from crdtcast.short_repr import shown

_NOTHING: Final = b"\x00"
"""The state vector of an empty document."""
_NO_STRUCTS: Final = b"\x00"
ITEM_BYTES: Final = 120
"""What pycrdt keeps for an item, besides its content (`python -m benchmarks.documents`)."""
_PART: Final = 2**20
"""Most bytes of a part of a large update."""
_ROOM: Final = 1024
"""Bytes of a message around a part of an update: names, numbers."""


def update_bytes(value: bytes) -> bytes:
    """An update of Yjs (v1)."""
    if type(value) is not bytes:
        raise ValueError(f"{shown(value)} is a {type(value).__name__}, not bytes")
    return value


class YDoc(PureOpCRDT[dict[str, Content]]):
    """A Yjs document: texts, arrays, maps and XML, by the name of the root. Merges as Yjs does.

    Operation: `apply(update)` with an update of Yjs (v1), as pycrdt's `event.update` and `doc.get_update()` are. It is
    refused whole, before any effect, if it is not one; and with `MissingUpdatesError` if it needs what this replica
    does not have. `part` is sent in the place of one that is too large for a message.
    """

    TYPE: ClassVar[str] = f"ydoc{KEPT}"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "apply": Operation("Apply an update of Yjs (v1).", update=update_bytes, additive=True),
        "part": Operation(
            "A part of an update that is too large for one message: its number, how many there are.",
            number=natural,
            count=positive,
            data=update_bytes,
            additive=True,
        ),
    }

    def __init__(self, *, retain: int = 0) -> None:
        self._documents = Scratch()
        self._seen = CausalState()
        self._structure = Structure()
        self._parts: dict[str, list[bytes]] = {}
        """Member -> the parts of its update that have arrived."""
        self._followers: WeakSet[Follower] = WeakSet()
        super().__init__(retain=retain)

    @property
    def _doc(self) -> "Doc[Any]":
        return self._documents.doc

    # ---- reading --------------------------------------------------------------------------------

    @property
    def value(self) -> dict[str, Content]:
        """What is in each root that is not empty, by its name: a text or XML as a str, an array as a list, a map as a
        dict. Takes time of the order of the document; `text` and the others read one root.
        """
        return content_of(self.update_since())

    def __len__(self) -> int:
        """The number of all characters and other elements that it has ever had; costs one step for each client."""
        return sum(map(self._seen.now, self._seen.clients))

    def text(self, name: str) -> str:
        """The text in that root; empty if there is none."""
        return str(read_root(self._doc, name, RootKind.TEXT))

    def state_vector(self) -> bytes:
        """What this replica has, as Yjs encodes it."""
        return self._doc.get_state()

    def update_since(self, state_vector: bytes = _NOTHING) -> bytes:
        """All that a document with that state vector lacks, as one update; by default the whole document.

        Raises InvalidOperationError if it is not a state vector.
        """
        try:
            parsed_vector(state_vector)
        except ValueError as error:
            raise InvalidOperationError(f"not a state vector of Yjs: {error}") from error
        return self._doc.get_update(state_vector)

    def lacks(self, update: bytes) -> bool:
        """Whether an update has an item or a deletion that this document lacks. True for bytes that are no update.

        If all items are known, it takes time in proportion to what was deleted.
        """
        try:
            parsed_update = parsed(update)
        except ValueError:
            return True
        if any(end > self._seen.now(client) for client, end in parsed_update.ends().items()):
            return True
        if not parsed_update.deletions:
            return False
        deleted = parsed(self.update_since(self.state_vector())).deletions
        return not deletes_no_more(parsed_update.deletions, deleted)

    def follow(self, most_bytes: int) -> Follower:
        """What is applied from now on, for one reader, which may be `most_bytes` behind."""
        follower = Follower(most_bytes)
        self._followers.add(follower)
        return follower

    def differences(
        self, before: dict[str, Content], after: dict[str, Content]
    ) -> tuple[Difference, ...]:
        """For each root that changes, the steps within it: positions of texts and arrays, keys of maps. XML is told as
        its text.
        """
        return tuple(
            Within(name, steps)
            for name in sorted({*before, *after})
            if (steps := _steps(before.get(name), after.get(name)))
        )

    @property
    def untouched(self) -> bool:
        return not (self.log or self._parts or any(True for _ in self._seen.clients))

    @property
    def blank(self) -> bool:
        return not self.value

    def digest(self) -> str:
        """128 bits, in hex, of the state vector, the deletions and all items: equal wherever the same operations were
        delivered. `value` need not show all of that, as how a text is formatted.
        """
        return digest_of_document(self.update_since())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, YDoc):
            return NotImplemented
        return self.digest() == other.digest()

    __hash__: ClassVar[None] = None

    def __repr__(self) -> str:
        clients = sum(1 for _ in self._seen.clients)
        return f"<{type(self).__name__}, {clients} clients, {self.log_size} unstable>"

    def memory(self) -> Memory:
        """Bytes that this object occupies, with the tombstones of what was deleted. Those of pycrdt are estimated: its
        items and their content.
        """
        update = parsed(self.update_since())
        items = sum(map(len, update.structs.values()))
        known = super().memory()
        native = 2 * (items * ITEM_BYTES + len(update.encoded))
        return Memory(known.stable + native, known.log, known.retained, known.entries)

    # ---- operations -----------------------------------------------------------------------------

    def permit(self, name: str, args: Sequence[Any], after: Sequence[Sequence[Any]]) -> None:
        if name != "apply":
            raise InvalidOperationError(
                f"{self.TYPE}.{name} is made from an update that is too large for a message: use apply"
            )
        earlier = [operation[1] for operation in after if operation[0] == "apply"]
        try:
            update = parsed(args[0])
            if earlier:
                update = parsed(merge_updates(*earlier, args[0]))
            missing = self._check(update, self._seen.now, goes_on=bool(earlier))
        except ValueError as error:
            raise InvalidOperationError(
                f"{self.TYPE}.apply: not an update to apply: {error}"
            ) from error
        if missing is not None:
            raise MissingUpdatesError(
                f"{self.TYPE}.apply: the update needs {_named(missing)}, which this replica does "
                "not have: apply all that is missing since the state vector of this error",
                state_vector=self.state_vector(),
            )

    def _check(
        self, update: Update, known: Callable[[int], int], *, goes_on: bool = False
    ) -> Missing | None:
        """What an update lacks. Raises ValueError if no document could get it.

        goes_on: whether it contains the update that was checked last.
        """
        missing = update.missing(known)
        if missing is not None:
            if missing.circular:
                raise ValueError("two of its items need each other")
            return missing
        why = self._structure.refusal(update, self._seen.now, lambda: parsed(self.update_since()))
        if why is not None:
            raise ValueError(why)
        self._documents.try_out(update.encoded, goes_on=goes_on)
        return None

    def divide(self, operation: Sequence[Any], most: int) -> list[list[Any]]:
        """The parts of an update that is too large for one message. They take effect when the last one arrives."""
        name, update = operation
        size = most - _ROOM
        if name != "apply" or size <= 0:
            return []
        size = min(size, _PART)
        count = -(-len(update) // size)
        return [
            ["part", number, count, update[number * size : (number + 1) * size]]
            for number in range(count)
        ]

    def effect(
        self, operation: Sequence[Any], tag: Tag, index: int = 0, version: int | None = None
    ) -> None:
        name, args = self._checked(operation, version)
        member = _member(tag)
        parts: list[bytes] = []
        update: bytes | None
        if name == "part":
            number, count, data = args
            parts = [*self._parts.get(member, ()), data] if number else [data]
            if number != len(parts) - 1 or number >= count:
                raise self._refusal(operation, f"part {len(parts) - 1} was to come", version)
            update = b"".join(parts) if len(parts) == count else None
        else:  # a member sends the parts of an update together: those that have come are given up
            (update,) = args
        if update is None:
            self._parts[member] = parts
        else:
            self._apply(operation, update, tag, index, version)
            self._parts.pop(member, None)
        if self._followed:
            self._tell(operation, Change(Arrived(name, args, tag, index), EVERYTHING))

    def _apply(
        self, operation: Sequence[Any], encoded: bytes, tag: Tag, index: int, version: int | None
    ) -> None:
        update = self._arriving(
            operation, encoded, lambda client: self._seen.before(client, tag, index), version
        )
        self._structure.add(update, self._seen.now)
        self._documents.apply(encoded)
        ends = [[client, end] for client, end in update.ends().items()]
        if ends:
            entry = Entry(tag, index, None, ends)
            self.log.add(entry)
            self.entered(entry)
        self._pass_on(encoded, tag)

    def check_arriving(self, operation: Sequence[Any], version: int | None = None) -> None:
        """Raises what `effect` would raise, for an operation that comes after all that has arrived."""
        name, args = self._checked(operation, version)
        if name == "apply":
            self._arriving(operation, args[0], self._seen.now, version)

    def _arriving(
        self,
        operation: Sequence[Any],
        encoded: bytes,
        known: Callable[[int], int],
        version: int | None,
    ) -> Update:
        """The update of an operation that arrives, checked. known: of a client, the clocks that its sender had."""
        try:
            update = parsed(encoded)
            missing = self._check(update, known)
            if missing is not None:
                raise ValueError(f"it needs {_named(missing)}, which its sender did not have")
        except ValueError as error:
            raise self._refusal(operation, error, version) from error
        return update

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        """The updates become one."""
        if len(operations) < 2 or any(name != "apply" for name, *_ in operations):
            return list(operations)
        return [["apply", merge_updates(*(update for _, update in operations))]]

    def _pass_on(self, update: bytes, tag: Tag) -> None:
        for follower in list(self._followers):
            follower.add(Applied(update, tag))

    # ---- the log, and deletion ------------------------------------------------------------------

    def entered(self, entry: Entry) -> None:
        self._seen.add(entry.tag, entry.index, _ends(entry))

    def stabilise(self, entry: Entry) -> None:
        self._seen.settle(entry.tag, entry.index, _ends(entry))

    def forget(self, tag: Tag, index: int = 0) -> None:
        """Delete all items that the deletion has seen. What is concurrent stays, except inside of what is deleted, as
        in Yjs.
        """
        seen = {client: self._seen.before(client, tag, index) for client in self._seen.clients}
        deletions = {client: [(0, end)] for client, end in seen.items() if end}
        if deletions:
            update = _NO_STRUCTS + encoded_deletions(deletions)
            self._documents.apply(update)
            self._pass_on(update, tag)

    def arrival(self, operation: Arrived) -> Arrival:
        """For observers only: `effect` does it."""
        return Arrival(EVERYTHING)

    def clear_stable(self, slot: Hashable | Everything) -> None:
        """Nothing to do: `forget` does it."""

    # ---- issuing again --------------------------------------------------------------------------

    @classmethod
    def rebase(cls, operation: list[Any], base: Self, theirs: Self) -> list[list[Any]]:
        return cls._again(operation, theirs, base)

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
        return cls._again(operation, present, former.home)

    @classmethod
    def rebase_blind(
        cls, operation: list[Any], present: Self, former: Former[Self]
    ) -> list[list[Any]]:
        return cls._again(operation, present, former.home)

    @classmethod
    def _again(cls, operation: list[Any], present: Self, home: Self | None) -> list[list[Any]]:
        """The operation unchanged. If the group lacks what it needs, as what a member wrote that is gone, then with
        that: all that this replica had; nothing if that is unknown.
        """
        if operation[0] != "apply":
            return [operation]
        missing = parsed(operation[1]).missing(present._seen.now)
        if missing is None:
            return [operation]
        if home is None:
            return []
        with_all = home.update_since(present.state_vector())
        return [["apply", merge_updates(with_all, operation[1])]]

    # ---- snapshots ------------------------------------------------------------------------------

    def dump_stable(self) -> Any:
        """The clocks of the stable part, the whole document, and the parts of updates that are on their way."""
        stable = sorted([client, end] for client, end in self._seen.stable.items())
        return [stable, sorted_document(self.update_since()), dict(sorted(self._parts.items()))]

    def load_stable(self, dumped: Any, version: int) -> None:
        stable, document, parts = dumped
        update = parsed(document)
        if update.missing(lambda client: 0) is not None:
            raise ValueError("the document is not whole")
        self._documents.apply(document)
        self._structure = Structure.of(update)
        self._seen = CausalState({natural(client): natural(end) for client, end in stable})
        self._parts = {
            text(member): [update_bytes(part) for part in pieces]
            for member, pieces in parts.items()
        }


def _steps(before: Content, after: Content) -> tuple[Difference, ...]:
    """What happened in a root; one that is empty is not in the value."""
    present = before if after is None else after
    empty = type(present)() if isinstance(present, str | list | dict) else None
    return differences(
        empty if before is None else before,
        empty if after is None else after,
    )


def _member(tag: Tag) -> str:
    """Whose parts of an update belong together, over an eviction as well."""
    return name_of(tag.dot.origin) or tag.dot.origin


def _ends(entry: Entry) -> Iterator[tuple[int, int]]:
    for client, end in entry.content:
        yield natural(client), natural(end)


def _named(missing: Missing) -> str:
    return f"clocks {missing.known} to {missing.until - 1} of client {missing.client}"
