"""From a client's commands to effects, by what the server holds in the step that executes them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .effects import (
    DEADLINE,
    NONE,
    STRING,
    Add,
    Effect,
    Kill,
    Kind,
    Only,
    Scope,
    Slot,
    Type,
    Value,
)
from .keystate import KeyState


class Command(NamedTuple):
    """`names`: members or fields; of RENAME the destination. `ttl`: None for none, KEEP for the one that is there."""

    name: str
    key: str
    names: tuple[str, ...] = ()
    value: Value = 1
    ttl: int | None = None
    condition: str = ""


KEEP = -(1 << 40)
Prepared = tuple[list[Effect], int]
"""Effects, and the reply: a number, or 1 and 0 for done and not done."""
Look = Callable[[str], KeyState]
Front = Callable[[str], list[Effect]]
"""What goes in front of a partial write to a key: a kill if the key is gone."""


def prepare(command: Command, look: Look, front: Front, time: int) -> Prepared:
    key, state = command.key, look(command.key)
    match command.name:
        case "SET":
            return _set(command, front, time), 1
        case "APPEND":
            text = f"{state.slots.get(STRING, '')}{command.value}"
            kill = Kill(key, Scope.TYPE, type=Type.STRING)
            return [*front(key), kill, Add(key, STRING, Kind.REG, text)], len(text)
        case "INCR":
            return _increment(key, STRING, command.value, state, front)
        case "HINCRBY":
            return _increment(key, Slot(Type.HASH, command.names[0]), command.value, state, front)
        case "SADD":
            slots = [Slot(Type.SET, name) for name in command.names]
            return front(key) + replaced(key, slots, Kind.ONE, 1), len(slots)
        case "HSET":
            slots = [Slot(Type.HASH, name) for name in command.names]
            return front(key) + replaced(key, slots, Kind.REG, command.value), len(slots)
        case "SREM" | "HDEL":
            kind = Type.SET if command.name == "SREM" else Type.HASH
            gone = frozenset(Slot(kind, name) for name in command.names) & state.slots.keys()
            return ([Kill(key, Scope.SLOTS, gone)] if gone else []), len(gone)
        case "DEL":
            return ([Kill(key, Scope.KEY)], 1) if state.exists else ([], 0)
        case "EXPIRE":
            return _expire(command, state, time)
        case "PERSIST":
            found = state.exists and state.has_deadline
            return (moved(key, NONE), 1) if found else ([], 0)
        case "RENAME":
            return _rename(key, command.names[0], state) if state.exists else ([], 0)
    raise ValueError(f"unknown command {command.name}")


def replaced(
    key: str, slots: Sequence[Slot], kind: Kind, value: Value, since: int | None = None
) -> list[Effect]:
    """Registers or members, each right behind the kill of its slot."""
    effects: list[Effect] = []
    for slot in slots:
        effects.append(Kill(key, Scope.SLOTS, frozenset({slot})))
        effects.append(Add(key, slot, kind, value, since=since))
    return effects


def moved(key: str, at: int, only: Only = Only.ALWAYS) -> list[Effect]:
    """A new deadline, right behind the kill of the old one."""
    return [Kill(key, Scope.TTL), Add(key, DEADLINE, Kind.AT, at, only)]


def kind_of(slot: Slot) -> Kind:
    """Of the atom that gives a slot a value."""
    return Kind.ONE if slot.type is Type.SET else Kind.REG


def contents(key: str, slots: dict[Slot, Value]) -> list[Effect]:
    """What a key is worth, by value."""
    effects: list[Effect] = []
    for slot, value in slots.items():
        effects += replaced(key, [slot], kind_of(slot), value)
    return effects


def _set(command: Command, front: Front, time: int) -> list[Effect]:
    key = command.key
    register = Add(key, STRING, Kind.REG, command.value)
    if command.ttl == KEEP:
        return [*front(key), Kill(key, Scope.DATA), register]
    at = NONE if command.ttl is None else time + command.ttl
    return [Kill(key, Scope.KEY), Add(key, DEADLINE, Kind.AT, at), register]


def _increment(key: str, slot: Slot, by: Value, state: KeyState, front: Front) -> Prepared:
    now = state.slots.get(slot, 0)
    if not isinstance(now, int) or not isinstance(by, int):
        return [], 0
    return [*front(key), Add(key, slot, Kind.INC, by)], now + by


def _expire(command: Command, state: KeyState, time: int) -> Prepared:
    at = time + (command.ttl or 0)
    allowed = {
        "": True,
        "NX": not state.has_deadline,
        "XX": state.has_deadline,
        "GT": at > state.deadline,
        "LT": at < state.deadline,
    }[command.condition]
    if not state.exists or not allowed:
        return [], 0
    if at <= time:
        return [Kill(command.key, Scope.KEY)], 1
    only = Only(command.condition) if command.condition in ("GT", "LT") else Only.ALWAYS
    return moved(command.key, at, only), 1


def _rename(source: str, target: str, state: KeyState) -> Prepared:
    effects: list[Effect] = [Kill(source, Scope.KEY), Kill(target, Scope.KEY)]
    effects.append(Add(target, DEADLINE, Kind.AT, state.deadline))
    return effects + contents(target, state.slots), 1
