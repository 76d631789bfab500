"""The base class of pure operation-based CRDTs: a replica sends the operation, and nothing else.

The state is a PO-Log of unstable operations, and a compact stable part without tags. A type answers two questions:
which operations an arrival makes redundant, and what changes when an operation becomes stable. Baquero, Almeida and
Shoker, "Making Operation-Based CRDTs Operation-Based" (2014) and "Pure Operation-Based Replicated Data Types" (2017).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

from crdtcast.causality.tags import Dot, Tag, Vector, covers, dominates
from crdtcast.datatypes import snapshots
from crdtcast.datatypes.canonical import canonical, digest_of
from crdtcast.datatypes.differences import Difference, differences
from crdtcast.datatypes.memory import Memory, occupied
from crdtcast.datatypes.operations import Operation
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything, POLog
from crdtcast.datatypes.previous_life import Former
from crdtcast.datatypes.retained import Retained
from crdtcast.datatypes.site import Site
from crdtcast.exceptions import (
    InvalidOperationError,
    LocalProtocolError,
    NewerOperationError,
    RemoteProtocolError,
)
from crdtcast.short_repr import shown

V = TypeVar("V")

SLIGHT: Final = 16
"""Most parts of a stable part that a map packs, and unpacks for each operation."""


KEPT: Final = "_kept"
"""How the TYPE of a type ends whose deleted objects still decide what later operations mean, as tombstones do. They are
not `untouched` then. A program that does not know the type keeps them, too, which it sees by this.
"""


@dataclass(slots=True, eq=False)
class Arrived:
    """A delivered operation: name and checked arguments, the tag of its message, its index in the message."""

    name: str
    args: tuple[Any, ...]
    tag: Tag
    index: int


class Arrival(NamedTuple):
    """The effect of an arriving operation: the slots in which it makes earlier operations redundant, and what it
    leaves.

    `leaves` has (slot, content) pairs. A slot is a str, bytes, int or None, or a tuple of them; the content is anything
    that `exact` accepts.
    """

    clears: Iterable[Hashable] | Everything = ()
    leaves: Iterable[tuple[Hashable, Any]] = ()


class Change(NamedTuple):
    """What an observer gets: the operation as it arrived, and the slots that it may have changed."""

    operation: Arrived
    slots: tuple[Hashable, ...] | Everything


Observer: TypeAlias = Callable[[Change], None]


class PureOpCRDT(ABC, Generic[V]):
    """A replicated object. Subclasses declare `TYPE` and `OPERATIONS` and answer two questions.

    The middleware guarantees, and this class relies on: operations of a message arrive together, in the order of their
    indices; messages arrive once, in causal order; `stable` comes after the arrival, and only when no concurrent
    message can arrive any more.

    **Everything stable comes before every later arrival.** So an arrival that clears a slot clears the whole stable
    part of it, and the stable part needs no tags to decide that. An unstable entry may be concurrent with the arrival;
    it is removed only if it came before.
    """

    TYPE: ClassVar[str]
    """Name of the type in snapshots, logs and digests, as kind_semantics. See also `KEPT`."""
    VERSION: ClassVar[int] = 1
    """Version of the type. Raise it with a new operation (`Operation(since=…)`; a new argument makes a new operation)
    or a new form of the stable part. It distinguishes a newer program's operation, which is kept for later, from one
    that no program knows. A restore refuses a newer version; `load_stable` gets an older one as an argument.
    """
    OPERATIONS: ClassVar[Mapping[str, Operation]]

    _own_obsolete: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._own_obsolete = cls.obsolete is not PureOpCRDT.obsolete
        if type(getattr(cls, "TYPE", "")) is not str:
            raise TypeError(f"{cls.__name__}.TYPE is {cls.TYPE!r}: give the type a name, a str")
        for name, declared in getattr(cls, "OPERATIONS", {}).items():
            if not isinstance(declared, Operation):
                raise TypeError(
                    f"{cls.__name__}.OPERATIONS[{name!r}] is {shown(declared)}: give an Operation"
                )
            if declared.sent_as is not None and declared.sent_as not in cls.OPERATIONS:
                raise TypeError(
                    f"{cls.__name__}.{name} is sent as {declared.sent_as}: define that operation"
                )
            if not 1 <= declared.since <= cls.VERSION:
                raise TypeError(
                    f"{cls.__name__}.{name} has since={declared.since}: give a version from 1 to "
                    f"VERSION, {cls.VERSION}"
                )

    def __init__(self, *, retain: int = 0) -> None:
        """retain: how many operations to keep after they are stable, as by `retain()`."""
        self.log: POLog = POLog()
        self.site: Site | None = None
        """Set by whatever holds the object, for types that ship a time or an identity."""
        self._observers: dict[Observer, None] = {}
        self._retained: Retained[Any] | None = None
        self._cleared_by: Dot | None = None  # the last message that cleared everything
        if retain:
            self._retained = Retained(retain, type(self)())
        # A single check on the hot path: are there observers or a retained log?
        self._followed = bool(retain)

    # ---- the interface of a type ---------------------------------------------------------------

    @abstractmethod
    def arrival(self, operation: Arrived) -> Arrival:
        """Question one: which operations does `operation` make redundant, and what does it leave? Must not change the
        state.
        """

    def obsolete(self, old: Entry, new: Arrived) -> bool:
        """Whether `old`, in a slot that `new` clears, is redundant now. By default: if it came before.

        A type that overrides this pays a scan of the log for operations that clear everything.
        """
        return old.before(new.tag, new.index)

    def redundant(self, new: Entry) -> bool:
        """Whether `new` adds nothing to the log and the stable part; then it is not stored.

        Called after the clearing. The result must be the same at every replica, or change no value.
        """
        return False

    @abstractmethod
    def clear_stable(self, slot: Hashable | Everything) -> None:
        """Clear the stable part of a slot, or all of it, for an arrival."""

    @abstractmethod
    def stabilise(self, entry: Entry) -> None:
        """Question two: `entry` is stable and has just left the log; store what it means without its tag.

        Other entries of its slot may still be unstable: they are concurrent with it.
        """

    @property
    @abstractmethod
    def value(self) -> V:
        """The present value of the object: immutable, or a fresh copy."""

    def permit(self, name: str, args: Sequence[Any], after: Sequence[Sequence[Any]]) -> None:
        """Raises InvalidOperationError if this state, followed by the operations `after`, does not allow it."""

    def ship(self, name: str, args: list[Any], after: Sequence[Sequence[Any]]) -> list[Any]:
        """Return what to send after the arguments of an operation that declares `ships`."""
        raise NotImplementedError(f"{self.TYPE}.{name} ships a value: define `ship`")

    def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        """Return fewer operations with the same effect, for one message: deltas added up, overwritten values dropped.

        By default they stay as they are; `without_overwritten` fits most types.
        """
        return list(operations)

    def divide(self, operation: Sequence[Any], most: int) -> list[list[Any]]:
        """Return operations to send in the place of one that is too large for a message, each in a message of its own,
        one directly after the other. By default none: the operation is refused.

        most: bytes that a message has room for, with the names of object and type.
        """
        return []

    @classmethod
    def rebase(cls, operation: list[Any], base: Self, theirs: Self) -> list[list[Any]]:
        """Return what to issue, after `theirs`, for an operation that was issued at `base` and that no other replica
        got; an empty list drops it.

        An eviction separates a replica from the group: its operation was concurrent with the operations of the group.
        Issued again it would come after them, and remove or overwrite what it has never seen. So an additive operation
        is issued unchanged, and another one only if `theirs` still equals `base`. A type may compare in more detail.
        For one of several operations see `rebase_behind`.
        """
        if cls.OPERATIONS[operation[0]].additive or theirs == base:
            return [operation]
        return []

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
        """As `rebase`, for an operation that followed other own ones, which `base` and `theirs` lack. `home` is `base`
        with their effect, `present` is `theirs` with the effect of the operations issued for them. A type whose
        operations name others finds their new names by `former.renamed`.

        What an operation would remove must also be the same without those before it: they would hide what the group has
        written in the meantime. A type that compares in more detail in `rebase` does so in this method, too, if its
        operations have parts.
        """
        issued = cls.rebase(operation, home, present)
        if cls.OPERATIONS[operation[0]].additive or cls.rebase(operation, base, theirs):
            return issued
        return []

    @classmethod
    def rebase_blind(
        cls, operation: list[Any], present: Self, former: Former[Self]
    ) -> list[list[Any]]:
        """Return what to issue, after `present`, for an own operation that the group does not have, when the former
        state of the object is unknown: it was large, or that knowledge was lost.

        By default an additive operation is issued unchanged. Any other is dropped, since it is unknown what it had
        seen.
        """
        return [operation] if cls.OPERATIONS[operation[0]].additive else []

    def remember(self, operation: list[Any]) -> Any:
        """Return what `rebase_blind` must know of this object's state before an own operation on it: a small value that
        `exact` accepts, kept until the operation is stable. None, the default, stands for nothing.
        """
        return None

    def entered(self, entry: Entry) -> None:
        """Called when `entry` was stored in the log, to update running totals."""

    def reentered(self, entry: Entry) -> None:
        """Called when `entry` is back in the log after a restore, after `load_stable`. By default as `entered`."""
        self.entered(entry)

    def left(self, entry: Entry) -> None:
        """Called when `entry` left the log, as redundant or as stable (then `stabilise` follows)."""

    @abstractmethod
    def dump_stable(self) -> Any:
        """Return the stable part as a value that `exact` accepts, equal for equal stable parts."""

    @abstractmethod
    def load_stable(self, dumped: Any, version: int) -> None:
        """Load the result of `dump_stable` of that `VERSION`, or an older one. Raises ValueError for anything else."""

    # ---- the interface for a replica -----------------------------------------------------------

    def prepare(self, name: str, *args: Any, after: Sequence[Sequence[Any]] = ()) -> list[Any]:
        """Return the operation to send, `[name, argument, ...]`; the state does not change.

        after: operations prepared already for the same message, which are not applied yet.

        Raises InvalidOperationError for an unknown name, arguments of the wrong number or type, arguments that would
        not arrive unchanged, or an operation that `permit` refuses.
        """
        declared = self.OPERATIONS.get(name) if type(name) is str else None
        if declared is None:
            known = ", ".join(sorted(self.OPERATIONS))
            raise InvalidOperationError(
                f"{self.TYPE} has no operation {shown(name)}: use one of {known}"
            )
        try:
            checked = declared.check(args)
        except ValueError as refusal:
            raise InvalidOperationError(f"{self.TYPE}.{name}: {refusal}") from refusal
        sent_as = declared.sent_as or name
        self.permit(sent_as, checked, after)
        if self.OPERATIONS[sent_as].ships:
            return [sent_as, *checked, *self.ship(sent_as, checked, after)]
        return [sent_as, *checked]

    def effect(
        self, operation: Sequence[Any], tag: Tag, index: int = 0, version: int | None = None
    ) -> None:
        """Apply operation number `index` of the message tagged `tag`, as `prepare` made it, at this or another replica.

        version: of the type at the sender, if it differs from this one's.

        If it raises, the state is unchanged. Raises NewerOperationError if only a newer program knows the operation,
        and RemoteProtocolError if no program does.
        """
        name, args = self._checked(operation, version)
        new = Arrived(name, args, tag, index)
        arrival = self.arrival(new)
        if self._followed:
            arrival = _written_out(arrival)
        clears, leaves = arrival
        if clears is EVERYTHING:
            self._clear_everything(new)
        else:
            for slot in clears:
                self._clear_slot(slot, new)
        for slot, content in leaves:
            entry = Entry(tag, index, slot, content)
            if not self.redundant(entry):
                self.log.add(entry)
                self.entered(entry)
        if self._followed:
            self._tell(operation, Change(new, _touched(arrival)))

    def check_arriving(self, operation: Sequence[Any], version: int | None = None) -> None:
        """Raises what `effect` would raise."""
        self._checked(operation, version)

    def compressed(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        """Return the result of `compress`. Raises TypeError if a replica would refuse any of it, so nothing is sent."""
        made = self.compress(operations)
        for operation in made:
            try:
                self.check_arriving(operation)
            except RemoteProtocolError as error:
                raise TypeError(
                    f"{type(self).__name__}.compress made an invalid operation: {error}"
                ) from error
        return made

    def stable(self, tag: Tag) -> None:
        """Every operation of the message tagged `tag` is stable. Does nothing if it has no entry in the log."""
        for entry in self.log.of_message(tag.dot):
            self.log.discard(entry)
            self.left(entry)
            self.stabilise(entry)
        if self._retained is not None:
            self._retained.stable(tag)

    def forget(self, tag: Tag, index: int = 0) -> None:
        """Remove everything before operation `index` of the message tagged `tag`. A container resets its values in this
        way, whatever operations their types have.
        """
        self._clear_everything(Arrived("forget", (), tag, index))

    @property
    def untouched(self) -> bool:
        """Whether this equals a new object: nothing in the log, and nothing stable."""
        return not self.log and canonical(self.dump_stable()) == canonical(
            type(self)().dump_stable()
        )

    @property
    def slight(self) -> bool:
        """Whether the stable part is small enough for a map to pack it while the log is empty, and unpack it for the
        next operation: some numbers, or up to `SLIGHT` elements. By default the map keeps the object.
        """
        return False

    @property
    def blank(self) -> bool:
        """Whether the value is that of a new object: then an add-wins map does not show the key. Override it where
        computing the value is slow.
        """
        return canonical(self.value) == canonical(type(self)().value)

    def differences(self, before: V, after: V) -> tuple[Difference, ...]:
        """The steps from one value to another one, for observers. Sets tell elements, maps keys, lists and texts
        positions, all others the new value; a type may tell more or less.
        """
        return differences(before, after)

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call `observer` after each operation, of this or another replica, until the returned function is called.

        Stability changes no value, so it causes no call. An observer must not raise, nor issue operations.
        """
        self._observers[observer] = None
        self._followed = True

        def stop() -> None:
            self._observers.pop(observer, None)
            self._followed = bool(self._observers) or self._retained is not None

        return stop

    def retain(self, most: int, vector: Vector | None = None) -> None:
        """Keep the next `most` operations after they are stable, for `clone`; costs a second copy of the state.

        vector: what this object has delivered so far, if it is not new.
        """
        self._retained = Retained(most, self.clone(), vector)
        self._followed = True

    def clone(self, since: Vector | None = None, until: Vector | None = None) -> Self:
        """Return a copy. With `until`: this object with only the operations under that vector. With `since`: with only
        those that are not under it.

        Both need an object that retains, and vectors that are not too old; otherwise they raise LocalProtocolError.
        Observers and the retained log are not copied.
        """
        if since is None and until is None:
            copy = self.restore(self.snapshot())
        else:
            retained = self._reaching(since, until)
            copy = retained.floor.clone() if since is None else type(self)()
            for step in retained:
                dot = step.tag.dot
                if since is not None and covers(since, dot):
                    continue
                if until is None or covers(until, dot):
                    step.take(copy)
        copy.site = self.site
        return copy

    def memory(self) -> Memory:
        """Return the bytes that this object occupies; visits all of it."""
        seen: set[int] = set()
        ours = ("log", "site", "_observers", "_retained", "_followed", "_cleared_by")
        stable = occupied([part for name, part in vars(self).items() if name not in ours], seen)
        log = occupied([self.log], seen)
        retained = 0 if self._retained is None else occupied([self._retained], seen)
        return Memory(stable, log, retained, len(self.log))

    @property
    def log_size(self) -> int:
        """Entries in the PO-Log: 0 when everything is stable. An `add_all` counts one for each element."""
        return len(self.log)

    def digest(self) -> str:
        """Return 128 bits, in hex, of type and value only: equal wherever the same operations were delivered."""
        return digest_of(self.TYPE, self.value)

    def __eq__(self, other: object) -> bool:
        """Whether type and value are equal, however much is stable."""
        if not isinstance(other, PureOpCRDT):
            return NotImplemented
        return self.TYPE == other.TYPE and canonical(self.value) == canonical(other.value)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # an object changes; its value may be hashed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.value!r}, {self.log_size} unstable>"

    def snapshot(self) -> bytes:
        """The whole state in versioned msgpack: equal bytes for equal log and stable part."""
        return snapshots.pack(self.TYPE, self.VERSION, self.dump_stable(), self.log)

    @classmethod
    def restore(cls, snapshot: bytes) -> Self:
        """Return the object of which `snapshot` was made, in the same state.

        Raises UnusableInputError for another type's snapshot, a newer version, or damaged bytes.
        """
        taken = snapshots.unpack(snapshot, cls.TYPE, cls.VERSION)
        restored = cls()
        with snapshots.reading(cls.TYPE):
            restored.load_stable(taken.stable, taken.version)
            for entry in taken.entries:
                restored.log.add(entry)
                restored.reentered(entry)
            if taken.entries:
                restored.value  # noqa: B018  # raises if the content of an entry is invalid
        return restored

    # ---- helpers for types ---------------------------------------------------------------------

    def without_overwritten(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
        """`operations` without those whose slots are all cleared by later ones.

        Only for types with the default `obsolete`, and an `arrival` that does not depend on the state.
        """
        cleared: set[Hashable] = set()
        kept: list[list[Any]] = []
        for operation in reversed(operations):
            name, *args = operation
            arrival = _written_out(self.arrival(Arrived(name, tuple(args), _NOWHERE, 0)))
            slots = _touched(arrival)
            if slots is not EVERYTHING and slots and cleared.issuperset(slots):
                continue
            kept.append(operation)
            if arrival.clears is EVERYTHING:
                break
            cleared.update(arrival.clears)
        return kept[::-1]

    def _located(self) -> Site:
        """The site, for `ship`."""
        if self.site is None:
            raise InvalidOperationError(
                f"{self.TYPE} ships a time or an identity: set `site` of an object that is not in "
                "a replica"
            )
        return self.site

    # ---- internal -----------------------------------------------------------------------------

    def _tell(self, operation: Sequence[Any], change: Change) -> None:
        if self._retained is not None:
            self._retained.delivered(operation, change.operation.tag, change.operation.index)
        for observer in list(self._observers):
            observer(change)

    def _reaching(self, since: Vector | None, until: Vector | None) -> Retained[Any]:
        if self._retained is None:
            raise LocalProtocolError(
                f"this {self.TYPE} does not retain operations: call retain(most)"
            )
        for name, vector in (("since", since), ("until", until)):
            if vector is not None and not dominates(vector, self._retained.vector):
                raise LocalProtocolError(
                    f"{name}={dict(vector)} is older than the operations that this {self.TYPE} "
                    f"retains: the last {self._retained.most}, after {self._retained.vector}"
                )
        return self._retained

    def _checked(
        self, operation: Sequence[Any], version: int | None
    ) -> tuple[str, tuple[Any, ...]]:
        try:
            name, *args = operation
            declared = self.OPERATIONS.get(name)
            if declared is None or declared.sent_as is not None:
                raise ValueError(f"unknown operation {shown(name)}")
            if version is not None and version < declared.since:
                raise ValueError(f"version {version} has no operation {name}")
            return name, declared.check_arrived(args)
        except (TypeError, ValueError) as error:
            raise self._refusal(operation, error, version) from error

    def _refusal(
        self, operation: Sequence[Any], why: object, version: int | None
    ) -> RemoteProtocolError:
        """The error for an operation of a newer version, or for an invalid one."""
        refused = f"{self.TYPE} cannot apply {shown(operation, 200)}: {why}"
        if version is not None and version > self.VERSION:
            return NewerOperationError(
                f"{refused}; it is of version {shown(version)}, and this program has "
                f"{self.VERSION}: upgrade this program"
            )
        return RemoteProtocolError(f"{refused}; the sender's program is wrong")

    def _clear_slot(self, slot: Hashable, new: Arrived) -> None:
        entries = self.log.in_slot(slot)
        if entries:
            for entry in [old for old in entries if self.obsolete(old, new)]:
                self.log.discard(entry)
                self.left(entry)
        self.clear_stable(slot)

    def _clear_everything(self, new: Arrived) -> None:
        dot = new.tag.dot
        # A message's operations arrive together: its second reset finds only what came after the first.
        again, self._cleared_by = self._cleared_by == dot, dot
        if again:
            gone = [old for old in self.log.of_message(dot) if self.obsolete(old, new)]
        elif self._own_obsolete:
            gone = [old for old in self.log if self.obsolete(old, new)]
        else:
            gone = self.log.before(new.tag, new.index)
        for entry in gone:
            self.log.discard(entry)
            self.left(entry)
        if again:
            for slot in dict.fromkeys(entry.slot for entry in gone):
                self.clear_stable(slot)
        else:
            self.clear_stable(EVERYTHING)


_NOWHERE = Tag(Dot("", 0))
"""Stands for the tag that a message does not have yet."""


def _written_out(arrival: Arrival) -> Arrival:
    """The same, with tuples, so that it can be read more than once."""
    clears, leaves = arrival
    return Arrival(clears if isinstance(clears, Everything) else tuple(clears), tuple(leaves))


def _touched(arrival: Arrival) -> tuple[Hashable, ...] | Everything:
    """The slots in which an arrival clears or leaves something."""
    if isinstance(arrival.clears, Everything):
        return arrival.clears
    return tuple(dict.fromkeys([*arrival.clears, *(slot for slot, _ in arrival.leaves)]))
