"""One key within a step: what the server holds of it, and what an effect makes of that."""

from dataclasses import dataclass, field
from enum import Enum

from .atoms import AtomLog, winner, worth
from .effects import DEADLINE, NONE, Add, Effect, Kill, Kind, Message, Scope, Slot, Value

PASSED = -1
"""A deadline that is over, of a key that the server has dropped: nobody needs to know when it was."""


class Contents(Enum):
    """Whether the server holds what the key is worth."""

    KNOWN = "known"
    DROPPED = "dropped"
    """By the server itself, at the deadline. Only an X may follow, or the end of everything in the key."""
    LOST = "lost"
    """By a server whose clock led. The key is to be copied."""


@dataclass(slots=True)
class KeyState:
    """`slots` and `deadline` are kept up, never computed again: what is stable is nowhere else."""

    contents: Contents = Contents.KNOWN
    slots: dict[Slot, Value] = field(default_factory=dict)
    deadline: int = NONE
    mine: bool = False
    bucket: int | None = None
    """Where the index has the key as the step begins."""

    @property
    def exists(self) -> bool:
        return bool(self.slots)

    @property
    def has_deadline(self) -> bool:
        return self.deadline != NONE

    def apply(self, log: AtomLog, message: Message, place: int, effect: Effect, me: int) -> None:
        """The rules of one slot: a kill leaves what the log is worth, an addition extends it."""
        if isinstance(effect, Kill):
            log.kill(message, place, effect)
            self._kill(log, effect, me)
        else:
            log.add(message, place, effect)
            self._add(log, effect, me)

    def _kill(self, log: AtomLog, kill: Kill, me: int) -> None:
        lost = self.contents is Contents.LOST
        if kill.scope is Scope.KEY or (kill.scope is Scope.DATA and not lost):
            self.contents = Contents.KNOWN
            self.slots = {}
            for slot in log.data(kill.key):
                self._set(slot, worth(log.of(kill.key, slot)))
        elif self.contents is Contents.KNOWN and kill.scope is not Scope.TTL:
            for slot in [slot for slot in self.slots if kill.covers(slot)]:
                self._set(slot, worth(log.of(kill.key, slot)))
        if kill.covers(DEADLINE):
            self._set_deadline(log, kill.key, me)

    def _add(self, log: AtomLog, add: Add, me: int) -> None:
        if add.kind is Kind.AT:
            self._set_deadline(log, add.key, me)
        elif self.contents is not Contents.KNOWN:
            return
        elif add.kind is Kind.INC:
            now = self.slots.get(add.slot, 0)
            if isinstance(now, int) and isinstance(add.value, int):
                self.slots[add.slot] = now + add.value
        else:
            self._set(add.slot, worth(log.of(add.key, add.slot)))

    def _set(self, slot: Slot, value: Value | None) -> None:
        if value is None:
            self.slots.pop(slot, None)
        else:
            self.slots[slot] = value

    def _set_deadline(self, log: AtomLog, key: str, me: int) -> None:
        atom = winner(log.of(key, DEADLINE))
        self.deadline = NONE if atom is None else int(atom.value)
        self.mine = atom is not None and atom.dot.origin == me
