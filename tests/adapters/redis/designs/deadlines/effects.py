"""What a message says: atoms to add, and kills, which remove the atoms that come before them."""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import NamedTuple

Value = int | str
"""Of a string or a field: a number or a text. Of a member: 1."""
NONE = 1 << 60
"""The deadline that a PERSIST, or a SET without one, gives: none. It is later than any other."""


class Type(StrEnum):
    STRING = "string"
    SET = "set"
    HASH = "hash"
    DEADLINE = "deadline"


class Slot(NamedTuple):
    """One cell of a key: the string, a member, a field, the deadline."""

    type: Type
    name: str = ""


STRING = Slot(Type.STRING)
DEADLINE = Slot(Type.DEADLINE)


class Scope(Enum):
    """What a kill removes of its key."""

    KEY = "key"
    DATA = "data"
    TTL = "ttl"
    TYPE = "type"
    SLOTS = "slots"


class Kind(Enum):
    REG = "reg"
    INC = "inc"
    ONE = "one"
    AT = "at"


class Only(Enum):
    """The condition that a deadline was set under, and remembers."""

    ALWAYS = ""
    GREATER = "GT"
    LESS = "LT"


@dataclass(frozen=True, slots=True)
class Kill:
    """Remove what comes before it. `expired`: the key's deadline was over, so this is an X."""

    key: str
    scope: Scope
    slots: frozenset[Slot] = frozenset()
    expired: bool = False
    type: Type | None = None

    def covers(self, slot: Slot) -> bool:
        match self.scope:
            case Scope.KEY:
                return True
            case Scope.DATA:
                return slot.type is not Type.DEADLINE
            case Scope.TTL:
                return slot.type is Type.DEADLINE
            case Scope.TYPE:
                return slot.type is self.type
            case Scope.SLOTS:
                return slot in self.slots


@dataclass(frozen=True, slots=True)
class Add:
    """One atom. `since`: of a register that was re-asserted, the time stamp that it had, 0 where that is forgotten."""

    key: str
    slot: Slot
    kind: Kind
    value: Value
    only: Only = Only.ALWAYS
    since: int | None = None


Effect = Kill | Add


class Dot(NamedTuple):
    origin: int
    counter: int


@dataclass(frozen=True, slots=True)
class Message:
    """One causal event. `past`: by origin, how many of its messages this one has seen, own ones included."""

    dot: Dot
    past: tuple[int, ...]
    ts: int
    effects: tuple[Effect, ...]

    def has_seen(self, dot: Dot) -> bool:
        return self.past[dot.origin] >= dot.counter

    def touches(self, key: str) -> bool:
        return any(effect.key == key for effect in self.effects)

    @property
    def keys(self) -> list[str]:
        """In the order of their first effects."""
        return list(dict.fromkeys(effect.key for effect in self.effects))
