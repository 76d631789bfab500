"""The giving side of one key's copy: pages at several instants, and at the end what was written meanwhile, at one."""

from dataclasses import dataclass

from crdtcast.causality.tags import Vector
from tests.adapters.redis.designs.copied.faults import CopyFault
from tests.adapters.redis.designs.recorded.effects import (
    DEADLINE,
    SET,
    STRING,
    Kill,
    Letter,
    Slot,
    Values,
)
from tests.adapters.redis.designs.recorded.log import Atom, Log

PAGE = 2
"""Slots that are read at one instant."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A key's state at one vector: rows, with deadline and hidden types, and the atoms that are not stable there."""

    key: str
    vector: Vector
    stable: Vector
    rows: Values
    atoms: dict[Slot, list[Atom]]


class Giving:
    """One copy that is being read."""

    def __init__(self, key: str, faults: frozenset[CopyFault]) -> None:
        self.key = key
        self._faults = faults
        self._rows: Values = {}
        self._last: Slot | None = None
        self._is_whole = False
        self._dirty: set[Slot] = set()

    def written(self, letter: Letter, values: Values) -> None:
        """A message was applied here, remote or local: what it has touched of the key is read again."""
        known = self._rows.keys() | values.keys()
        for effect in letter.effects:
            if isinstance(effect, Kill):
                if effect.scope == "all" and CopyFault.FLUSH_NOT_MARKED in self._faults:
                    continue
                self._dirty |= {slot for slot in known if effect.covers(slot)}
            else:
                self._dirty.add(effect.slot)

    def read_page(self, values: Values) -> bool:
        """Read the next page, or again a page of what was written meanwhile; False if the rest fits into one page."""
        if self._is_whole:
            return self._read_some_again(values)
        # As SCAN does, but in an order: what is there all the time is read once.
        left = sorted(
            s for s in values if s[0] == self.key and (self._last is None or s > self._last)
        )
        for slot in left[:PAGE]:
            self._rows[slot] = values[slot]
            self._last = slot
        self._is_whole = len(left) <= PAGE
        return True

    def _read_some_again(self, values: Values) -> bool:
        """At any instant: what is written after that is read once more."""
        if len(self._dirty) <= PAGE or CopyFault.NOT_READ_AGAIN in self._faults:
            return False
        for slot in sorted(self._dirty)[:PAGE]:
            self._read_again(slot, values)
            self._dirty.discard(slot)
        return True

    def finish(self, values: Values, log: Log, vector: Vector, stable: Vector) -> Copy:
        """The last read: at one instant, that of the vector."""
        if CopyFault.NOT_READ_AGAIN not in self._faults:
            for slot in self._dirty:
                self._read_again(slot, values)
        rows = {slot: value for slot, value in self._rows.items() if self._is_taken(slot, values)}
        atoms = {slot: list(atoms) for slot, atoms in log.atoms.items() if slot[0] == self.key}
        if CopyFault.WITHOUT_ATOMS in self._faults:
            atoms = {}
        return Copy(self.key, dict(vector), dict(stable), rows, atoms)

    def _read_again(self, slot: Slot, values: Values) -> None:
        if slot[0] != self.key:
            return
        if slot in values:
            self._rows[slot] = values[slot]
        elif CopyFault.REMOVED_NOT_READ_AGAIN not in self._faults:
            self._rows.pop(slot, None)

    def _is_taken(self, slot: Slot, values: Values) -> bool:
        key, kind, _ = slot
        if kind == DEADLINE:
            return CopyFault.WITHOUT_DEADLINE not in self._faults
        hidden = kind == SET and (key, STRING, "") in values
        return not (hidden and CopyFault.WITHOUT_HIDDEN in self._faults)
