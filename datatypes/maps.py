"""Maps whose values are replicated objects of any type, including maps.

An operation on a value is sent inside an operation on the map, and applied to the object that the map holds at that
key. A removal must reset what it has seen instead of dropping the object: see Baquero, Almeida and Lerche, "The Problem
with Embedded CRDT Counters and a Solution", 2016.

A key is a name and a type, so two types under one name do not conflict. A small value without unstable operations is
stored compactly (crdtcast.datatypes.dormant), and becomes an object again for an operation.
"""

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes.canonical import canonical
from crdtcast.datatypes.counters import BoundedCounter, GCounter, PNCounter, ResettableCounter
from crdtcast.datatypes.dormant import Asleep, Key, Object
from crdtcast.datatypes.flags import DWFlag, EWFlag
from crdtcast.datatypes.memory import Memory
from crdtcast.datatypes.numbers import Number
from crdtcast.datatypes.operations import (
    MAX_DEPTH,
    Element,
    Operation,
    Several,
    element,
    positive,
    text,
)
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything
from crdtcast.datatypes.previous_life import Former
from crdtcast.datatypes.pure import SLIGHT, Arrival, Arrived, Change, PureOpCRDT
from crdtcast.datatypes.registers import LWWRegister, MVRegister
from crdtcast.datatypes.scores import SortedMap
from crdtcast.datatypes.sequence import SharedList
from crdtcast.datatypes.sets import AWSet, GSet, RWSet, TwoPhaseSet
from crdtcast.datatypes.texts import SharedText
from crdtcast.exceptions import InvalidOperationError
from crdtcast.short_repr import shown

NestedType: TypeAlias = type[PureOpCRDT[Any]] | str
"""The type of a value in a map: the class, or its TYPE."""
NestedOperation: TypeAlias = list[Any] | tuple[Any, ...]
"""An operation on a value: [name, argument, ...]."""
NestedUpdate: TypeAlias = tuple[Element, NestedType, NestedOperation] | list[Any]
"""In a batch: [name, type, operation]."""
NestedRemoval: TypeAlias = tuple[Element, NestedType] | list[Any]
"""In a batch: [name, type]."""


class MapPiece(NamedTuple):
    """The part of an operation for one value: an operation on it, or a reset (None). `version`: of the value's type at
    the sender.
    """

    key: Key
    operation: list[Any] | None
    version: int = 1


def type_name(value: NestedType) -> str:
    """The name of a type, given as a class or as its name."""
    if isinstance(value, type):
        if issubclass(value, PureOpCRDT) and hasattr(value, "TYPE"):
            return value.TYPE
        raise ValueError(f"{shown(value)} is not a data type")
    return text(value)


def versioned_type(value: NestedType) -> str | list[str | int]:
    """The name of a type, given as a class or its name; [name, version] above version 1."""
    kind: type = type(value)
    if kind not in (list, tuple):
        return type_name(value)
    name, version = _parts(value, text, positive)
    if version == 1:
        raise ValueError("version 1 of a type is written as its name alone")
    return [name, version]


def _name_and_version(type_of: Any) -> tuple[str, int]:
    """The parts of a result of `versioned_type`."""
    return (type_of, 1) if type(type_of) is str else (type_of[0], type_of[1])


def nested(value: NestedOperation) -> list[Any]:
    """An operation on a value: [name, argument, ...]."""
    if type(value) not in (list, tuple) or not value or type(value[0]) is not str:
        raise ValueError(f"{shown(value)} is not an operation: give [name, argument, ...]")
    _check_depth(value)
    return list(value)


def _check_depth(operation: Any) -> None:
    """Call this before any recursion: an operation from the wire may nest deeper than Python's calls."""
    level = [operation]
    for _ in range(MAX_DEPTH):
        level = [part for outer in level for part in outer if type(part) in (list, tuple)]
        if not level:
            return
    raise ValueError(f"nested deeper than {MAX_DEPTH} levels")


def _updates(value: Several[NestedUpdate]) -> list[list[Any]]:
    """[[name, type, operation], ...]."""
    kind: type = type(value)
    if kind not in (list, tuple):
        raise ValueError("updates are a list of [name, type, operation]")
    return [_parts(each, element, versioned_type, nested) for each in value]


def _removals(value: Several[NestedRemoval]) -> list[list[Any]]:
    """[[name, type], ...]."""
    kind: type = type(value)
    if kind not in (list, tuple):
        raise ValueError("removals are a list of [name, type]")
    return [_parts(each, element, type_name) for each in value]


def _parts(value: Any, *checks: Any) -> list[Any]:
    if type(value) not in (list, tuple) or len(value) != len(checks):
        raise ValueError(f"{shown(value)} does not have {len(checks)} parts")
    return [check(part) for check, part in zip(checks, value, strict=True)]


class NestedMap(PureOpCRDT[dict[tuple[Element, str], Any]]):
    """The common part of `GOMap` and `AWMap`. The log of a map consists of its objects' logs.

    A map can hold every type of `CATALOGUE`, its own type, and those in `TYPES`: give a subclass its own `TYPE` and
    `TYPES` to hold your types. If it holds a type only from a later VERSION on, add that version to `SINCE`.
    """

    TYPES: ClassVar[Mapping[str, type[Object]]] = {}
    SINCE: ClassVar[Mapping[str, int]] = {}

    def __init__(self, *, retain: int = 0) -> None:
        super().__init__(retain=retain)
        # Each key is in one of the two. All stored values are shown; of the objects, those in `_shown`.
        self._objects: dict[Key, Object] = {}
        self._asleep = Asleep(self._type)
        self._shown: dict[Key, None] = {}
        self._entries = 0
        # The keys that each unstable message has touched: they learn of its stability.
        self._unstable: dict[Dot, dict[Key, None]] = {}
        # The keys that the last resetting message has touched after its reset.
        self._since_reset: dict[Key, None] = {}

    # ---- the difference between the two maps ---------------------------------------------------

    @abstractmethod
    def shows(self, held: Object) -> bool:
        """Whether a key with this object is in the value."""

    # ---- reading ------------------------------------------------------------------------------

    @property
    def value(self) -> dict[tuple[Element, str], Any]:
        """The value of each object, by (name, type name)."""
        return {(*key,): self._held(key).value for key in self}

    @property
    def blank(self) -> bool:
        return not self._shown and not self._asleep

    def __len__(self) -> int:
        return len(self._shown) + len(self._asleep)

    def __iter__(self) -> Iterator[Key]:
        return chain(self._asleep, self._shown)

    def __contains__(self, key: object) -> bool:
        found = _key(key)
        return found is not None and (found in self._shown or found in self._asleep)

    def __getitem__(self, key: tuple[Element, type[Object] | str]) -> Object:
        """The object at (name, type), for reading at once: it may not show later operations. Raises KeyError if that
        key is not in the value.
        """
        found = _key(key)
        if found is None or (found not in self._shown and found not in self._asleep):
            raise KeyError(key)
        return self._held(found)

    @property
    def log_size(self) -> int:
        return self._entries

    def memory(self) -> Memory:
        of_objects = [held.memory() for held in self._objects.values()]
        own = super().memory()
        log = sum(each.log for each in of_objects) + own.log
        entries = sum(each.entries for each in of_objects)
        # This walk has counted the objects' logs in the stable part, too.
        return Memory(max(own.stable - log, 0), log, own.retained, entries)

    # ---- issuing ------------------------------------------------------------------------------

    def prepare(self, name: str, *args: Any, after: Sequence[Sequence[Any]] = ()) -> list[Any]:
        """As `PureOpCRDT.prepare`; the operation on a value is prepared by its object."""
        try:
            if name == "update" and len(args) == 3:
                args = self._prepared(_parts(args, element, versioned_type, nested), after)
            elif name == "batch" and len(args) == 2:
                args = (
                    [self._prepared(each, after) for each in _updates(args[0])],
                    args[1],
                )
        except ValueError as refusal:
            raise InvalidOperationError(f"{self.TYPE}.{name}: {refusal}") from refusal
        return super().prepare(name, *args, after=after)

    def _prepared(self, update: list[Any], after: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        name, type_of, operation = update
        key = Key(name, _name_and_version(type_of)[0])
        held = self._held(key)
        held.site = self.site
        before = [
            self._reset_of(held) if piece.operation is None else piece.operation
            for earlier in after
            for piece in self._pieces(earlier[0], earlier[1:])
            if piece.key == key
        ]
        known = [earlier for earlier in before if earlier is not None]
        return name, _type_sent(held), held.prepare(*operation, after=known)

    def permit(self, name: str, args: Sequence[Any], after: Sequence[Sequence[Any]]) -> None:
        if name != "reset":
            pieces = self._pieces(name, args)
            for piece in pieces:
                self._type(piece.key.type)
            if len({piece.key for piece in pieces}) < len(pieces):
                raise InvalidOperationError(
                    f"{self.TYPE}.{name}: a key occurs twice: give each key once"
                )

    # ---- arriving -----------------------------------------------------------------------------

    def effect(
        self, operation: Sequence[Any], tag: Tag, index: int = 0, version: int | None = None
    ) -> None:
        name, args = self._checked(operation, version)
        if name == "reset":
            pieces = self._to_reset(tag.dot)
        else:
            pieces = self._pieces(name, args)
            self._check_types(operation, pieces, version)
            if len(pieces) > 1:
                self._check_values(pieces)
            if self._cleared_by == tag.dot:
                self._since_reset.update((piece.key, None) for piece in pieces)
        for piece in pieces:
            self._take(piece, tag, index)
        if self._followed:
            touched = EVERYTHING if name == "reset" else tuple(piece.key for piece in pieces)
            self._tell(operation, Change(Arrived(name, args, tag, index), touched))

    def _pieces(self, name: str, args: Sequence[Any]) -> list[MapPiece]:
        if name == "update":
            return [_update(*args)]
        if name == "remove":
            return [MapPiece(Key(args[0], args[1]), None)]
        if name == "reset":
            return [MapPiece(key, None) for key in chain(self._asleep, self._objects)]
        updates, removals = args
        return [
            *(_update(*update) for update in updates),
            *(MapPiece(Key(key, type_of), None) for key, type_of in removals),
        ]

    def _to_reset(self, dot: Dot) -> list[MapPiece]:
        """The parts of a reset. The second reset of a message concerns only what it has touched since the first."""
        again, self._cleared_by = self._cleared_by == dot, dot
        since, self._since_reset = self._since_reset, {}
        return [MapPiece(key, None) for key in since] if again else self._pieces("reset", ())

    def _take(self, piece: MapPiece, tag: Tag, index: int) -> None:
        key, operation, version = piece
        held = self._awake(key)
        if held is None:
            if operation is None:
                return
            held = self._type(key.type)()
        operation = self._reset_of(held) if operation is None else operation
        if operation is None:
            return
        held.site = self.site
        before = held.log_size
        held.effect(operation, tag, index, version)
        self._entries += held.log_size - before
        self._objects[key] = held
        self._unstable.setdefault(tag.dot, {})[key] = None
        self._review(key, held)

    def _awake(self, key: Key) -> Object | None:
        held = self._objects.get(key)
        if held is None and (held := self._asleep.wake(key)) is not None:
            self._objects[key] = held
            self._shown[key] = None
        return held

    def _reset_of(self, held: Object) -> list[Any] | None:
        """The operation that removes what was seen of a value; None if its type has none."""
        reset = held.OPERATIONS.get("reset")
        sent_as = "reset" if reset is None else reset.sent_as or "reset"
        sent = held.OPERATIONS.get(sent_as)
        return None if sent is None or sent.arguments or sent.ships else [sent_as]

    def _review(self, key: Key, held: Object) -> None:
        """After a change: show the key or not, and drop the object if it is not needed."""
        if self.shows(held):
            self._shown[key] = None
            return
        self._shown.pop(key, None)
        if held.untouched:
            del self._objects[key]

    def check_arriving(self, operation: Sequence[Any], version: int | None = None) -> None:
        name, args = self._checked(operation, version)
        if name != "reset":
            pieces = self._pieces(name, args)
            self._check_types(operation, pieces, version)
            self._check_values(pieces)

    def _check_types(
        self, operation: Sequence[Any], pieces: Sequence[MapPiece], version: int | None
    ) -> None:
        """Refuse an operation with a key twice, or with a type that a map of that version does not hold."""
        if len(pieces) > 1 and len({piece.key for piece in pieces}) < len(pieces):
            raise self._refusal(operation, "a key occurs twice", version)
        claimed = self.VERSION if version is None else version
        for piece in pieces:
            name = piece.key.type
            try:
                self._type(name)
            except InvalidOperationError as unknown:
                raise self._refusal(operation, unknown, version) from unknown
            if self.SINCE and claimed < self.SINCE.get(name, 1):
                why = f"version {claimed} does not hold {shown(name)}"
                raise self._refusal(operation, why, version)

    def _check_values(self, pieces: Sequence[MapPiece]) -> None:
        """Refuse a batch with an unknown part before any part has taken effect."""
        for key, nested_operation, version in pieces:
            if nested_operation is not None:
                self._held(key).check_arriving(nested_operation, version)

    @classmethod
    def _type(cls, name: str) -> type[Object]:
        found = cls if name == cls.TYPE else cls.TYPES.get(name) or CATALOGUE.get(name)
        if found is None:
            raise InvalidOperationError(
                f"{cls.TYPE} does not hold type {shown(name)}: add it to TYPES of a subclass"
            )
        return found

    # ---- stability, and the interface of the base class ----------------------------------------

    def stable(self, tag: Tag) -> None:
        for key in self._unstable.pop(tag.dot, ()):
            held = self._objects.get(key)
            if held is not None:
                before = held.log_size
                held.stable(tag)
                self._entries += held.log_size - before
                if key not in self._shown:
                    self._review(key, held)
                else:
                    self._rest(key, held)
        for table in (self._unstable, self._objects, self._shown):
            if not table:
                table.clear()  # frees the memory of a burst, which deleting keys does not
        if self._retained is not None:
            self._retained.stable(tag)

    def _rest(self, key: Key, held: Object) -> None:
        """Store a shown value compactly if it is small and has no unstable operation."""
        if not held.log_size and held.slight:
            self._asleep.lay(key, held)
            del self._objects[key]
            del self._shown[key]

    def forget(self, tag: Tag, index: int = 0) -> None:
        for key in list(chain(self._asleep, self._objects)):
            held = self._awake(key)
            assert held is not None
            before = held.log_size
            held.forget(tag, index)
            self._entries += held.log_size - before
            self._unstable.setdefault(tag.dot, {})[key] = None
            self._review(key, held)

    @property
    def untouched(self) -> bool:
        return not (self._objects or self._asleep)

    @property
    def slight(self) -> bool:
        return not self._objects and len(self._asleep) <= SLIGHT

    def arrival(self, operation: Arrived) -> Arrival:
        """For observers only; the objects have their own logs."""
        pieces = self._pieces(operation.name, operation.args)
        return Arrival(EVERYTHING if operation.name == "reset" else [each.key for each in pieces])

    def clear_stable(self, slot: Hashable | Everything) -> None:
        """Nothing to do: the objects do it."""

    def stabilise(self, entry: Entry) -> None:
        """Nothing to do: the objects do it."""

    # ---- compression, and issuing again --------------------------------------------------------

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        """Operations on one value are compressed by its type, but not across a reset of the map."""
        compressed: list[list[Any]] = []
        pieces: list[MapPiece] = []
        for name, *args in operations:
            if name == "reset":
                compressed += [*self._compressed(pieces), ["reset"]]
                pieces = []
            else:
                pieces += self._pieces(name, args)
        return compressed + self._compressed(pieces)

    def _compressed(self, pieces: Iterable[MapPiece]) -> list[list[Any]]:
        by_key: dict[Key, list[list[Any] | None]] = {}
        for key, operation, _ in pieces:
            by_key.setdefault(key, []).append(operation)
        compressed: list[list[Any]] = []
        for key, operations in by_key.items():
            held = self._held(key)
            reset = self._reset_of(held)
            made = [reset if operation is None else operation for operation in operations]
            for operation in held.compress([each for each in made if each is not None]):
                if operation == reset and "remove" in self.OPERATIONS:
                    compressed.append(["remove", *key])
                else:
                    compressed.append(["update", key.name, _type_sent(held), operation])
        return compressed

    def _held(self, key: Key) -> Object:
        """The object at a key, for reading; a new one if there is none."""
        held = self._objects.get(key)
        if held is None:
            held = self._asleep.look(key)
        return self._type(key.type)() if held is None else held

    @classmethod
    def rebase(cls, operation: list[Any], base: Self, theirs: Self) -> list[list[Any]]:
        """Each value follows its type's rule; a removal is issued only if the value is unchanged. `reset` yields to any
        change.
        """
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
        if name == "reset":
            return [operation] if base == theirs and home == present else []
        updates: list[list[list[Any]]] = []
        removals: list[list[Any]] = []
        for key, nested_operation, _ in base._pieces(name, args):
            before, since, own, now = (each._held(key) for each in (base, theirs, home, present))
            if nested_operation is not None:
                again = type(before).rebase_behind(
                    nested_operation, before, since, own, now, former.within(key, own)
                )
                updates.append([[key.name, _type_sent(before), each] for each in again])
            elif before == since and own == now:
                removals.append(list(key))
        return _together(updates, removals)

    @classmethod
    def rebase_blind(
        cls, operation: list[Any], present: Self, former: Former[Self]
    ) -> list[list[Any]]:
        """Each value follows its type's rule; removals and `reset` yield."""
        name, *args = operation
        if name == "reset":
            return []
        updates: list[list[list[Any]]] = []
        pieces = present._pieces(name, args)
        remembered = former.remembered or [None] * len(pieces)
        for (key, nested_operation, _), known in zip(pieces, remembered, strict=True):
            if nested_operation is None:
                continue
            held = present._held(key)
            at_home = None if former.home is None else former.home._held(key)
            within = former.within(key, at_home, known)
            again = type(held).rebase_blind(nested_operation, held, within)
            updates.append([[key.name, _type_sent(held), each] for each in again])
        return _together(updates, [])

    def remember(self, operation: list[Any]) -> Any:
        """The notes of its values, by the parts of the operation."""
        name, *args = operation
        if name == "reset":
            return None
        remembered = []
        for key, nested_operation, _ in self._pieces(name, args):
            known = None
            if nested_operation is not None and _remembers(self._type(key.type)):
                known = self._held(key).remember(nested_operation)
            remembered.append(known)
        return None if all(known is None for known in remembered) else remembered

    # ---- snapshots ----------------------------------------------------------------------------

    def dump_stable(self) -> Any:
        """[name, type, snapshot] of each object, with its log."""
        held = [(*key, each.snapshot()) for key, each in self._objects.items()]
        held += [(*key, self._asleep.snapshot(key)) for key in self._asleep]
        held.sort(key=lambda each: canonical(each[:2]))
        return list(map(list, held))

    def load_stable(self, dumped: Any, version: int) -> None:
        for name, type_of, snapshot in dumped:
            key = Key(element(name), type_of)
            if key in self._objects or key in self._asleep:
                raise ValueError(f"the key {shown(name)} of {shown(type_of)} occurs twice")
            try:
                restored = self._type(type_of).restore(snapshot)
            except InvalidOperationError as unknown:
                raise ValueError(f"{unknown}, or this program is older") from unknown
            self._objects[key] = restored
            self._entries += restored.log_size
            for dot in _unstable_messages(restored):
                self._unstable.setdefault(dot, {})[key] = None
            if self.shows(restored):
                self._shown[key] = None
                self._rest(key, restored)


def _update(name: Element, type_of: Any, operation: list[Any]) -> MapPiece:
    type_named, version = _name_and_version(type_of)
    return MapPiece(Key(name, type_named), operation, version)


def _remembers(held_type: type[Object]) -> bool:
    return held_type.remember is not PureOpCRDT.remember


def _together(updates: Iterable[list[list[Any]]], removals: list[list[Any]]) -> list[list[Any]]:
    """The operations to issue again for one operation, from those of each value. The first of each value go into one
    operation, so that each keeps its place in the message; further ones follow.
    """
    first = [each[0] for each in updates if each]
    more = [["update", *update] for each in updates for update in each[1:]]
    if len(first) + len(removals) > 1:
        return [["batch", first, removals], *more]
    return [
        *(["update", *each] for each in first),
        *(["remove", *each] for each in removals),
        *more,
    ]


def _type_sent(held: Object) -> Any:
    """The type of a value as an operation has it."""
    return held.TYPE if held.VERSION == 1 else [held.TYPE, held.VERSION]


def _unstable_messages(held: Object) -> Iterable[Dot]:
    if isinstance(held, NestedMap):
        return list(held._unstable)
    return {entry.tag.dot: None for entry in held.log}


def _key(given: Any) -> Key | None:
    try:
        name, type_of = given
        return Key(element(name), type_name(type_of))
    except (TypeError, ValueError):
        return None


class GOMap(NestedMap):
    """A map that only gains keys; a key stays even if its value becomes empty.

    Operations: `update(name, crdt_type, operation)` applies `[operation's name, argument, ...]` to the value at that
    name and type. `crdt_type` is a class or its TYPE.
    """

    TYPE: ClassVar[str] = "map_go"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "update": Operation(
            "Apply an operation, [name, argument, ...], to the value at a name and type.",
            name=element,
            crdt_type=versioned_type,
            operation=nested,
        ),
    }

    def shows(self, held: Object) -> bool:
        return True


class AWMap(NestedMap):
    """A map where an update wins over a concurrent removal of its key. A removal resets only what it has seen of the
    value. A key is not shown while its value equals that of a new object.

    Operations: `update(name, crdt_type, operation)` applies `[operation's name, argument, ...]` to the value at that
    name and type. `remove(name, crdt_type)` resets it. `batch(updates, removals)` with `[[name, type, operation], ...]`
    and `[[name, type], ...]` does several at once, each for another key. `reset()` removes all that it has seen. A type
    is a class or its TYPE. A removal of a type without `reset` has no effect.
    """

    TYPE: ClassVar[str] = "map_aw"
    OPERATIONS: ClassVar[Mapping[str, Operation]] = {
        "update": Operation(
            "Apply an operation, [name, argument, ...], to the value at a name and type. It"
            " survives a concurrent removal.",
            name=element,
            crdt_type=versioned_type,
            operation=nested,
        ),
        "remove": Operation(
            "Reset the value at a name and type. Concurrent updates survive.",
            name=element,
            crdt_type=type_name,
        ),
        "batch": Operation(
            "Apply updates, [name, type, operation], and removals, [name, type], of different keys.",
            updates=_updates,
            removals=_removals,
        ),
        "reset": Operation("Reset all values. Concurrent updates survive."),
    }

    def shows(self, held: Object) -> bool:
        return not held.blank


_TYPES: tuple[type[Object], ...] = (
    AWMap,
    AWSet,
    BoundedCounter,
    DWFlag,
    EWFlag,
    GCounter,
    GOMap,
    GSet,
    LWWRegister,
    MVRegister,
    Number,
    PNCounter,
    RWSet,
    ResettableCounter,
    SharedList,
    SharedText,
    SortedMap,
    TwoPhaseSet,
)
CATALOGUE: Mapping[str, type[Object]] = {crdt.TYPE: crdt for crdt in _TYPES}
"""The types of this package by name, which any map can hold, including maps."""
