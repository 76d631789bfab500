"""The unstable atoms of a replica, and what effects do to its native values.

State of a slot: its native value and its unstable atoms, nothing else. The native values are the server's; they are
passed in where an effect is to be carried out, and left alone where the server has carried it out itself.
"""

from dataclasses import dataclass

from crdtcast.causality.tags import Dot, Tag, covers
from tests.adapters.redis.designs.recorded.effects import (
    DEADLINE,
    SET,
    Add,
    Kill,
    Letter,
    Slot,
    Value,
    Values,
)


@dataclass(frozen=True, slots=True)
class Atom:
    """What has been added to a slot and is not stable."""

    dot: Dot
    place: int
    time: int
    kind: str
    value: Value

    @property
    def age(self) -> tuple[int, str, int]:
        """Of two registers the greater one counts."""
        return self.time, self.dot.origin, self.place


def worth(slot: Slot, atoms: list[Atom]) -> Value | None:
    """What these atoms are worth together; None if the slot is empty."""
    if not atoms:
        return None
    kind = slot[1]
    if kind == SET:
        return 1
    if kind == DEADLINE:
        return max(int(atom.value) for atom in atoms)
    registers = [atom for atom in atoms if atom.kind == "register"]
    base: Value = max(registers, key=lambda atom: atom.age).value if registers else 0
    if isinstance(base, str):
        return base
    return base + sum(int(atom.value) for atom in atoms if atom.kind == "increment")


class Log:
    """The atoms of all slots that have any."""

    def __init__(self) -> None:
        self.atoms: dict[Slot, list[Atom]] = {}
        self._keys: dict[Dot, set[str]] = {}

    def apply(self, letter: Letter, tag: Tag, values: Values | None) -> None:
        """Take in a message. values: None if the server has carried its effects out itself."""
        keys = self._keys.setdefault(tag.dot, set())
        for place, effect in enumerate(letter.effects):
            if isinstance(effect, Kill):
                keys.add("*" if effect.scope == "all" else effect.key)
                self._kill(effect, tag, place, values)
            else:
                keys.add(effect.slot[0])
                self._add(
                    effect, Atom(tag.dot, place, letter.time, effect.atom, effect.value), values
                )

    def _kill(self, kill: Kill, tag: Tag, place: int, values: Values | None) -> None:
        known = self.atoms.keys() if values is None else self.atoms.keys() | values.keys()
        for slot in [slot for slot in known if kill.covers(slot)]:
            left = [
                atom
                for atom in self.atoms.pop(slot, ())
                if not (covers(tag.past, atom.dot) or (atom.dot == tag.dot and atom.place < place))
            ]
            if left:
                self.atoms[slot] = left
            if values is not None:
                _put(values, slot, worth(slot, left))

    def _add(self, add: Add, atom: Atom, values: Values | None) -> None:
        atoms = self.atoms.setdefault(add.slot, [])
        atoms.append(atom)
        if values is None:
            return
        native = values.get(add.slot)
        if atom.kind != "increment" or native is None:
            native = worth(add.slot, atoms)
        elif isinstance(native, int):
            native += int(atom.value)
        _put(values, add.slot, native)

    def stabilise(self, dot: Dot) -> None:
        """The atoms of a stable message go. No value changes."""
        self._keys.pop(dot, None)
        for slot, atoms in list(self.atoms.items()):
            left = [atom for atom in atoms if atom.dot != dot]
            if left:
                self.atoms[slot] = left
            else:
                del self.atoms[slot]

    def drop_orphans(self, values: Values) -> None:
        """Deadlines without data go once every effect that was delivered on their key is stable."""
        data = {key for key, kind, _ in values if kind != DEADLINE}
        touched = set().union(*self._keys.values())
        for slot in list(values):
            key, kind, _ = slot
            if kind == DEADLINE and key not in data and not touched & {key, "*"}:
                del values[slot]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is unstable here."""
        return not self.atoms and not self._keys


def _put(values: Values, slot: Slot, value: Value | None) -> None:
    if value is None:
        values.pop(slot, None)
    else:
        values[slot] = value
