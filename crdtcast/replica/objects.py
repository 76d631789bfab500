"""The objects of one replica, by name and type: what a message's operations do to them, which type a name has, and
which operations this program does not understand yet.

This file knows no network and no clock. A message is a list of operations, [name, type, operation, argument, …] or, for
a deletion, [name, None]. The type is its name, or [name, version] above version 1. An operation of a newer program is
stored, with all later ones on its object, and takes effect once this program knows it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import isabstract
from typing import Any, NamedTuple, TypeAlias

import msgpack

from crdtcast import datatypes
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import PureOpCRDT
from crdtcast.datatypes.maps import CATALOGUE
from crdtcast.datatypes.operations import MAX_INTEGER, natural, positive
from crdtcast.datatypes.pure import KEPT
from crdtcast.datatypes.site import Site
from crdtcast.exceptions import (
    InvalidOperationError,
    LocalProtocolError,
    NewerOperationError,
    RemoteProtocolError,
    TypeClashError,
    UnusableInputError,
)
from crdtcast.msgpack_limits import TooManyError, unpacked_within
from crdtcast.short_repr import shown

Key: TypeAlias = tuple[str, str]
"""An object's name and its type's name."""
CRDT: TypeAlias = PureOpCRDT[Any]


def known_types() -> dict[str, type[CRDT]]:
    """The types of this package, by their name in messages."""
    return dict(CATALOGUE)


def checked_name(name: str) -> str:
    """The name of an object. Raises InvalidOperationError if it cannot be sent."""
    try:
        checked: str = datatypes.text(name)
    except ValueError as refusal:
        raise InvalidOperationError(f"invalid object name: {refusal}") from refusal
    return checked


def check_data_type(crdt_type: type[CRDT]) -> None:
    """Raises LocalProtocolError if this is not a data type for objects."""
    if (
        not isinstance(crdt_type, type)
        or not issubclass(crdt_type, PureOpCRDT)
        or not (hasattr(crdt_type, "TYPE") and hasattr(crdt_type, "OPERATIONS"))
        or isabstract(crdt_type)
    ):
        raise LocalProtocolError(
            f"{shown(crdt_type)} is not a data type: use a class of crdtcast.datatypes, or a "
            "subclass of PureOpCRDT with a TYPE, OPERATIONS and all of its abstract methods"
        )


_MOST_KEPT = 4096
"""Largest image of an object to keep, in bytes."""

# Steps of an object, kept for later if this program cannot understand them now.


@dataclass(frozen=True, slots=True)
class Effect:
    """An operation arrives; `version` is that of the sender's type."""

    tag: Tag
    index: int
    version: int
    operation: Sequence[Any]

    def take(self, crdt: CRDT) -> None:
        crdt.effect(self.operation, self.tag, self.index, self.version)

    def packed(self) -> list[Any]:
        return ["effect", *_packed_tag(self.tag), self.index, self.version, list(self.operation)]


@dataclass(frozen=True, slots=True)
class Forget:
    """A deletion arrives: it removes what came before it."""

    tag: Tag
    index: int

    def take(self, crdt: CRDT) -> None:
        crdt.forget(self.tag, self.index)

    def packed(self) -> list[Any]:
        return ["forget", *_packed_tag(self.tag), self.index]


@dataclass(frozen=True, slots=True)
class Settle:
    """A message is stable."""

    tag: Tag

    def take(self, crdt: CRDT) -> None:
        crdt.stable(self.tag)

    def packed(self) -> list[Any]:
        return ["settle", *_packed_tag(self.tag)]


Step: TypeAlias = Effect | Forget | Settle


def _packed_tag(tag: Tag) -> list[Any]:
    return [*tag.dot, dict(tag.past)]


def _unpacked_step(packed: list[Any]) -> Step:
    kind, origin, counter, past, *rest = packed
    tag = Tag(
        Dot(datatypes.text(origin), natural(counter)),
        (),
        {datatypes.text(name): natural(seen) for name, seen in past.items()},
    )
    match kind, rest:
        case "effect", [index, version, [*operation]]:
            return Effect(tag, natural(index), positive(version), operation)
        case "forget", [index]:
            return Forget(tag, natural(index))
        case "settle", []:
            return Settle(tag)
    raise ValueError(f"{shown(packed)} is not a step")


class Presence:
    """Whether some operation on an object has not been deleted: an enable-wins flag. Operations set it, and deletions
    clear what they have seen.
    """

    __slots__ = ("latest", "settled")

    def __init__(self) -> None:
        self.latest: dict[str, tuple[int, int]] = {}
        """Origin -> counter and index of its newest operation, until that is stable."""
        self.settled: bool = False
        """There is a stable operation; every later deletion has seen it."""

    def __bool__(self) -> bool:
        return self.settled or bool(self.latest)

    def add(self, tag: Tag, index: int) -> None:
        self.latest[tag.dot.origin] = (tag.dot.counter, index)

    def forget(self, tag: Tag, index: int) -> None:
        self.settled = False
        for origin, (counter, at) in list(self.latest.items()):
            same = (origin, counter) == tag.dot
            if at < index if same else counter <= tag.past.get(origin, 0):
                del self.latest[origin]

    def stable(self, tag: Tag) -> None:
        newest = self.latest.get(tag.dot.origin)
        if newest is not None and newest[0] == tag.dot.counter:
            del self.latest[tag.dot.origin]
            self.settled = True


class HeldObject:
    """One object: its state as far as this program understands it, and the steps that it does not understand."""

    __slots__ = (
        "_image",
        "_waiting",
        "backlog",
        "base",
        "crdt",
        "key",
        "presence",
        "unread",
        "version",
    )

    def __init__(self, key: Key) -> None:
        self.key: tuple[str, str] = key
        self.presence: Presence = Presence()
        self.crdt: CRDT | None = None
        """None if this program does not know its type or version."""
        self.base: bytes | None = None
        """Snapshot from which `backlog` continues; None: from nothing."""
        self.version: int = 1
        """Version of the type when `base` was taken."""
        self.backlog: list[Step] = []
        """All steps since the first operation of a newer program, or all steps of an unknown type."""
        self.unread: int = 0
        """Operations in `backlog` that only a newer program understands."""
        self._waiting: set[Dot] = set()
        """Messages in `backlog` that are not stable."""
        self._image: bytes | None = None
        """`packed` as bytes, until the next change, if it is small."""

    @property
    def behind(self) -> bool:
        return self.crdt is None or self.unread > 0

    @property
    def needed(self) -> bool:
        """Whether a message that may still arrive could need this state. Deleted parts may have to stay until their
        deletion is stable: for instance a list's dead positions, to which others may refer. Those of some types stay
        for good, which their name tells.
        """
        if self.presence or self._waiting:
            return True
        crdt = None if self.behind else self.crdt
        if crdt is None:  # all of its operations have been deleted, whatever they were
            return self.key[1].endswith(KEPT)
        return bool(crdt.log_size) or not crdt.untouched

    def _keep(self, step: Step) -> None:
        self.backlog.append(step)
        self.unread += self.crdt is None and isinstance(step, Effect)
        if isinstance(step, Settle):
            self._waiting.discard(step.tag.dot)
        else:
            self._waiting.add(step.tag.dot)

    def take(self, step: Step) -> None:
        """Take a step. Raises RemoteProtocolError, and changes nothing, if no program knows the operation: every
        replica skips it, whatever its version.
        """
        self._image = None
        crdt = self.crdt
        if crdt is None:
            self._keep(step)
            return
        try:
            step.take(crdt)
        except NewerOperationError:
            if not self.unread:
                self.base, self.version = crdt.snapshot(), crdt.VERSION
            self.unread += 1
        if self.unread:
            self._keep(step)

    def understand(self, crdt_type: type[CRDT], site: Site | None) -> int:
        """Change to another class of the type: from the base, through the backlog. Returns the number of operations
        skipped.
        """
        self._image = None
        base, backlog = self.base, self.backlog
        if not self.behind:
            assert self.crdt is not None
            base, backlog = self.crdt.snapshot(), []
        self.crdt = crdt_type() if base is None else crdt_type.restore(base)
        self.crdt.site = site
        self.base, self.backlog, self.unread, self._waiting = None, [], 0, set()
        skipped = 0
        for step in backlog:
            try:
                self.take(step)
            except RemoteProtocolError:
                skipped += 1
        return skipped

    def packed(self) -> list[Any]:
        base, version = self.base, self.version
        if self.crdt is not None and not self.behind:
            base, version = self.crdt.snapshot(), self.crdt.VERSION
        presence = {origin: list(at) for origin, at in self.presence.latest.items()}
        steps = [step.packed() for step in self.backlog]
        return [*self.key, presence, self.presence.settled, version, base, steps]

    def image(self) -> bytes:
        """`packed`, as bytes. Costs almost nothing if nothing has changed since the last call."""
        if self._image is not None:
            return self._image
        image = packed(self.packed())
        if len(image) <= _MOST_KEPT:
            self._image = image
        return image

    @classmethod
    def unpacked(cls, packed: list[Any]) -> "HeldObject":
        name, type_name, presence, settled, version, base, steps = packed
        held = cls((datatypes.text(name), datatypes.text(type_name)))
        held.presence.latest = {
            datatypes.text(origin): (natural(counter), natural(index))
            for origin, (counter, index) in presence.items()
        }
        if type(settled) is not bool or not (base is None or type(base) is bytes):
            raise ValueError(f"{shown([settled, base])} is not a boolean and a snapshot")
        held.presence.settled = settled
        held.base, held.version = base, positive(version)
        for step in steps:
            held._keep(_unpacked_step(step))
        return held


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One line of a listing.

    visible: whether the name means this object; otherwise an object of another type, created concurrently under the
        same name, has won.
    known: whether this program understands any of it.
    unknown: operations that are stored until this program is upgraded.
    unstable: entries in its log.
    """

    name: str
    type: str
    visible: bool
    known: bool
    unknown: int
    unstable: int


class Objects:
    """All objects of a replica. Deterministic: the same messages in any causal order give the same
    listing, the same visible types and the same values.
    """

    def __init__(self, types: Iterable[type[CRDT]] = (), site: Site | None = None) -> None:
        self.site = site
        self.touched: dict[Dot, list[Key]] = {}
        """Message -> objects to notify when it is stable."""
        self._types = known_types()
        if not isinstance(types, Iterable) or isinstance(types, type):
            raise LocalProtocolError(f"types is {shown(types)}: give a list of data types")
        for crdt_type in types:
            check_data_type(crdt_type)
            self._types[crdt_type.TYPE] = crdt_type
        self._names: dict[str, dict[str, HeldObject]] = {}

    # Types

    def check_upgrade(self, crdt_type: type[CRDT]) -> None:
        """Raises LocalProtocolError if another class has the type's name, in this version or a newer one."""
        known = self._types.get(crdt_type.TYPE)
        if known not in (None, crdt_type) and known.VERSION >= crdt_type.VERSION:
            raise LocalProtocolError(
                f"{crdt_type.__name__} uses TYPE {crdt_type.TYPE!r}, which is {known.__name__} in "
                f"version {known.VERSION} at this member: choose another TYPE, or raise its "
                "VERSION"
            )

    def learn(self, crdt_type: type[CRDT]) -> int:
        """Register a type, or a newer version of it; operations stored for it take effect.

        Returns the number of operations that turned out to be invalid. Raises LocalProtocolError as `check_upgrade`
        does.
        """
        if self.knows(crdt_type):
            return 0
        self.check_upgrade(crdt_type)
        self._types[crdt_type.TYPE] = crdt_type
        concerned = [
            held
            for types in self._names.values()
            for held in types.values()
            if held.key[1] == crdt_type.TYPE and held.version <= crdt_type.VERSION
        ]
        skipped = 0
        for held in concerned:
            skipped += held.understand(crdt_type, self.site)
            self._review(held)
        return skipped

    @property
    def types(self) -> tuple[type[CRDT], ...]:
        """All types that this program knows."""
        return tuple(self._types.values())

    def knows(self, crdt_type: type[CRDT]) -> bool:
        return self._types.get(crdt_type.TYPE) is crdt_type

    def type_named(self, type_name: str) -> type[CRDT] | None:
        return self._types.get(type_name)

    # Reading

    def __iter__(self) -> Iterator[HeldObject]:
        """All existing objects, by name and type."""
        return (held for held in self._all() if held.presence)

    def _all(self) -> Iterator[HeldObject]:
        for name in sorted(self._names):
            types = self._names[name]
            yield from (types[type_name] for type_name in sorted(types))

    def named(self, name: str) -> list[HeldObject]:
        """All objects of that name, by type, including what is left of deleted ones."""
        types = self._names.get(name, {})
        return [types[type_name] for type_name in sorted(types)]

    def listing(self, prefix: str = "") -> list[ObjectInfo]:
        if not isinstance(prefix, str):
            raise LocalProtocolError(
                f"cannot list the objects with prefix {shown(prefix)}: give the beginning of their names, a str"
            )
        return [
            ObjectInfo(
                name=held.key[0],
                type=held.key[1],
                visible=self.visible_type(held.key[0]) == held.key[1],
                known=held.crdt is not None,
                unknown=held.unread,
                unstable=0 if held.crdt is None else held.crdt.log_size,
            )
            for held in self
            if held.key[0].startswith(prefix)
        ]

    def visible_type(self, name: str) -> str | None:
        """The type that a name has. Of several, created concurrently, the first in the alphabet: replicas that have
        delivered the same have the same ones.
        """
        held = self._names.get(name, {}).values()
        return min((each.key[1] for each in held if each.presence), default=None)

    def check_type(self, key: Key) -> None:
        """Raises TypeClashError if the name has another type."""
        name, type_name = key
        types = self._names.get(name)
        if types is None or (len(types) == 1 and type_name in types):
            return
        found = self.visible_type(name)
        if found is not None and found != type_name:
            raise TypeClashError(
                f"{shown(name)} is a {found} at this member, not a {type_name}: use another name, "
                "or delete it",
                name=name,
                wanted=type_name,
                found=found,
            )

    def get(self, key: Key) -> HeldObject | None:
        """The object, if it exists."""
        held = self._find(key)
        return held if held is not None and held.presence else None

    def _find(self, key: Key) -> HeldObject | None:
        """The object, or what is left of a deleted one."""
        return self._names.get(key[0], {}).get(key[1])

    def crdt(self, key: Key) -> CRDT:
        """The object's state; that of a new object if it does not exist. Raises LocalProtocolError if this program
        cannot understand it.
        """
        held = self._find(key)
        if held is None:
            return self.fresh(key)
        if held.crdt is None:
            raise LocalProtocolError(
                f"{shown(key[0])} is a {key[1]} in version {held.version}, which this program "
                "does not know: upgrade it"
            )
        return held.crdt

    def understands(self, key: Key) -> bool:
        """Whether `crdt` can return that object's state."""
        held = self._find(key)
        return key[1] in self._types if held is None else held.crdt is not None

    def fresh(self, key: Key) -> CRDT:
        """A new object, as directly after a deletion."""
        crdt_type = self._types.get(key[1])
        if crdt_type is None:
            raise LocalProtocolError(f"this program does not know type {key[1]!r}")
        crdt = crdt_type()
        crdt.site = self.site
        return crdt

    def prepare(
        self, key: Key, operation: str, args: Sequence[Any], after: Sequence[Sequence[Any]] = ()
    ) -> list[Any]:
        """What to send for an operation. Raises InvalidOperationError if it is refused, TypeClashError if the name has
        another type.
        """
        checked_name(key[0])
        self.check_type(key)
        held = self._find(key)
        crdt = self.crdt(key)
        if held is not None and held.unread and type(crdt).permit is not PureOpCRDT.permit:
            raise InvalidOperationError(
                f"{shown(key[0])} has {held.unread} operations of a newer program, so this one "
                f"cannot decide whether {operation} is allowed: upgrade it, or delete the object"
            )
        return crdt.prepare(operation, *args, after=after)

    def entry(self, key: Key, prepared: Sequence[Any]) -> list[Any]:
        """The form of a prepared operation in a message."""
        name, type_name = key
        version = self._types[type_name].VERSION
        return [name, type_name if version == 1 else [type_name, version], *prepared]

    # Messages

    def deliver(self, entries: Sequence[Any], tag: Tag) -> tuple[list[Key], list[str]]:
        """Apply a message's operations, local or remote. Returns the objects concerned, and errors of invalid
        operations; every replica skips the same ones.
        """
        keys: list[Key] = []
        wrong: list[str] = []
        operations = [read_entry(entry) for entry in entries]
        # Of a name's deletions in one message, the last one includes the earlier ones.
        deleted = {
            read.name: at for at, read in enumerate(operations) if read and read.type is None
        }
        for index, read in enumerate(operations):
            if read is None:
                wrong.append("not a list of object, type and operation")
                continue
            name, type_name, version, operation = read
            if type_name is None:
                if deleted[name] == index:
                    keys += self._delete(name, Forget(tag, index))
                continue
            key = (name, type_name)
            try:
                self._apply(key, Effect(tag, index, version, operation))
            except RemoteProtocolError as error:
                wrong.append(str(error))
            keys.append(key)
        self.touched[tag.dot] = keys = list(dict.fromkeys(keys))
        return keys, wrong

    def _apply(self, key: Key, step: Effect) -> None:
        held = self._find(key)
        if held is None:
            held = HeldObject(key)
            if key[1] in self._types:
                held.crdt = self.fresh(key)
        held.take(step)
        held.presence.add(step.tag, step.index)
        self._names.setdefault(key[0], {})[key[1]] = held

    def _delete(self, name: str, step: Forget) -> list[Key]:
        deleted = self.named(name)
        for held in deleted:
            held.presence.forget(step.tag, step.index)
            held.take(step)
            self._review(held)
        return [held.key for held in deleted]

    def _review(self, held: HeldObject) -> None:
        """Drop a deleted object that is not needed any more."""
        if held.needed:
            return
        name, type_name = held.key
        types = self._names[name]
        del types[type_name]
        if not types:
            del self._names[name]

    def stable(self, tag: Tag) -> list[Key]:
        """Note that a message is stable. Returns the objects concerned."""
        keys = self.touched.pop(tag.dot, [])
        for key in keys:
            held = self._find(key)
            if held is not None:
                held.presence.stable(tag)
                held.take(Settle(tag))
                if not held.presence:
                    self._review(held)
        return keys

    # Saving

    def packed(self) -> list[Any]:
        return [held.packed() for held in self._all()]

    def image(self) -> bytes:
        """`packed`, as bytes. Unchanged objects are not packed again."""
        return joined(*(held.image() for held in self._all()))

    def load(self, packed: Sequence[Any]) -> int:
        """Continue from a result of `packed`; the caller restores `touched`. Returns the number of operations that
        turned out to be invalid. Raises UnusableInputError if the data is damaged.
        """
        skipped = 0
        try:
            loaded = [HeldObject.unpacked(line) for line in packed]
        except (TypeError, ValueError, AttributeError) as error:
            raise UnusableInputError(f"the saved state has a damaged object: {error}") from error
        for held in loaded:
            crdt_type = self._types.get(held.key[1])
            if crdt_type is not None and held.version <= crdt_type.VERSION:
                skipped += held.understand(crdt_type, self.site)
            self._names.setdefault(held.key[0], {})[held.key[1]] = held
        return skipped


class Read(NamedTuple):
    """A parsed operation of a message: on an object of a type, in the sender's version of it; or (no type) the deletion
    of a name.
    """

    name: str
    type: str | None
    version: int
    operation: list[Any]


def read_entry(entry: Any) -> Read | None:
    """Parse an operation of a message; None if it is invalid, for every replica."""
    match entry:
        case [str(name), None]:
            return Read(name, None, 1, [])
        case [str(name), str(type_name), *operation]:
            return Read(name, type_name, 1, operation)
        case [str(name), [str(type_name), version], *operation]:
            if type(version) is int and 1 < version <= MAX_INTEGER:
                return Read(name, type_name, version, operation)
    return None


MOST_PARTS = 2**18
"""Lists and dictionaries in one message, including operations: an empty one is one byte that becomes sixty."""


def are_operations(entries: Any) -> bool:
    """Whether this is a list of lists: otherwise every replica ignores all of it."""
    return isinstance(entries, list) and all(type(entry) is list for entry in entries)


def check_parts(payload: bytes) -> None:
    """Raises InvalidOperationError if no replica would unpack this."""
    if len(payload) <= MOST_PARTS:
        return  # each takes at least a byte
    try:
        unpacked_within(payload, MOST_PARTS)
    except TooManyError as error:
        raise InvalidOperationError(f"{error}: send them as several messages") from error


def joined(*images: bytes) -> bytes:
    """The packed list of items, given the packed bytes of each."""
    header: bytes = msgpack.Packer().pack_array_header(len(images))
    return header + b"".join(images)


def packed(entries: Sequence[Any]) -> bytes:
    payload: bytes = msgpack.packb(entries)
    return payload
