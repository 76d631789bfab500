"""States of objects before own operations, until those are stable.

A member that is evicted meanwhile, and comes back, compares them with the group's current states, and sends again what
an operation still means: a three-way comparison per object, one operation at a time. Sent again unchanged, operations
would come after all that the group did meanwhile, and an old removal would erase writes that it has never seen.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import suppress
from typing import Any

import msgpack

from crdtcast.causality.member_id import name_of
from crdtcast.causality.tags import Dot, Tag, Vector
from crdtcast.datatypes import Former
from crdtcast.exceptions import CrdtcastError, RemoteProtocolError
from crdtcast.replica.objects import (
    CRDT,
    Effect,
    Forget,
    HeldObject,
    Key,
    Objects,
    Settle,
    Step,
    read_entry,
)

MOST_BYTES = 2**12
MOST_ELEMENTS = 100
"""Most elements of an object that is copied. Of a larger one nothing is known, and its operations use
`rebase_blind`.
"""
MOST_STEPS = 10_000


class _AllBefore(dict[str, int]):
    """The past of an operation that comes after everything."""

    def get(self, origin: str, default: Any = None) -> Any:
        return 1 << 62


_ALL: Vector = _AllBefore()


def keys_of(entries: Iterable[Sequence[Any]]) -> Iterator[Key]:
    """The objects of a message's operations, except deletions."""
    for entry in entries:
        read = read_entry(entry)
        if read is not None and read.type is not None:
            yield read.name, read.type


class ObjectPast:
    """One object before an own operation, and every step since."""

    def __init__(self, packed: list[Any]) -> None:
        self._packed = packed
        self._floor: HeldObject | None = None  # restored when needed, which may be never
        self.own: set[Dot] = set()
        """Unstable own operations among `steps`."""
        self.steps: deque[Step] = deque()

    def settle(self, tag: Tag, objects: Objects) -> None:
        """A message is stable: move into the floor the steps that no own operation needs any more."""
        self.own.discard(tag.dot)
        self.steps.append(Settle(tag))
        if not self.own:
            return  # this past is not needed any more
        while self.steps[0].tag.dot not in self.own:
            if self._floor is None:
                self._floor = _restored(self._packed, objects)
            _take(self._floor, self.steps.popleft())

    def floor(self) -> list[Any]:
        """The object before `steps`, packed."""
        return self._packed if self._floor is None else self._floor.packed()


class ObjectPasts:
    """The pasts of one member's objects."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pasts: dict[Key, ObjectPast] = {}
        self._large: set[Key] = set()
        self._remembered: dict[Dot, dict[int, Any]] = {}
        """For own operations on large objects: what their types want to remember."""

    def __len__(self) -> int:
        return len(self._pasts)

    def delivers(self, entries: Iterable[Sequence[Any]], tag: Tag, objects: Objects) -> None:
        """Note operations that are about to be applied."""
        own = name_of(tag.dot.origin) == self._name
        for index, entry in enumerate(entries):
            read = read_entry(entry)
            if read is None:
                continue
            if read.type is None:
                step: Step = Forget(tag, index)
                keys = [held.key for held in objects.named(read.name) if held.presence]
            else:
                step = Effect(tag, index, read.version, read.operation)
                keys = [(read.name, read.type)]
            for key in keys:
                self._takes(key, step, objects, own=own)

    def _takes(self, key: Key, step: Step, objects: Objects, *, own: bool) -> None:
        past = self._pasts.get(key)
        if past is None and own and key not in self._large:
            packed = _packed(objects, key)
            if packed is None:
                self._large.add(key)
            else:
                past = self._pasts[key] = ObjectPast(packed)
        if past is None:
            if own and isinstance(step, Effect):
                self._remember(key, step, objects)
            return
        past.steps.append(step)
        if own:
            past.own.add(step.tag.dot)
        if len(past.steps) > MOST_STEPS:
            del self._pasts[key]
            self._large.add(key)  # for later operations the state before would be unknown

    def _remember(self, key: Key, step: Effect, objects: Objects) -> None:
        with suppress(CrdtcastError):  # an operation that this program does not understand
            remembered = objects.crdt(key).remember(list(step.operation))
            if remembered is not None:
                self._remembered.setdefault(step.tag.dot, {})[step.index] = remembered

    def remembered(self, dot: Dot, index: int) -> Any:
        """What the type of a large object remembered before that operation."""
        return self._remembered.get(dot, {}).get(index)

    def stable(self, tag: Tag, keys: Iterable[Key], objects: Objects) -> None:
        """Note that a message on these objects is stable."""
        self._remembered.pop(tag.dot, None)
        for key in keys:
            past = self._pasts.get(key)
            if past is None:
                continue
            past.settle(tag, objects)
            if not past.own:
                del self._pasts[key]

    def dots(self, key: Key) -> set[Dot]:
        """The messages on that object since the start of its past."""
        past = self._pasts.get(key)
        return set() if past is None else {step.tag.dot for step in past.steps}

    def before(self, key: Key, first: Dot, objects: Objects) -> HeldObject | None:
        """That object without the own operations from `first` on; None if it is unknown."""
        incarnation, counter = first
        past = self._pasts.get(key)
        if past is None or not any(step.tag.dot.origin == incarnation for step in past.steps):
            return None
        base = _restored(past.floor(), objects)
        for step in past.steps:
            dot = step.tag.dot
            if dot.origin != incarnation or dot.counter < counter:
                _take(base, step)
        return base

    def named(self, name: str) -> set[Key]:
        """Objects with a past, of that name."""
        return {key for key in self._pasts if key[0] == name}

    def __bool__(self) -> bool:
        return bool(self._pasts or self._remembered)

    def packed(self) -> tuple[list[Any], list[Any]]:
        """The data for `load`: the pasts, and what is remembered instead."""
        packed = []
        for _, past in sorted(self._pasts.items()):
            steps = [step.packed() for step in past.steps]
            packed.append([*past.floor()[:-1], steps])  # as a backlog
        remembered = [
            [*dot, list(known.items())] for dot, known in sorted(self._remembered.items())
        ]
        return packed, remembered

    def load(self, packed: Iterable[Any], remembered: Iterable[Any] = ()) -> None:
        """Continue from what a former life of this member has packed."""
        for origin, counter, known in remembered:
            self._remembered[Dot(origin, counter)] = dict(known)
        for each in packed:
            held = HeldObject.unpacked(each)
            past = self._pasts[held.key] = ObjectPast([*each[:-1], []])
            past.steps.extend(held.backlog)
            dots = {step.tag.dot for step in past.steps}
            settled = {step.tag.dot for step in past.steps if isinstance(step, Settle)}
            past.own = {dot for dot in dots - settled if name_of(dot.origin) == self._name}


class Rebasing:
    """What own operations of one ended incarnation still mean, one after the other.

    pasts: those at the incarnation's end.
    first: the first operation that the group does not have.
    home: all objects at the incarnation's end; None after a restart.
    renamed: see `Former`.
    """

    def __init__(
        self,
        pasts: ObjectPasts,
        first: Dot,
        objects: Objects,
        home: Objects | None,
        renamed: Callable[[Dot, int], tuple[Dot, int] | None],
    ) -> None:
        self._pasts = pasts
        self._first = first
        self._latest = Dot(first.origin, 0)
        self._objects = objects
        self._home = home
        self._renamed = renamed
        self._known: dict[Key, tuple[HeldObject, HeldObject, HeldObject] | None] = {}
        self._dots: dict[Key, set[Dot]] = {}
        self._noted: dict[Key, dict[Any, Any]] = {}

    def goes_on(self, dot: Dot) -> bool:
        """Whether that message comes after those handled so far. A message that comes again could not be sent: then a
        new `Rebasing` starts with it.
        """
        return dot.origin == self._latest.origin and dot.counter > self._latest.counter

    def again(self, entry: list[Any], dot: Dot, index: int) -> list[list[Any]]:
        """What to send instead of this operation, number `index` of a message; nothing if it yields."""
        self._latest = dot
        read = read_entry(entry)
        try:
            if read is None:
                return []
            if read.type is None:
                return self._delete(entry, dot, index)
            key = (read.name, read.type)
            self._check_past(key, dot)
            if self._compared(key) is None:
                issued = self._blindly(key, read.operation, dot, index)
            else:
                issued = self._operate(key, read.operation, dot, index)
            return [self._objects.entry(key, each) for each in issued]
        except CrdtcastError:  # an operation, or an object, that this program does not understand
            return []

    def _check_past(self, key: Key, dot: Dot) -> None:
        """A past is useless if it begins after an operation that the group lacks, too: a restart has forgotten that the
        object was large.
        """
        if key not in self._dots:
            self._dots[key] = self._pasts.dots(key)
        if dot not in self._dots[key]:
            self._known[key] = None

    def _blindly(self, key: Key, operation: list[Any], dot: Dot, index: int) -> list[list[Any]]:
        present = self._objects.crdt(key)
        present.check_arriving(operation)
        held = None if self._home is None else self._home.get(key)
        home = None if held is None or type(held.crdt) is not type(present) else held.crdt
        remembered = self._pasts.remembered(dot, index)
        noted = self._noted.setdefault(key, {})
        former = Former(dot, index, home, self._renamed, remembered, noted)
        return type(present).rebase_blind(operation, present, former)

    def _operate(self, key: Key, operation: list[Any], dot: Dot, index: int) -> list[list[Any]]:
        compared = self._known[key]
        assert compared is not None
        base, at_home, theirs = (_understood(held) for held in compared)
        present = self._objects.crdt(key)
        former = Former(dot, index, at_home, self._renamed)
        issued = type(base).rebase_behind(operation, base, theirs, at_home, present, former)
        step = Effect(Tag(dot, (), _ALL), index, type(base).VERSION, operation)
        compared[1].take(step)
        return issued

    def _delete(self, entry: list[Any], dot: Dot, index: int) -> list[list[Any]]:
        """Send a deletion again only if all objects of the name are unchanged, because it deletes all of them."""
        name = entry[0]
        present = {held.key for held in self._objects.named(name) if held.presence}
        keys = self._pasts.named(name) | present
        outcomes = [self._still_is(key) for key in sorted(keys)]
        for key in sorted(keys):
            if (compared := self._compared(key)) is not None:
                compared[1].take(Forget(Tag(dot, (), _ALL), index))
        return [entry] if present and all(outcomes) else []

    def _still_is(self, key: Key) -> bool:
        compared = self._compared(key)
        if compared is None:
            return False
        base, at_home, theirs = map(_understood, compared)
        return bool(base == theirs and at_home == self._objects.crdt(key))

    def _compared(self, key: Key) -> tuple[HeldObject, HeldObject, HeldObject] | None:
        """Base, home so far, and the group's state, as of the first call."""
        if key not in self._known:
            base = self._pasts.before(key, self._first, self._objects)
            theirs = _packed(self._objects, key)
            found = None
            if base is not None and theirs is not None:
                home = _restored(base.packed(), self._objects)
                found = (base, home, _restored(theirs, self._objects))
            self._known[key] = found
        return self._known[key]


def _take(held: HeldObject, step: Step) -> None:
    with suppress(RemoteProtocolError):  # an invalid operation: the object has skipped it, too
        held.take(step)


def _understood(held: HeldObject) -> CRDT:
    assert held.crdt is not None  # otherwise `_packed` would have returned None
    return held.crdt


def _packed(objects: Objects, key: Key) -> list[Any] | None:
    """The packed state of an object; None if it is large, or not understood."""
    held = objects.get(key)
    if held is None:
        if objects.type_named(key[1]) is None:
            return None
        held = HeldObject(key)
        held.crdt = objects.fresh(key)
    crdt = held.crdt
    if held.behind or crdt is None or crdt.log_size > MOST_ELEMENTS:
        return None
    if isinstance(crdt, Sized) and len(crdt) > MOST_ELEMENTS:
        return None
    packed = held.packed()
    return packed if len(msgpack.packb(packed)) <= MOST_BYTES else None


def _restored(packed: list[Any], objects: Objects) -> HeldObject:
    held = HeldObject.unpacked(packed)
    known = objects.type_named(held.key[1])
    if known is not None:
        held.understand(known, objects.site)
    return held
