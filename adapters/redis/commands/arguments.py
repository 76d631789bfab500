"""Arguments as the server reads them: numbers, and deadlines, which become absolute, in ms since the epoch."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from crdtcast.adapters.redis.commands.errors import NOT_AN_INTEGER
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store.effects import LATEST
from crdtcast.adapters.redis.store.keyspace import INT64_MAX, INT64_MIN

_ZERO = ord("0")
_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}\Z")


def integer(raw: bytes) -> int | None:
    """A number of 64 bits: no plus sign, no leading zeros, no spaces."""
    if _INTEGER.fullmatch(raw) is None:
        return None
    value = int(raw)
    return value if INT64_MIN <= value <= INT64_MAX else None


Timed: TypeAlias = Callable[[Sequence[bytes], int], Sequence[bytes] | ReplyError]
"""See `WriteCommand.timed`."""
SECONDS, MILLISECONDS = 1000, 1
UNITS = {
    b"EX": (SECONDS, True),
    b"PX": (MILLISECONDS, True),
    b"EXAT": (SECONDS, False),
    b"PXAT": (MILLISECONDS, False),
}
"""Options: the unit in milliseconds, and whether it counts from now."""


def invalid_expire(command: str) -> ReplyError:
    """The server's error for a deadline out of range."""
    return ReplyError(f"ERR invalid expire time in '{command.lower()}' command")


def deadline_of(raw: bytes, unit: int, base: int, command: str) -> int | ReplyError:
    """The deadline of an argument. base: the time it counts from."""
    value = integer(raw)
    if value is None:
        return NOT_AN_INTEGER
    if not INT64_MIN <= value * unit <= INT64_MAX or value * unit + base > INT64_MAX:
        return invalid_expire(command)
    return min(value * unit + base, LATEST)  # a later deadline would count as postponed


def positive_deadline_of(raw: bytes, unit: int, base: int, command: str) -> int | ReplyError:
    """Like `deadline_of`, where the server accepts positive numbers only."""
    if raw.isdigit() and len(raw) <= 10 and raw[0] != _ZERO:  # nearly always
        return min(int(raw) * unit + base, LATEST)
    at = deadline_of(raw, unit, base, command)
    if isinstance(at, int) and int(raw) <= 0:
        return invalid_expire(command)
    return at


def option_of(words: Sequence[bytes], now: int, command: str) -> int | ReplyError:
    """The deadline of an option and its argument."""
    unit, is_relative = UNITS[words[0].upper()]
    return positive_deadline_of(words[1], unit, now if is_relative else 0, command)
