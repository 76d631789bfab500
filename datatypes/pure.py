"""The base class of pure operation-based CRDTs: what is sent is the operation, and nothing else.

State is a PO-Log of unstable operations over a compact stable part without tags. A type answers two
questions: what an arrival makes redundant, and what changes when an operation becomes stable.
Baquero, Almeida and Shoker, "Making Operation-Based CRDTs Operation-Based" (2014) and "Pure
Operation-Based Replicated Data Types" (2017).
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

from crdtcast.datatypes import snapshots
from crdtcast.datatypes.canonical import canonical, digest_of
from crdtcast.datatypes.operations import Operation, exact
from crdtcast.datatypes.polog import EVERYTHING, Entry, Everything, POLog
from crdtcast.exceptions import InvalidOperationError, RemoteProtocolError
from crdtcast.tags import Tag

V = TypeVar("V")


@dataclass(slots=True, eq=False)
class Arrived:
    """An operation at its delivery: name and checked arguments, its message's tag, its index in
    the message.
    """

    name: str
    args: tuple[Any, ...]
    tag: Tag
    index: int


class Arrival(NamedTuple):
    """What an arriving operation does: the slots where it makes redundant what came before it, and
    what it leaves.

    `leaves` gives (slot, content) pairs. A slot is a str, bytes, int or None, or a tuple of them;
    the content is anything that `exact` accepts.
    """

    clears: Iterable[Hashable] | Everything = ()
    leaves: Iterable[tuple[Hashable, Any]] = ()


class PureOpCRDT(ABC, Generic[V]):
    """A replicated object. Subclasses declare `TYPE` and `OPERATIONS` and answer the two questions.

    The middleware promises, and this class relies on: operations of a message arrive together, in
    the order of their indices; messages arrive once, in causal order; `stable` comes after the
    arrival, and then only when nothing concurrent can arrive any more.

    **Everything stable comes before every later arrival.** So an arrival that clears a slot clears
    the whole stable part of it, never a piece, and the stable part needs no tags to decide that. An
    unstable entry may be concurrent with the arrival, and goes only if it came before.
    """

    TYPE: ClassVar[str]
    """Name of the type in snapshots, logs and digests, as kind_semantics."""
    VERSION: ClassVar[int] = 1
    """Version of the snapshot of the stable part; a restore refuses a newer one."""
    OPERATIONS: ClassVar[Mapping[str, Operation]]

    _own_obsolete: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._own_obsolete = cls.obsolete is not PureOpCRDT.obsolete
        for name, declared in getattr(cls, "OPERATIONS", {}).items():
            if declared.sent_as is not None and declared.sent_as not in cls.OPERATIONS:
                raise TypeError(
                    f"{cls.__name__}.{name} is sent as {declared.sent_as}: no such operation"
                )

    def __init__(self) -> None:
        self.log = POLog()

    # ---- what a type answers ------------------------------------------------------------------

    @abstractmethod
    def arrival(self, operation: Arrived) -> Arrival:
        """Question one: what does `operation` make redundant, and what does it leave? Must not
        change the state.
        """

    def obsolete(self, old: Entry, new: Arrived) -> bool:
        """Whether `old`, in a slot that `new` clears, is redundant now. By default: iff it came
        before.

        A type that overrides this pays a scan of the log for operations that clear everything.
        """
        return old.before(new.tag, new.index)

    def redundant(self, new: Entry) -> bool:
        """Whether `new` says nothing that log and stable part do not say already: then it is not
        stored.

        Asked after the clearing. Must be true at every replica, or change no value.
        """
        return False

    @abstractmethod
    def clear_stable(self, slot: Hashable | Everything) -> None:
        """Forget the stable part of a slot, or all of it: an arrival has cleared it."""

    @abstractmethod
    def stabilise(self, entry: Entry) -> None:
        """Question two: `entry` is stable and has just left the log; keep what it still means,
        without its tag.

        Other entries of its slot may still be unstable: they are concurrent with it.
        """

    @property
    @abstractmethod
    def value(self) -> V:
        """What the object is worth now: immutable, or a fresh copy."""

    def permit(self, name: str, args: Sequence[Any]) -> None:
        """Refuse, with InvalidOperationError, an operation that this state does not allow to
        issue.
        """

    def entered(self, entry: Entry) -> None:
        """`entry` was stored in the log: a place to keep running totals up."""

    def left(self, entry: Entry) -> None:
        """`entry` left the log, as redundant or as stable (then `stabilise` follows)."""

    @abstractmethod
    def dump_stable(self) -> Any:
        """The stable part as something that `exact` accepts, equal for equal stable parts."""

    @abstractmethod
    def load_stable(self, dumped: Any, version: int) -> None:
        """Take over what `dump_stable` of that `VERSION`, or an older one, gave. Raises
        ValueError for anything else.
        """

    # ---- what a replica calls -----------------------------------------------------------------

    def prepare(self, name: str, *args: Any) -> list[Any]:
        """The operation to send, `[name, argument, ...]`; the state stays as it is.

        Raises InvalidOperationError for an unknown name, arguments of the wrong number or type, or
        such as would not arrive as they are.
        """
        declared = self.OPERATIONS.get(name)
        if declared is None:
            known = ", ".join(sorted(self.OPERATIONS))
            raise InvalidOperationError(f"{self.TYPE} has no operation {name!r}; it has {known}")
        try:
            checked = [exact(argument) for argument in declared.check(args)]
        except ValueError as refusal:
            raise InvalidOperationError(f"{self.TYPE}.{name}: {refusal}") from refusal
        self.permit(name, checked)
        return [declared.sent_as or name, *checked]

    def effect(self, operation: Sequence[Any], tag: Tag, index: int = 0) -> None:
        """Deliver operation number `index` of the message tagged `tag`, as `prepare` made it, here
        or elsewhere.

        Raises RemoteProtocolError, the state unchanged, if it is none of this type (a newer
        program's, or garbage).
        """
        name, args = self._checked(operation)
        new = Arrived(name, args, tag, index)
        clears, leaves = self.arrival(new)
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

    def stable(self, tag: Tag) -> None:
        """Every operation of the message tagged `tag` is stable. Harmless if it left nothing
        here.
        """
        for entry in self.log.of_message(tag.dot):
            self.log.discard(entry)
            self.left(entry)
            self.stabilise(entry)

    @property
    def log_size(self) -> int:
        """Entries in the PO-Log: 0 when everything is stable. An `add_all` counts one an
        element.
        """
        return len(self.log)

    def digest(self) -> str:
        """128 bits, in hex, of type and value only: equal wherever the same operations were
        delivered.
        """
        return digest_of(self.TYPE, self.value)

    def __eq__(self, other: object) -> bool:
        """Of one type and worth the same, whatever is stable."""
        if not isinstance(other, PureOpCRDT):
            return NotImplemented
        return self.TYPE == other.TYPE and canonical(self.value) == canonical(other.value)

    __hash__ = None  # type: ignore[assignment]  # an object changes; its value may be hashed

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.value!r}, {self.log_size} unstable>"

    def snapshot(self) -> bytes:
        """The whole state in versioned msgpack: equal bytes for equal log and stable part."""
        return snapshots.pack(self.TYPE, self.VERSION, self.dump_stable(), self.log)

    @classmethod
    def restore(cls, snapshot: bytes) -> Self:
        """The object that `snapshot` was taken of; it goes on exactly where that one stood.

        Raises UnusableInputError for another type's snapshot, a newer version, or damaged bytes.
        """
        taken = snapshots.unpack(snapshot, cls.TYPE, cls.VERSION)
        restored = cls()
        with snapshots.reading(cls.TYPE):
            restored.load_stable(taken.stable, taken.version)
            for entry in taken.entries:
                restored.log.add(entry)
                restored.entered(entry)
        return restored

    # ---- internal -----------------------------------------------------------------------------

    def _checked(self, operation: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
        try:
            name, *args = operation
            declared = self.OPERATIONS.get(name)
            if declared is None or declared.sent_as is not None:
                raise ValueError(f"unknown operation {name!r}")
            return name, declared.check_arrived(args)
        except (TypeError, ValueError) as error:
            raise RemoteProtocolError(
                f"{self.TYPE} cannot apply {ascii(operation)[:200]}: {error}; "
                "the sender's program is newer or wrong"
            ) from error

    def _clear_slot(self, slot: Hashable, new: Arrived) -> None:
        entries = self.log.in_slot(slot)
        if entries:
            for entry in [old for old in entries if self.obsolete(old, new)]:
                self.log.discard(entry)
                self.left(entry)
        self.clear_stable(slot)

    def _clear_everything(self, new: Arrived) -> None:
        if self._own_obsolete:
            gone = [old for old in self.log if self.obsolete(old, new)]
        else:
            gone = self.log.before(new.tag, new.index)
        for entry in gone:
            self.log.discard(entry)
            self.left(entry)
        self.clear_stable(EVERYTHING)
