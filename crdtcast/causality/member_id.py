"""Incarnation ids: one life of one node, never used again after it ended.

A *base* is `name.` + 13 hex digits of the unix time in microseconds + 4 random hex digits. So the bases of one name
rise as plain strings, and two lives that were started in the same microsecond still differ. The id of a founder is its
base alone. The id of a later member is its base, the base of its contact and the number of the message by which the
contact admitted it: `b.0064…+a.0064…+17`. So an id tells at any time where in causal history its join is.
"""

import re
import secrets
import time
from collections.abc import Callable, Iterable
from functools import lru_cache

from crdtcast.exceptions import ConfigurationError, LocalProtocolError
from crdtcast.short_repr import shown

_NAME = re.compile(r"[A-Za-z0-9_-]{1,32}")
_BASE = r"[A-Za-z0-9_-]{1,32}\.[0-9a-f]{1,32}"
_INCARNATION = re.compile(rf"{_BASE}(?:\+{_BASE}\+[1-9][0-9]{{0,18}})?")
_TIME_DIGITS = 13  # microseconds until the year 2112
_RANDOM_DIGITS = 4
_TIME_LIMIT = 1 << 4 * _TIME_DIGITS
_RANDOM_LIMIT = 1 << 4 * _RANDOM_DIGITS


def valid_name(name: str) -> bool:
    """Whether `name` can name a node: 1 to 32 letters, digits, `_` or `-`."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def check_name(what: str, name: str) -> None:
    """Raises ConfigurationError if `name` is invalid. what: a node, a group or a founder."""
    if not valid_name(name):
        raise ConfigurationError(
            f"invalid {what} name {shown(name)}: use 1 to 32 letters, digits, '-' or '_'"
        )


def valid_incarnation(incarnation: str) -> bool:
    """Whether `incarnation` has the form of an incarnation id."""
    return isinstance(incarnation, str) and _INCARNATION.fullmatch(incarnation) is not None


def name_of(incarnation: str) -> str:
    """The node's name in an incarnation id. A text without a dot has the empty name."""
    name, dot, _ = incarnation.partition(".")
    return name if dot else ""


def base_of(incarnation: str) -> str:
    """The part of its id that the member chose itself."""
    return incarnation.partition("+")[0]


def joined_id(base: str, contact: str, counter: int) -> str:
    """The id of the member that `contact` admits under `base` by its message number `counter`."""
    return f"{base}+{base_of(contact)}+{counter}"


@lru_cache(maxsize=4096)
def joined_by(incarnation: str) -> tuple[str, int] | None:
    """The base of the contact, and the number of its message that admitted this member; None for a founder."""
    _, plus, rest = incarnation.partition("+")
    if not plus:
        return None
    contact, _, counter = rest.partition("+")
    return contact, int(counter)


def new_incarnation(name: str, now_us: int, random_bits: int, previous: str | None = None) -> str:
    """A fresh id for a new life of the node `name`.

    now_us: unix time in microseconds.
    random_bits: only the lowest 16 count.
    previous: the last known id of this node. The result is larger as a string, even if the clock has gone back since.
    Raises ConfigurationError if no node can have that name, and ValueError if the time is out of range or `previous` is
    of another node.
    """
    check_name("node", name)
    if not 0 <= now_us < _TIME_LIMIT:
        raise ValueError(f"{now_us} us is outside the times that an incarnation id can hold")
    time = now_us
    if previous is not None:
        if name_of(previous) != name:
            raise ValueError(f"{previous} is not an earlier incarnation of {name}")
        nonce = base_of(previous).rpartition(".")[2]
        time = max(time, int(nonce[:_TIME_DIGITS], 16) + 1)
    return f"{name}.{time:0{_TIME_DIGITS}x}{random_bits % _RANDOM_LIMIT:0{_RANDOM_DIGITS}x}"


def is_named(member: str, named: object) -> bool:
    """Whether that is its incarnation id, or its name."""
    return type(named) is str and named in (member, name_of(member))


def member_named(named: str, members: Iterable[str], group: str) -> str:
    """The incarnation that `named` means, by its id or its name. Raises LocalProtocolError if not exactly one fits."""
    known = sorted(members)
    found = [member for member in known if is_named(member, named)]
    if not found:
        raise LocalProtocolError(
            f"{shown(named)} is not a member of group {group!r}: name one of {', '.join(known)}"
        )
    if len(found) > 1:
        raise LocalProtocolError(
            f"{named!r} has several incarnations: evict one of {', '.join(found)}"
        )
    return found[0]


# Fresh ids: only these functions read a clock or a random source


def wall_clock_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def fresh_incarnation(
    name: str, clock_us: Callable[[], int] = wall_clock_us, previous: str | None = None
) -> str:
    """Return an incarnation id for a process that starts without state, or after a clean stop.

    It is larger than `previous`, the last one known of this node.
    """
    return new_incarnation(name, clock_us(), secrets.randbits(16), previous)
