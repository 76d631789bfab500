"""The PO-Log of a gateway: the unstable atoms of every slot. A stable atom *is* its native value in the server.

Rules (docs/redis.md): a kill is never stored; stability removes a message's atoms and changes no value. This file knows
no server and no type: it answers what is left of a slot, and what that is worth.

A large add or kill of presences costs almost nothing: it stays the list that it came as, after those before it. Members
are indexed only when they must be distinguished: by a look, or a kill that has not seen all of the adds. Members with
the same atoms share one tuple.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import ClassVar, NamedTuple, TypeAlias

from crdtcast.adapters.redis.deadlines.atoms import Deadline, DeadlineLog
from crdtcast.adapters.redis.store.databases import names_in
from crdtcast.adapters.redis.store.effects import (
    WHOLE,
    Assign,
    Effect,
    Expire,
    Inc,
    KillAll,
    KillData,
    KillKey,
    KillSlots,
    One,
    RedisType,
    Reg,
    Replace,
    Until,
    pairs_of,
)
from crdtcast.adapters.redis.store.slot_value import (
    Atom,
    Atoms,
    Number,
    Only,
    Register,
    Worth,
    worth_of,
)
from crdtcast.causality.tags import Dot, Tag, make_tuple

_MANY = 1000
"""An add or kill with at least this many members is not indexed."""
_FEW = 8
"""Up to this many members of an add are indexed one by one: that is faster for so few."""


class _Large(NamedTuple):
    """A large add, or, without an atom, a kill of members that has seen all adds before it."""

    members: Collection[bytes]
    atom: Atom | None


class SlotLog:
    """Unstable atoms of one type under one key: presences and registers by slot, and increments by slot.

    A large add does not remove the atoms that it has seen: any effect that removes the add removes these, too, so they
    add no value.
    """

    __slots__ = ("_held", "_large", "_seen_by", "increments")

    def __init__(
        self,
        increments: dict[bytes, dict[Atom, Number]] | None = None,
        held: dict[bytes, Atoms] | None = None,
    ) -> None:
        self.increments: dict[bytes, dict[Atom, Number]] = increments or {}
        self._held: dict[bytes, Atoms] = held or {}
        """Atoms by slot, except those in `_large`."""
        self._large: list[_Large] = []
        """In the order of application; the first one is an add."""
        self._seen_by: dict[str, int] = {}
        """Counters by origin: a tag that has seen these has seen all large adds."""

    def __bool__(self) -> bool:
        return bool(self.increments or self._large or self._held)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SlotLog):
            return NotImplemented
        return self.increments == other.increments and self.held == other.held

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # it changes

    def __len__(self) -> int:
        """Number of atoms; for large adds an upper bound."""
        large = sum(len(members) for members, atom in self._large if atom is not None)
        deltas = sum(map(len, self.increments.values()))
        return deltas + sum(map(len, self._held.values())) + large

    def copy(self) -> "SlotLog":
        """An independent copy."""
        increments = {slot: dict(deltas) for slot, deltas in self.increments.items()}
        copy = SlotLog(increments, dict(self._held))
        copy._large, copy._seen_by = list(self._large), dict(self._seen_by)
        return copy

    @property
    def held(self) -> dict[bytes, Atoms]:
        """Presences and registers by slot."""
        if self._large:
            later, self._held = self._held, {}
            for members, atom in self._large:
                if atom is None:
                    for member in members:
                        self._held.pop(member, None)
                else:
                    self._index(dict.fromkeys(members, (atom,)))
            self._index(later)
            self._drop_large()
        return self._held

    def slots(self) -> Collection[bytes]:
        """Slots with unstable atoms."""
        held = self.held
        return held.keys() | self.increments.keys() if self.increments else held.keys()

    def worth(self, slot: bytes) -> Worth | None:
        """The value of a slot by its unstable atoms alone; None if it has none."""
        return worth_of(self.held.get(slot, ()), self.increments.get(slot, {}).values())

    def survivors(self) -> dict[bytes, Worth]:
        """The values of all slots by their unstable atoms alone."""
        if not self.increments:  # presences, mostly
            return {slot: worth_of(atoms, ()) for slot, atoms in self.held.items()}  # type: ignore[misc]
        return {slot: self.worth(slot) for slot in self.slots()}  # type: ignore[misc]  # they have atoms

    def _index(self, added: dict[bytes, Atoms]) -> None:
        """Add these atoms to these members."""
        held = self._held
        if not held.keys().isdisjoint(added.keys()):
            for member in added.keys() & held.keys():
                added[member] = held[member] + added[member]
        held.update(added)

    def _drop_large(self) -> None:
        self._large.clear()
        self._seen_by.clear()

    def add(self, members: Collection[bytes], atom: Atom, tag: Tag) -> None:
        """Give each of these members the atom; earlier atoms are superseded if `tag` has seen them."""
        held, number = self._held, len(members)
        if number <= _FEW:
            alone = (atom,)
            for member in members:
                atoms = held.get(member)
                if atoms is None:
                    held[member] = alone
                else:
                    still = [other for other in atoms if not comes_before(other, tag)]
                    held[member] = (*still, atom) if still else alone
            return
        if number >= _MANY:
            self._large.append(_Large(members, atom))
            origin, counter = atom.dot
            self._seen_by[origin] = max(counter, self._seen_by.get(origin, 0))
            return
        added: dict[bytes, Atoms] = dict.fromkeys(members, (atom,))
        if not held.keys().isdisjoint(added.keys()):
            left_after = _left_after(tag)
            for member in added if len(added) <= len(held) else held:
                atoms = held.get(member)
                if atoms is not None and member in added and (left := left_after(atoms)):
                    added[member] = (*left, atom)
        held.update(added)

    def write(self, registers: Mapping[bytes, Register], tag: Tag) -> None:
        """Give each slot its register; what it had before is removed as far as `tag` has seen it."""
        self.kill(registers, tag)
        held = self._held
        for slot, register in registers.items():
            held[slot] = (*held.get(slot, ()), register)

    def increase(self, slot: bytes, delta: Number, atom: Atom) -> bool:
        """Add a delta to a slot; deltas of one effect add up (nothing came between them). Returns whether it is new."""
        deltas = self.increments.setdefault(slot, {})
        is_new = atom not in deltas
        deltas[atom] = delta if is_new else deltas[atom] + delta
        return is_new

    def kill(self, slots: Collection[bytes], tag: Tag) -> Collection[bytes]:
        """Drop what comes before `tag` in these slots. Returns the slots of which nothing is left."""
        if self._large:
            if all(
                tag.past.get(origin, 0) >= counter or tag.dot == (origin, counter)
                for origin, counter in self._seen_by.items()
            ):
                self._large.append(_Large(slots, None))
            else:
                self.held  # noqa: B018  # indexes them
        counted = self._kill_increments(slots, tag) if self.increments else ()
        held = self._held
        if not held:
            return [slot for slot in slots if slot not in counted] if counted else slots
        left_after = _left_after(tag)
        kept = bool(counted)
        gone: list[bytes] = []
        for slot in slots:
            atoms = held.get(slot)
            if atoms is not None:
                if left := left_after(atoms):
                    held[slot] = left
                    kept = True
                    continue
                del held[slot]
            if slot not in counted:
                gone.append(slot)
        return gone if kept else slots

    def _kill_increments(self, slots: Collection[bytes], tag: Tag) -> Collection[bytes]:
        """Drop the increments that `tag` has seen. Returns the slots that keep some."""
        counted: list[bytes] = []
        for slot in slots if len(slots) < len(self.increments) else list(self.increments):
            deltas = self.increments.get(slot)
            if deltas is None or slot not in slots:
                continue
            left = {atom: delta for atom, delta in deltas.items() if not comes_before(atom, tag)}
            if left:
                self.increments[slot] = left
                counted.append(slot)
            else:
                del self.increments[slot]
        return counted

    def drop_before(self, tag: Tag) -> None:
        """Drop all atoms that `tag` has seen."""
        if self.increments:
            self._kill_increments(list(self.increments), tag)
        self._keep_large(lambda atom: not comes_before(atom, tag))
        left_after = _left_after(tag)
        # Kills after the remaining large adds may have removed everything: only an index shows whether the log is
        # empty.
        self._held = {
            member: left for member, atoms in self.held.items() if (left := left_after(atoms))
        }

    def forget(self, slots: Collection[bytes], atom: Atom) -> None:
        """Drop the atoms of one effect in these slots."""
        if self._large and len(slots) >= _MANY:
            before = len(self._large)
            self._keep_large(lambda other: other != atom)
            if len(self._large) < before:
                return
        held, alone, (dot, place) = self._held, (atom,), atom
        for slot in slots if held else ():
            atoms = held.get(slot)
            if atoms == alone or (atoms and len(atoms) == 1 and atoms[0][:2] == atom):
                del held[slot]
            elif atoms is not None:
                left = tuple(a for a in atoms if a.dot != dot or a.place != place)
                if left:
                    held[slot] = left
                else:
                    del held[slot]

    def forget_increment(self, slot: bytes, atom: Atom) -> None:
        """Drop this one delta."""
        deltas = self.increments.get(slot)
        if deltas is not None:
            deltas.pop(atom, None)
            if not deltas:
                del self.increments[slot]

    def _keep_large(self, wanted: Callable[[Atom], bool]) -> None:
        """Keep only the wanted large adds, with the kills after them."""
        kept: list[_Large] = []
        for entry in self._large:
            if wanted(entry.atom) if entry.atom is not None else kept:
                kept.append(entry)
        self._large = kept
        if not kept:
            self._seen_by.clear()


KeyLog: TypeAlias = dict[RedisType, SlotLog]
"""The unstable part of one key, by type; no entry is empty."""


def comes_before(atom: Atom | Register | Deadline, tag: Tag) -> bool:
    """Whether the atom is in the causal past of an effect of `tag` that is being applied now.

    Earlier effects of the same message count: effects are applied in the order of their index.
    """
    dot = atom.dot
    return tag.past.get(dot.origin, 0) >= dot.counter or dot == tag.dot


def _left_after(tag: Tag) -> Callable[[Atoms], Atoms]:
    """A function that returns the atoms of a slot that an effect of `tag` leaves. It remembers the result for one
    tuple, which many members may share.
    """
    known: Atoms = ()
    left: Atoms = ()

    def left_of(atoms: Atoms) -> Atoms:
        nonlocal known, left
        if atoms is not known:
            known, left = atoms, tuple(atom for atom in atoms if not comes_before(atom, tag))
        return left

    return left_of


class _Written(NamedTuple):
    """Atoms that an effect has put into the log. slots: a single one for an increment."""

    key: bytes
    type: RedisType
    slots: Collection[bytes] | bytes
    atom: Atom
    log: SlotLog
    """The log that got the atoms; the key has a different one if it was empty in between."""


class UnstableLog:
    """Atoms by key and type, with an index by message, so that stability costs only what the message wrote."""

    def __init__(self) -> None:
        self._keys: dict[bytes, KeyLog] = {}
        self.deadlines: DeadlineLog = DeadlineLog()
        self._by_dot: defaultdict[Dot, list[_Written]] = defaultdict(list)

    def __len__(self) -> int:
        """Number of atoms."""
        return sum(map(self.entries, self._keys)) + self.deadlines.entries()

    def keys(self) -> Iterator[bytes]:
        """Keys with unstable atoms."""
        return iter(self._keys)

    def entries(self, key: bytes) -> int:
        """Atoms under one key."""
        return sum(map(len, self._keys.get(key, {}).values()))

    def of(self, key: bytes, type_: RedisType) -> SlotLog:
        """The unstable part of one type under a key. Read-only."""
        return self._keys.get(key, {}).get(type_) or _EMPTY

    def key(self, key: bytes) -> KeyLog:
        """A copy of the unstable part of a key; large adds and the kills after them are indexed in it."""
        copies = {type_: log.copy() for type_, log in self._keys.get(key, {}).items()}
        return {type_: copy for type_, copy in copies.items() if copy.slots()}

    def take(self, key: bytes, logs: KeyLog) -> None:
        """Start a key with what another log has under it. These atoms never become stable in this log."""
        if logs:
            self._keys[key] = {type_: log.copy() for type_, log in logs.items()}

    def apply(self, effect: Effect, tag: Tag, timestamp: int, index: int) -> None:
        """Apply one effect to the log only, without native commands."""
        if type(effect) is One:
            self.one(effect.key, effect.type, effect.slots, tag, index)
            return
        match effect:
            case KillSlots(key, type_, slots):
                self.kill_slots(key, type_, slots, tag)
            case Reg(key, type_, words, since):
                written = timestamp if since is None else since
                self.write(key, type_, pairs_of(words), tag, written, index, effect.only)
            case Inc(key, type_, slot, delta):
                self.increment(key, type_, slot, delta, tag, index)
            case KillKey(key):
                self.kill_key(key, tag)
            case Replace(key, at):
                self.kill_key(key, tag)
                self.deadlines.set(key, at, Only.ALWAYS, tag, timestamp, index)
            case Assign(key, value, at):
                self.kill_key(key, tag)
                self.deadlines.set(key, at, Only.ALWAYS, tag, timestamp, index)
                self.write(key, RedisType.STRING, {WHOLE: value}, tag, timestamp, index)
            case Until(key, at, only):
                self.deadlines.set(key, at, only, tag, timestamp, index)
            case Expire(key, True):
                self.kill_key(key, tag)
            case Expire(key) | KillData(key):
                self.kill_data(key, tag)
            case KillAll(db):
                self.kill_all(db, tag)

    def are_seen(self, key: bytes, type_: RedisType, slots: Collection[bytes], tag: Tag) -> bool:
        """Whether `tag` has seen all unstable atoms of these slots. May return False where an exact answer takes
        long.
        """
        logs = self._keys.get(key)
        log = None if logs is None else logs.get(type_)
        if log is None:
            return True
        if log.increments or log._large:
            return False
        held = log._held
        for slot in slots:
            for atom in held.get(slot, ()):
                if not comes_before(atom, tag):
                    return False
        return True

    def is_seen(self, key: bytes, tag: Tag) -> bool:
        """Whether `tag` has seen all unstable atoms of a key. May return False where an exact answer takes long."""
        atoms: list[Atom | Register | Deadline] = list(self.deadlines.of(key))
        logs = self._keys.get(key)
        if logs is not None:
            for log in logs.values():
                if log.increments or log._large or len(log._held) > _FEW:
                    return False
                for some in log._held.values():
                    atoms += some
        known = None
        for atom in atoms:
            dot = atom.dot
            if dot is not known:  # an assigned key has its deadline from the same message
                if not comes_before(atom, tag):
                    return False
                known = dot
        return True

    def _log_of(self, key: bytes, type_: RedisType) -> SlotLog:
        logs = self._keys.get(key)
        if logs is None:
            logs = self._keys[key] = {}
        log = logs.get(type_)
        if log is None:
            log = logs[type_] = SlotLog()
        return log

    def one(
        self, key: bytes, type_: RedisType, slots: Collection[bytes], tag: Tag, index: int
    ) -> None:
        """Give each slot this atom; atoms that `tag` has seen are superseded. `slots` is kept, not copied."""
        dot = tag.dot
        atom: Atom = make_tuple(Atom, (dot, index))
        logs = self._keys.get(key)
        log = None if logs is None else logs.get(type_)
        if log is None:
            log = self._log_of(key, type_)
        log.add(slots, atom, tag)
        self._by_dot[dot].append(make_tuple(_Written, (key, type_, slots, atom, log)))

    def write(
        self,
        key: bytes,
        type_: RedisType,
        values: Mapping[bytes, bytes],
        tag: Tag,
        timestamp: int,
        index: int,
        only: Only = Only.ALWAYS,
    ) -> SlotLog:
        """Give each slot its value. Returns the log, which has the slots' new values."""
        dot = tag.dot
        log = self._log_of(key, type_)
        registers = {s: Register(dot, index, timestamp, v, only) for s, v in values.items()}
        log.write(registers, tag)
        self._by_dot[dot].append(_Written(key, type_, values.keys(), Atom(dot, index), log))
        return log

    def put(
        self,
        key: bytes,
        type_: RedisType,
        values: Mapping[bytes, bytes],
        dot: Dot,
        timestamp: int,
        index: int,
        only: Only = Only.ALWAYS,
    ) -> None:
        """Like `write`, for a write that has seen all that is in the log, as a local one has: its values are what the
        slots are worth.
        """
        log = self._log_of(key, type_)
        held = log._held
        for slot, value in values.items():
            held[slot] = (make_tuple(Register, (dot, index, timestamp, value, only)),)
        if log.increments:
            for slot in values:
                log.increments.pop(slot, None)
        slots = values.keys()
        written = make_tuple(_Written, (key, type_, slots, make_tuple(Atom, (dot, index)), log))
        self._by_dot[dot].append(written)

    def assign(
        self,
        key: bytes,
        type_: RedisType,
        value: bytes,
        at: int,
        dot: Dot,
        timestamp: int,
        index: int,
    ) -> None:
        """Replace the key by one slot with this value, until the deadline. The write has seen all in the log."""
        self.deadlines.assign(key, at, dot, timestamp, index)
        log = SlotLog(
            None, {WHOLE: (make_tuple(Register, (dot, index, timestamp, value, Only.ALWAYS)),)}
        )
        self._keys[key] = {type_: log}
        atom = make_tuple(Atom, (dot, index))
        self._by_dot[dot].append(make_tuple(_Written, (key, type_, _WHOLE, atom, log)))

    def assign_again(self, key: bytes, type_: RedisType, value: bytes, at: int) -> None:
        """Change the value and the deadline that the same effect gave the key."""
        self.deadlines.assign_again(key, at)
        held = self._keys[key][type_]._held
        (before,) = held[WHOLE]
        held[WHOLE] = (make_tuple(Register, (*before[:3], value, Only.ALWAYS)),)

    def drop_key(self, key: bytes) -> None:
        """Remove a key locally, by a removal that has seen all that is in the log."""
        self._keys.pop(key, None)
        self.deadlines.drop(key)

    def increment(
        self, key: bytes, type_: RedisType, slot: bytes, delta: Number, tag: Tag, index: int
    ) -> None:
        """Add a delta to the slot."""
        dot = tag.dot
        atom: Atom = make_tuple(Atom, (dot, index))
        logs = self._keys.get(key)
        log = None if logs is None else logs.get(type_)
        if log is None:
            log = self._log_of(key, type_)
        if log.increase(slot, delta, atom):
            self._by_dot[dot].append(make_tuple(_Written, (key, type_, slot, atom, log)))

    def kill_key(self, key: bytes, tag: Tag) -> KeyLog:
        """Drop what comes before `tag`, including the deadline. Returns what is left, which is all that the key is
        worth now (its stable part is removed, too).
        """
        if key in self.deadlines:
            self.deadlines.kill(key, tag)
        return self.kill_data(key, tag)

    def kill_data(self, key: bytes, tag: Tag) -> KeyLog:
        """Like `kill_key`, but keep the deadline."""
        logs = self._keys.get(key)
        if logs is None:
            return {}
        for type_, log in list(logs.items()):
            log.drop_before(tag)
            if not log:
                del logs[type_]
        if not logs:
            del self._keys[key]
        return logs

    def kill_all(self, db: int | None, tag: Tag) -> None:
        """Drop what comes before `tag` in all keys, or those of a database, including deadlines. What is left is all
        that the keys are worth now.
        """
        for key in names_in(self._keys, db):
            self.kill_data(key, tag)
        self.deadlines.kill_all(db, tag)

    def kill_slots(
        self, key: bytes, type_: RedisType, slots: Collection[bytes], tag: Tag
    ) -> Collection[bytes]:
        """Drop what comes before `tag`. Returns the slots of which nothing is left (`slots` itself if that is all)."""
        logs = self._keys.get(key)
        log = logs.get(type_) if logs is not None else None
        if logs is None or log is None:
            return slots
        gone = log.kill(slots, tag)
        if not log:
            self._drop(key, type_, logs)
        return gone

    def stabilise(self, dot: Dot) -> None:
        """Forget a stable message's atoms. No value changes."""
        if self.deadlines.by_dot:
            self.deadlines.stabilise(dot)
        for key, type_, slots, atom, log in self._by_dot.pop(dot, ()):
            logs = self._keys.get(key)
            if logs is None or logs.get(type_) is not log:
                continue  # its atoms are gone
            if type(slots) is bytes:
                log.forget_increment(slots, atom)
            else:
                log.forget(slots, atom)  # type: ignore[arg-type]  # mypy does not see what `type` says
            if not (log._held or log.increments or log._large):
                self._drop(key, type_, logs)

    def _drop(self, key: bytes, type_: RedisType, logs: KeyLog) -> None:
        del logs[type_]
        if not logs:
            del self._keys[key]


_EMPTY = SlotLog()
_WHOLE = (WHOLE,)
