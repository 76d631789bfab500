"""What a key is worth by definition: a function of the messages that are visible, which forgets nothing.

Written apart from the gateway's rules: it knows no log, no stability, no server. Time is not in it either: whether a
deadline is over is for the reader to judge.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from .effects import NONE, Add, Dot, Effect, Kill, Kind, Message, Only, Slot, Type, Value


@dataclass(frozen=True, slots=True)
class Placed:
    message: Message
    place: int
    effect: Add

    @property
    def rank(self) -> tuple[int, Dot, int]:
        ts = self.message.ts if self.effect.since is None else self.effect.since
        return ts, self.message.dot, self.place


@dataclass(frozen=True, slots=True)
class Past:
    """`at`: None if nothing speaks of a deadline. `setter`: who has set the one that counts."""

    slots: dict[Slot, Value]
    at: int | None = None
    setter: int | None = None

    @property
    def deadline(self) -> int:
        return NONE if self.at is None else self.at


def past_of(key: str, visible: Iterable[Message]) -> Past:
    """The key as the visible messages make it."""
    live: dict[Slot, list[Placed]] = {}
    for added in _alive(key, visible):
        live.setdefault(added.effect.slot, []).append(added)
    deadlines = live.pop(Slot(Type.DEADLINE), [])
    slots = {slot: _value(adds) for slot, adds in live.items()}
    if not deadlines:
        return Past(slots)
    least = all(added.effect.only is Only.LESS for added in deadlines)
    ranked = sorted(deadlines, key=lambda added: (added.effect.value, added.rank))
    chosen = ranked[0] if least else ranked[-1]
    return Past(slots, int(chosen.effect.value), chosen.message.dot.origin)


def _alive(key: str, visible: Iterable[Message]) -> list[Placed]:
    adds: list[Placed] = []
    kills: list[tuple[Message, int, Kill]] = []
    for message in visible:
        for place, effect in enumerate(message.effects):
            if effect.key == key:
                if isinstance(effect, Add):
                    adds.append(Placed(message, place, effect))
                else:
                    kills.append((message, place, effect))
    return [added for added in adds if not any(_removes(*kill, added) for kill in kills)]


def _removes(message: Message, place: int, kill: Kill, added: Placed) -> bool:
    if message is added.message:
        return added.place < place and kill.covers(added.effect.slot)
    dot = added.message.dot
    return message.past[dot.origin] >= dot.counter and kill.covers(added.effect.slot)


def _value(adds: list[Placed]) -> Value:
    effects: list[Effect] = [added.effect for added in adds]
    if any(isinstance(e, Add) and e.kind is Kind.ONE for e in effects):
        return 1
    registers = [added for added in adds if added.effect.kind is Kind.REG]
    base: Value = max(registers, key=lambda added: added.rank).effect.value if registers else 0
    if isinstance(base, str):
        return base
    return base + sum(int(added.effect.value) for added in adds if added.effect.kind is Kind.INC)
