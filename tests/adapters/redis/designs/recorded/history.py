"""What every replica has to hold, by definition: a function of all visible effects and their causal order.

Written apart from the rest: it keeps everything, knows no log, no stability and no native value, and finds causal
order from the contexts of the messages alone.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot
from tests.adapters.redis.designs.recorded.effects import (
    DEADLINE,
    NEVER,
    SET,
    Add,
    Kill,
    Slot,
    Value,
    Values,
    decode,
)

Placed: TypeAlias = tuple[Dot, int, int, Add]
"""Message, place in it, its time, and the atom."""
Shown: TypeAlias = dict[Slot, Value]


class Pasts:
    """The causal past of each message, from contexts."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self._messages = {message.dot: message for message in messages}
        self._of: dict[Dot, dict[str, int]] = {}

    def of(self, dot: Dot) -> dict[str, int]:
        """Origin -> highest counter before this message."""
        if dot in self._of:
            return self._of[dot]
        past: dict[str, int] = {}
        message = self._messages.get(dot)
        if message is not None:
            own = (Dot(dot.origin, dot.counter - 1),) if dot.counter > 1 else ()
            for earlier in (*message.context, *own):
                for origin, n in (*self.of(earlier).items(), earlier):
                    past[origin] = max(n, past.get(origin, 0))
        self._of[dot] = past
        return past

    def before(self, earlier: tuple[Dot, int], later: tuple[Dot, int]) -> bool:
        """Whether one effect comes before another one, each given by its message and its place there."""
        if earlier[0] == later[0]:
            return earlier[1] < later[1]
        return self.of(later[0]).get(earlier[0].origin, 0) >= earlier[0].counter


def visible(messages: Iterable[Message], pasts: Pasts) -> Shown:
    """All live slots of keys that have data, hidden types included, after these messages."""
    kills: list[tuple[tuple[Dot, int], Kill]] = []
    adds: dict[Slot, list[Placed]] = defaultdict(list)
    for message in messages:
        letter = decode(message.payload)
        for place, effect in enumerate(letter.effects):
            if isinstance(effect, Kill):
                kills.append(((message.dot, place), effect))
            else:
                adds[effect.slot].append((message.dot, place, letter.time, effect))
    values: Values = {}
    for slot, placed in adds.items():
        scopes = [where for where, kill in kills if kill.covers(slot)]
        live = [
            one
            for one in placed
            if not any(pasts.before((one[0], one[1]), where) for where in scopes)
        ]
        if live:
            values[slot] = _value(slot, live)
    return shown(values)


def _value(slot: Slot, live: list[Placed]) -> Value:
    if slot[1] == SET:
        return 1
    if slot[1] == DEADLINE:
        return max(int(add.value) for *_, add in live)
    base: Value = 0
    youngest = (-1, "", -1)
    for dot, place, time, add in live:
        if add.atom == "register" and (time, dot.origin, place) > youngest:
            youngest, base = (time, dot.origin, place), add.value
    if isinstance(base, str):
        return base
    return base + sum(int(add.value) for *_, add in live if add.atom == "increment")


def shown(values: Values) -> Shown:
    """What counts of a replica's values: no deadline that is none, or that is of a key without data."""
    data = {key for key, kind, _ in values if kind != DEADLINE}
    return {
        slot: value
        for slot, value in values.items()
        if slot[1] != DEADLINE or (slot[0] in data and value != NEVER)
    }
