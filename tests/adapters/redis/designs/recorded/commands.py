"""Clients' commands: what the server does when it carries one out, and the effects of that, derived from the reply.

`derive` is a function of what is recorded and of nothing else: no memory of a gateway, no clock, no look at the server.
"""

from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple, TypeAlias

from tests.adapters.redis.designs.recorded.effects import (
    DEADLINE,
    NEVER,
    SET,
    STRING,
    Add,
    Effect,
    Kill,
    Slot,
    Values,
)

LIMIT: Final = 3
"""The greatest number that INCRLIM makes."""


class Command(NamedTuple):
    """name, key, and one argument, if it takes any."""

    name: str
    key: str
    argument: str | int = ""


class Refused(NamedTuple):
    """The server's error: this command has changed nothing."""

    text: str


Reply: TypeAlias = int | str | Refused | None


class Entry(NamedTuple):
    """What is recorded of one command, in the step that carries it out. was_there: whether its key had data before."""

    request: int
    command: Command
    reply: Reply
    was_there: bool

    @property
    def wrote(self) -> bool:
        """Whether there is anything to derive."""
        return bool(derive(self))


WRONG_TYPE: Final = Refused("WRONGTYPE")
NO_NUMBER: Final = Refused("ERR value is not an integer")
TOO_LARGE: Final = Refused("ERR limit")


def has_data(values: Values, key: str) -> bool:
    """Whether the key exists for a client."""
    return any(k == key and kind != DEADLINE for k, kind, _ in values)


def visible_type(values: Values, key: str) -> str | None:
    """What TYPE says."""
    if (key, STRING, "") in values:
        return STRING
    return SET if has_data(values, key) else None


def execute(values: Values, command: Command, random: Random) -> Reply:
    """Carry a command out, as the server does it together with our fixed script: hidden values and orphan deadlines of
    the key go in the same step as its visible value.
    """
    return _EXECUTE[command.name](values, command, random)


def _clear(values: Values, key: str) -> None:
    for slot in [slot for slot in values if slot[0] == key]:
        del values[slot]


def _create(values: Values, key: str) -> None:
    """A key that begins anew does not inherit a deadline."""
    if not has_data(values, key):
        values.pop((key, DEADLINE, ""), None)


def _sadd(values: Values, command: Command, _: Random) -> Reply:
    key, member = command.key, str(command.argument)
    if visible_type(values, key) == STRING:
        return WRONG_TYPE
    _create(values, key)
    slot: Slot = (key, SET, member)
    added = slot not in values
    values[slot] = 1
    return int(added)


def _srem(values: Values, command: Command, _: Random) -> Reply:
    if visible_type(values, command.key) == STRING:
        return WRONG_TYPE
    return int(values.pop((command.key, SET, str(command.argument)), None) is not None)


def _spop(values: Values, command: Command, random: Random) -> Reply:
    kind = visible_type(values, command.key)
    if kind == STRING:
        return WRONG_TYPE
    members = sorted(m for k, t, m in values if k == command.key and t == SET)
    if not members:
        return None
    chosen = random.choice(members)
    del values[(command.key, SET, chosen)]
    return chosen


def _set(values: Values, command: Command, _: Random) -> Reply:
    _clear(values, command.key)
    values[(command.key, STRING, "")] = command.argument
    return "OK"


def _setnx(values: Values, command: Command, random: Random) -> Reply:
    if has_data(values, command.key):
        return 0
    _set(values, command, random)
    return 1


def _del(values: Values, command: Command, _: Random) -> Reply:
    there = has_data(values, command.key)
    if there:
        _clear(values, command.key)
    return int(there)


def _getdel(values: Values, command: Command, _: Random) -> Reply:
    kind = visible_type(values, command.key)
    if kind == SET:
        return WRONG_TYPE
    if kind is None:
        return None
    value = values[(command.key, STRING, "")]
    _clear(values, command.key)
    return value


def _incr(values: Values, command: Command, _: Random, most: int = 2**63 - 1) -> Reply:
    key = command.key
    if visible_type(values, key) == SET:
        return WRONG_TYPE
    before = values.get((key, STRING, ""), 0)
    if isinstance(before, str):
        return NO_NUMBER
    if before + 1 > most:
        return TOO_LARGE
    _create(values, key)
    values[(key, STRING, "")] = before + 1
    return before + 1


def _incrlim(values: Values, command: Command, random: Random) -> Reply:
    return _incr(values, command, random, LIMIT)


def _expire(values: Values, command: Command, _: Random) -> Reply:
    if not has_data(values, command.key):
        return 0
    values[(command.key, DEADLINE, "")] = command.argument
    return 1


def _keepttl(values: Values, command: Command, _: Random) -> Reply:
    """SET with KEEPTTL."""
    _create(values, command.key)
    for slot in [slot for slot in values if slot[0] == command.key and slot[1] != DEADLINE]:
        del values[slot]
    values[(command.key, STRING, "")] = command.argument
    return "OK"


def _flush(values: Values, _: Command, __: Random) -> Reply:
    values.clear()
    return "OK"


_EXECUTE: Final[dict[str, Callable[[Values, Command, Random], Reply]]] = {
    "SADD": _sadd,
    "SREM": _srem,
    "SPOP": _spop,
    "SET": _set,
    "SETNX": _setnx,
    "KEEPTTL": _keepttl,
    "DEL": _del,
    "GETDEL": _getdel,
    "INCR": _incr,
    "INCRLIM": _incrlim,
    "EXPIRE": _expire,
    "FLUSHALL": _flush,
}
PLAIN: Final = ("SADD", "SREM", "SET", "KEEPTTL", "DEL", "INCR", "EXPIRE", "FLUSHALL")
"""Their effects are known before they are carried out, if the types of their keys are."""


def derive(entry: Entry) -> tuple[Effect, ...]:
    """The effects of one command, as it was recorded. None of what the server refused, or what has found nothing."""
    key, reply, argument = entry.command.key, entry.reply, entry.command.argument
    if isinstance(reply, Refused):
        return ()
    fresh: tuple[Effect, ...] = () if entry.was_there else (Kill("key", key),)
    match entry.command.name:
        case "SADD":
            member = str(argument)
            return (*fresh, Kill("slots", key, SET, (member,)), Add("one", (key, SET, member), 1))
        case "SREM" if reply:
            return (Kill("slots", key, SET, (str(argument),)),)
        case "SPOP" if reply is not None:
            return (Kill("slots", key, SET, (str(reply),)),)
        case "SET":
            return whole(key, argument)
        case "SETNX" if reply:
            return whole(key, argument)
        case "KEEPTTL":
            return (*fresh, Kill("data", key), Add("register", (key, STRING, ""), argument))
        case "DEL" if reply:
            return (Kill("key", key),)
        case "GETDEL" if reply is not None:
            return (Kill("key", key),)
        case "INCR" | "INCRLIM":
            return (*fresh, Add("increment", (key, STRING, ""), 1))
        case "EXPIRE" if reply:
            return (Kill("deadline", key), Add("register", (key, DEADLINE, ""), argument))
        case "FLUSHALL":
            return (Kill("all"),)
    return ()


def whole(key: str, value: str | int) -> tuple[Effect, ...]:
    """SET: the key begins anew, without a deadline."""
    return (
        Kill("key", key),
        Add("register", (key, DEADLINE, ""), NEVER),
        Add("register", (key, STRING, ""), value),
    )
