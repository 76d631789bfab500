"""The log of the atoms that are not stable yet, and what a slot is worth by its atoms."""

from collections.abc import Iterable
from typing import NamedTuple

from .effects import DEADLINE, Add, Dot, Kill, Kind, Message, Only, Slot, Value


class Atom(NamedTuple):
    """One atom with its place in the causal order (dot, place) and among concurrent ones (ts, dot, place)."""

    ts: int
    dot: Dot
    place: int
    kind: Kind
    value: Value
    only: Only = Only.ALWAYS


def atom_of(message: Message, place: int, effect: Add) -> Atom:
    ts = message.ts if effect.since is None else effect.since
    return Atom(ts, message.dot, place, effect.kind, effect.value, effect.only)


def comes_before(atom: Atom, message: Message, place: int) -> bool:
    """Whether the atom comes before the effect of `message` at `place`."""
    return message.has_seen(atom.dot) or (atom.dot == message.dot and atom.place < place)


def order(atom: Atom) -> tuple[int, Dot, int]:
    return atom[:3]


def worth(atoms: Iterable[Atom]) -> Value | None:
    """The value of a slot of data; None without atoms."""
    base: Atom | None = None
    total, count = 0, 0
    for atom in atoms:
        count += 1
        if atom.kind is Kind.INC:
            assert isinstance(atom.value, int)
            total += atom.value
        elif atom.kind is Kind.ONE:
            return 1
        elif base is None or order(atom) > order(base):
            base = atom
    if base is None:
        return total if count else None
    return base.value + total if isinstance(base.value, int) else base.value


def stamp(atoms: Iterable[Atom]) -> int:
    """The time stamp of the register that counts; 0 if it is stable, or there is none."""
    return max((atom.ts for atom in atoms if atom.kind is Kind.REG), default=0)


def winner(atoms: Iterable[Atom]) -> Atom | None:
    """The deadline that counts: the latest, or the earliest if all were set by LT."""
    at = [(atom.value, order(atom), atom) for atom in atoms]
    if not at:
        return None
    pick = min if all(atom.only is Only.LESS for *_, atom in at) else max
    return pick(at, key=lambda entry: entry[:2])[-1]


class AtomLog:
    """By key and slot, the atoms that are not stable."""

    def __init__(self) -> None:
        self.by_key: dict[str, dict[Slot, list[Atom]]] = {}

    def add(self, message: Message, place: int, effect: Add) -> None:
        slots = self.by_key.setdefault(effect.key, {})
        slots.setdefault(effect.slot, []).append(atom_of(message, place, effect))

    def kill(self, message: Message, place: int, kill: Kill) -> None:
        slots = self.by_key.get(kill.key, {})
        for slot in [slot for slot in slots if kill.covers(slot)]:
            self.keep(
                kill.key, slot, [a for a in slots[slot] if not comes_before(a, message, place)]
            )

    def stabilise(self, message: Message) -> None:
        for effect in message.effects:
            if isinstance(effect, Add) and effect.slot in self.by_key.get(effect.key, {}):
                atoms = self.by_key[effect.key][effect.slot]
                self.keep(effect.key, effect.slot, [a for a in atoms if a.dot != message.dot])

    def of(self, key: str, slot: Slot) -> list[Atom]:
        return self.by_key.get(key, {}).get(slot, [])

    def data(self, key: str) -> list[Slot]:
        """The slots of data that have atoms."""
        return [slot for slot in self.by_key.get(key, {}) if slot is not DEADLINE]

    def take(self, key: str, other: "AtomLog") -> None:
        """The atoms of a key as another log has them."""
        self.by_key.pop(key, None)
        if key in other.by_key:
            self.by_key[key] = {slot: list(atoms) for slot, atoms in other.by_key[key].items()}

    def keep_only(self, key: str, dots: set[Dot]) -> None:
        for slot, atoms in list(self.by_key.get(key, {}).items()):
            self.keep(key, slot, [atom for atom in atoms if atom.dot in dots])

    def keep(self, key: str, slot: Slot, atoms: list[Atom]) -> None:
        """What is left of a slot."""
        slots = self.by_key[key]
        if atoms:
            slots[slot] = atoms
        else:
            del slots[slot]
            if not slots:
                del self.by_key[key]
