"""The PO-Log of a gateway: the unstable atoms of every slot. A stable atom *is* its native value in the server.

Rules (docs/redis.md): a kill is never stored; stability takes a message's atoms out and changes no value. This file
knows no server: it answers what is left of a slot.

A large add or kill costs next to nothing: it stays the list that it came as, behind those before it, and members are
indexed only when something has to tell them apart: a look, or a kill that has not seen all of the adds. Members with
the same atoms share one tuple.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from crdtcast.adapters.redis.effects import Effect, Inc, KillKey, KillSlots, One
from crdtcast.tags import Dot, Tag, make_tuple


class Atom(NamedTuple):
    """Identity of an effect: its message's dot and its place in the message."""

    dot: Dot
    place: int


Atoms = tuple[Atom, ...]
_MANY = 1000
"""Members of an add or kill from which on it is not indexed."""
_FEW = 8
"""Members of an add that are indexed one by one: that is faster for so few."""


class _Large(NamedTuple):
    """A large add, or without an atom a kill of members that has seen all adds before it."""

    members: Collection[bytes]
    atom: Atom | None


class KeyLog:
    """Unstable atoms under one key: deltas of a number, presences of set members.

    A large add does not take out the atoms that it has seen: whatever removes it removes these, too, so they are worth
    nothing beside it.
    """

    __slots__ = ("_held", "_large", "_seen_by", "increments")

    def __init__(
        self, increments: dict[Atom, int] | None = None, members: dict[bytes, Atoms] | None = None
    ) -> None:
        self.increments: dict[Atom, int] = increments or {}
        self._held: dict[bytes, Atoms] = members or {}
        """Presences by member, of all adds but those in `_large`."""
        self._large: list[_Large] = []
        """In the order in which they were applied; the first one is an add."""
        self._seen_by: dict[str, int] = {}
        """Counters, by origin, that a tag has seen which has seen all large adds."""

    def __bool__(self) -> bool:
        return bool(self.increments or self._large or self._held)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyLog):
            return NotImplemented
        return self.increments == other.increments and self.members == other.members

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __len__(self) -> int:
        """Number of atoms, of large adds at most so many."""
        large = sum(len(members) for members, atom in self._large if atom is not None)
        return len(self.increments) + sum(map(len, self._held.values())) + large

    def copy(self) -> "KeyLog":
        """The same atoms, which change apart from here on."""
        copy = KeyLog(dict(self.increments), dict(self._held))
        copy._large, copy._seen_by = list(self._large), dict(self._seen_by)
        return copy

    @property
    def members(self) -> dict[bytes, Atoms]:
        """Presences by member."""
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

    def _index(self, added: dict[bytes, Atoms]) -> None:
        """These members get these atoms, too."""
        held = self._held
        if not held.keys().isdisjoint(added.keys()):
            for member in added.keys() & held.keys():
                added[member] = held[member] + added[member]
        held.update(added)

    def _drop_large(self) -> None:
        self._large.clear()
        self._seen_by.clear()

    def add(self, members: Collection[bytes], atom: Atom, tag: Tag) -> None:
        """Each of these members gets the atom; those that it had before are superseded if `tag` has seen them."""
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

    def kill(self, members: Collection[bytes], tag: Tag) -> Collection[bytes]:
        """Drop, of these members, what comes before; return those of which nothing is left."""
        if self._large:
            if all(
                tag.past.get(origin, 0) >= counter or tag.dot == (origin, counter)
                for origin, counter in self._seen_by.items()
            ):
                self._large.append(_Large(members, None))
            else:
                self.members  # noqa: B018  # indexes them
        held = self._held
        if not held:
            return members
        left_after = _left_after(tag)
        kept = False
        gone: list[bytes] = []
        for member in members:
            atoms = held.get(member)
            if atoms is not None:
                if left := left_after(atoms):
                    held[member] = left
                    kept = True
                    continue
                del held[member]
            gone.append(member)
        return gone if kept else members

    def drop_before(self, tag: Tag) -> None:
        """Drop all atoms that `tag` has seen."""
        self.increments = {
            atom: delta for atom, delta in self.increments.items() if not comes_before(atom, tag)
        }
        self._keep_large(lambda atom: not comes_before(atom, tag))
        left_after = _left_after(tag)
        self._held = {
            member: left for member, atoms in self._held.items() if (left := left_after(atoms))
        }

    def forget(self, members: Collection[bytes], atom: Atom) -> None:
        """Drop this one atom of these members."""
        if self._large and len(members) >= _MANY:
            before = len(self._large)
            self._keep_large(lambda other: other != atom)
            if len(self._large) < before:
                return
        held, alone = self._held, (atom,)
        for member in members if held else ():
            atoms = held.get(member)
            if atoms == alone:
                del held[member]
            elif atoms is not None and atom in atoms:
                held[member] = tuple(other for other in atoms if other != atom)

    def _keep_large(self, wanted: Callable[[Atom], bool]) -> None:
        """Of the large adds only these, with the kills behind them."""
        kept: list[_Large] = []
        for entry in self._large:
            if wanted(entry.atom) if entry.atom is not None else kept:
                kept.append(entry)
        self._large = kept
        if not kept:
            self._seen_by.clear()


def comes_before(atom: Atom, tag: Tag) -> bool:
    """Whether the atom is in the causal past of an effect of `tag` that is being applied now.

    An earlier effect of the same message counts: order inside a message is by index, and effects are applied in it.
    """
    dot = atom.dot
    return tag.past.get(dot.origin, 0) >= dot.counter or dot == tag.dot


def _left_after(tag: Tag) -> Callable[[Atoms], Atoms]:
    """Which of a slot's atoms an effect of `tag` leaves; what it finds of one tuple holds for all who share it."""
    known: Atoms = ()
    left: Atoms = ()

    def left_of(atoms: Atoms) -> Atoms:
        nonlocal known, left
        if atoms is not known:
            known, left = atoms, tuple(atom for atom in atoms if not comes_before(atom, tag))
        return left

    return left_of


class UnstableLog:
    """Atoms by key, with an index by message so that stability costs what the message wrote."""

    def __init__(self) -> None:
        self._keys: dict[bytes, KeyLog] = {}
        self._by_dot: defaultdict[Dot, list[tuple[bytes, Collection[bytes] | None, Atom]]] = (
            defaultdict(list)
        )

    def __len__(self) -> int:
        """Number of atoms."""
        return sum(map(self.entries, self._keys))

    def keys(self) -> Iterator[bytes]:
        """Keys with at least one unstable atom."""
        return iter(self._keys)

    def entries(self, key: bytes) -> int:
        """Atoms under one key."""
        log = self._keys.get(key)
        return 0 if log is None else len(log)

    def members(self, key: bytes) -> dict[bytes, Atoms]:
        """Unstable presences under a key, by member."""
        log = self._keys.get(key)
        return log.members if log else {}

    def key(self, key: bytes) -> KeyLog:
        """A copy of what is unstable under a key."""
        log = self._keys.get(key)
        return KeyLog() if log is None else log.copy()

    def take(self, key: bytes, log: KeyLog) -> None:
        """Begin a key with what another log has under it. Its atoms never become stable here."""
        if log:
            self._keys[key] = log.copy()

    def apply(self, effect: Effect, tag: Tag, index: int) -> None:
        """Apply one effect to the log alone, as a restart does when it reads the stored messages again."""
        match effect:
            case One(key, _, slots):
                self.one(key, slots, tag, index)
            case Inc(key, _, delta):
                self.increment(key, delta, tag, index)
            case KillKey(key):
                self.kill_key(key, tag)
            case KillSlots(key, _, slots):
                self.kill_members(key, slots, tag)

    def one(self, key: bytes, members: Collection[bytes], tag: Tag, index: int) -> None:
        """Each member gets this atom; the atoms that it had before are superseded. `members` is kept as it is."""
        dot = tag.dot
        atom: Atom = make_tuple(Atom, (dot, index))
        log = self._keys.get(key)
        if log is None:
            log = self._keys[key] = KeyLog()
        log.add(members, atom, tag)
        self._by_dot[dot].append((key, members, atom))

    def increment(self, key: bytes, delta: int, tag: Tag, index: int) -> None:
        """One more delta under the key; deltas of one effect add up (nothing came between them)."""
        atom: Atom = make_tuple(Atom, (tag.dot, index))
        log = self._keys.get(key)
        if log is None:
            log = self._keys[key] = KeyLog()
        if atom in log.increments:
            log.increments[atom] += delta
        else:
            log.increments[atom] = delta
            self._by_dot[tag.dot].append((key, None, atom))

    def kill_key(self, key: bytes, tag: Tag) -> KeyLog:
        """Drop what comes before; what is left is all that the key is worth now (everything stable goes, too)."""
        log = self._keys.get(key)
        if log is None:
            return KeyLog()
        log.drop_before(tag)
        if not log:
            del self._keys[key]
        return log

    def kill_members(self, key: bytes, members: Collection[bytes], tag: Tag) -> Collection[bytes]:
        """Drop what comes before; return the members of which nothing is left (`members` itself if it is all)."""
        log = self._keys.get(key)
        if log is None:
            return members
        gone = log.kill(members, tag)
        if not log:
            del self._keys[key]
        return gone

    def stabilise(self, dot: Dot) -> None:
        """Forget a stable message's atoms. No value changes."""
        for key, members, atom in self._by_dot.pop(dot, ()):
            log = self._keys.get(key)
            if log is None:
                continue
            if members is None:
                log.increments.pop(atom, None)
            else:
                log.forget(members, atom)
            if not (log._held or log.increments or log._large):
                del self._keys[key]
