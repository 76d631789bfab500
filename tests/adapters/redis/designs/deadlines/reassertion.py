"""What an X takes from a member that has extended the deadline, which X had not seen."""

from typing import NamedTuple

from .effects import Add, Effect, Kind, Message, Slot, Value
from .prepare import kind_of, replaced


class Held(NamedTuple):
    """What a slot showed before the X. `since`: the time stamp of its register, 0 where that is forgotten."""

    value: Value
    since: int


def taken(
    message: Message, key: str, before: dict[Slot, Held], after: dict[Slot, Value]
) -> dict[Slot, Held]:
    """The slots that show something else since the X, unless its own message has written them.

    Not only those that are empty: a loser that X had not seen may have come out, and a number may have kept increments.
    An increment of X's own message counts on top.
    """
    adds = [e for e in message.effects if isinstance(e, Add) and e.key == key]
    written = {add.slot for add in adds if add.kind in (Kind.REG, Kind.ONE)}
    wanted = {slot: held for slot, held in before.items() if slot not in written}
    for add in adds:
        held = wanted.get(add.slot)
        if add.kind is Kind.INC and held and isinstance(held.value, int):
            wanted[add.slot] = Held(held.value + int(add.value), held.since)
    return {slot: held for slot, held in wanted.items() if after.get(slot) != held.value}


def again(key: str, slots: dict[Slot, Held]) -> list[Effect]:
    """The effects that bring them back: ordinary ones, but a register keeps its time stamp."""
    effects: list[Effect] = []
    for slot, held in sorted(slots.items()):
        effects += replaced(key, [slot], kind_of(slot), held.value, held.since)
    return effects
