"""Effects and the messages that carry them: what one server sends to the others, never what a client asked for."""

from typing import Any, Final, NamedTuple, TypeAlias

import msgpack

NEVER: Final = 2**60
"""The deadline that is none."""
STRING: Final = "string"
SET: Final = "set"
DEADLINE: Final = "deadline"
TYPES: Final = (STRING, SET)
"""In their order: the first that has data under a key is visible."""

Slot: TypeAlias = tuple[str, str, str]
"""Key, type, and which: a member of a set; "" for a string and for a deadline."""
Value: TypeAlias = int | str
Values: TypeAlias = dict[Slot, Value]


class Kill(NamedTuple):
    """Removes the atoms in its scope that come before it: everything; or of one key everything, its data, its
    deadline, one type, or some slots of a type.
    """

    scope: str
    key: str = ""
    type: str = ""
    which: tuple[str, ...] = ()

    def covers(self, slot: Slot) -> bool:
        """Whether a slot is in the scope."""
        if self.scope == "all":
            return True
        key, kind, which = slot
        if key != self.key:
            return False
        match self.scope:
            case "key":
                return True
            case "data":
                return kind != DEADLINE
            case "deadline":
                return kind == DEADLINE
            case "type":
                return kind == self.type
        return kind == self.type and which in self.which


class Add(NamedTuple):
    """One atom: `register` (a text, a number, a deadline), `increment`, or `one` (presence)."""

    atom: str
    slot: Slot
    value: Value


Effect: TypeAlias = Kill | Add


class Asked(NamedTuple):
    """The effects of one request. The request's number is for the oracle alone: nothing but checks reads it."""

    request: int
    effects: tuple[Effect, ...]


class Letter(NamedTuple):
    """The payload of one message."""

    time: int
    asked: tuple[Asked, ...]

    @property
    def effects(self) -> list[Effect]:
        """All of them, in order: their places are what atoms are numbered by."""
        return [effect for asked in self.asked for effect in asked.effects]


def encode(letter: Letter) -> bytes:
    """The same bytes for the same letter."""
    asked = [[a.request, [[isinstance(e, Kill), *e] for e in a.effects]] for a in letter.asked]
    payload: bytes = msgpack.packb([letter.time, asked])
    return payload


def decode(payload: bytes) -> Letter:
    """The opposite of `encode`."""
    time, asked = msgpack.unpackb(payload, use_list=False)
    return Letter(time, tuple(Asked(n, tuple(map(_effect, effects))) for n, effects in asked))


def _effect(fields: tuple[Any, ...]) -> Effect:
    is_kill, *rest = fields
    return Kill(*rest) if is_kill else Add(*rest)
