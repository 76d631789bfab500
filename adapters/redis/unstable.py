"""The PO-Log of a gateway: the unstable atoms of every slot. A stable atom *is* its native value in the server.

Rules (redis-types.md, section 1, of the design; docs/redis.md here): a kill is never stored; stability takes a
message's atoms out and changes no value. This file knows no server: it answers what is left of a slot.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from crdtcast.adapters.redis.effects import Effect, Inc, KillKey, KillSlots, One
from crdtcast.tags import Dot, Tag


class Atom(NamedTuple):
    """Identity of an effect: its message's dot and its place in the message."""

    dot: Dot
    place: int


@dataclass(slots=True)
class KeyLog:
    """Unstable atoms under one key: deltas of a number, presences of set members."""

    increments: dict[Atom, int] = field(default_factory=dict)
    members: dict[bytes, list[Atom]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.increments or self.members)


def comes_before(atom: Atom, tag: Tag) -> bool:
    """Whether the atom is in the causal past of an effect of `tag` that is being applied now.

    An earlier effect of the same message counts: order inside a message is by index, and effects are applied in it.
    """
    dot = atom.dot
    return tag.past.get(dot.origin, 0) >= dot.counter or dot == tag.dot


class UnstableLog:
    """Atoms by key, with an index by message so that stability costs what the message wrote."""

    def __init__(self) -> None:
        self._keys: dict[bytes, KeyLog] = {}
        self._by_dot: dict[Dot, list[tuple[bytes, bytes | None, Atom]]] = {}

    def __len__(self) -> int:
        """Number of atoms."""
        return sum(
            len(log.increments) + sum(map(len, log.members.values())) for log in self._keys.values()
        )

    def keys(self) -> Iterator[bytes]:
        """Keys with at least one unstable atom."""
        return iter(self._keys)

    def entries(self, key: bytes) -> int:
        """Atoms under one key."""
        log = self._keys.get(key)
        return len(log.increments) + sum(map(len, log.members.values())) if log else 0

    def members(self, key: bytes) -> dict[bytes, list[Atom]]:
        """Unstable presences under a key, by member."""
        log = self._keys.get(key)
        return log.members if log else {}

    def key(self, key: bytes) -> KeyLog:
        """A copy of what is unstable under a key."""
        log = self._keys.get(key)
        if log is None:
            return KeyLog()
        members = {member: list(atoms) for member, atoms in log.members.items()}
        return KeyLog(dict(log.increments), members)

    def take(self, key: bytes, log: KeyLog) -> None:
        """Begin a key with what another log has under it. Its atoms never become stable here."""
        if log:
            members = {member: list(atoms) for member, atoms in log.members.items()}
            self._keys[key] = KeyLog(dict(log.increments), members)

    def apply(
        self, effect: Effect, tag: Tag, index: int
    ) -> KeyLog | list[bytes] | tuple[bytes, ...] | int:
        """Apply one effect to the log alone, as a restart does when it reads the stored messages again.

        Returns what it does to the value: what is left of a killed key, members that are gone, or added, or a delta.
        """
        match effect:
            case One(key, _, slots):
                self.one(key, slots, tag, index)
                return slots
            case Inc(key, _, delta):
                self.increment(key, delta, tag, index)
                return delta
            case KillKey(key):
                return self.kill_key(key, tag)
            case KillSlots(key, _, slots):
                return self.kill_members(key, slots, tag)

    def one(self, key: bytes, members: Iterable[bytes], tag: Tag, index: int) -> None:
        """Each member gets this atom; the atoms that it had before are superseded."""
        atom = Atom(tag.dot, index)
        log = self._keys.get(key)
        if log is None:
            log = self._keys[key] = KeyLog()
        written = self._by_dot.setdefault(tag.dot, [])
        held = log.members
        for member in members:
            atoms = held.get(member)
            if atoms is None:
                held[member] = [atom]
            else:
                held[member] = [other for other in atoms if not comes_before(other, tag)] + [atom]
            written.append((key, member, atom))

    def increment(self, key: bytes, delta: int, tag: Tag, index: int) -> None:
        """One more delta under the key; deltas of one effect add up (nothing came between them)."""
        atom = Atom(tag.dot, index)
        log = self._keys.get(key)
        if log is None:
            log = self._keys[key] = KeyLog()
        if atom in log.increments:
            log.increments[atom] += delta
        else:
            log.increments[atom] = delta
            self._by_dot.setdefault(tag.dot, []).append((key, None, atom))

    def kill_key(self, key: bytes, tag: Tag) -> KeyLog:
        """Drop what comes before; what is left is all that the key is worth now (everything stable goes, too)."""
        log = self._keys.get(key)
        if log is None:
            return KeyLog()
        log.increments = {
            atom: delta for atom, delta in log.increments.items() if not comes_before(atom, tag)
        }
        survivors = {
            member: [atom for atom in atoms if not comes_before(atom, tag)]
            for member, atoms in log.members.items()
        }
        log.members = {member: atoms for member, atoms in survivors.items() if atoms}
        if not log:
            del self._keys[key]
        return log

    def kill_members(self, key: bytes, members: Iterable[bytes], tag: Tag) -> list[bytes]:
        """Drop what comes before; return the members of which nothing is left."""
        log = self._keys.get(key)
        if log is None:
            return list(members)
        gone = []
        for member in members:
            atoms = log.members.get(member)
            if atoms is not None:
                atoms = [atom for atom in atoms if not comes_before(atom, tag)]
                if atoms:
                    log.members[member] = atoms
                    continue
                del log.members[member]
            gone.append(member)
        if not log:
            del self._keys[key]
        return gone

    def stabilise(self, dot: Dot) -> None:
        """Forget a stable message's atoms. No value changes."""
        for key, member, atom in self._by_dot.pop(dot, ()):
            log = self._keys.get(key)
            if log is None:
                continue
            if member is None:
                log.increments.pop(atom, None)
            elif atoms := log.members.get(member):
                left = [other for other in atoms if other != atom]
                if left:
                    log.members[member] = left
                else:
                    del log.members[member]
            if not log:
                del self._keys[key]
