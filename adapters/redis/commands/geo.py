"""Places, which are members of sorted sets: their score is a geohash.

The server itself adds places as `ZADD` does. `GEORADIUS` and its kind, which may write or not, are executed as the
command that replaced them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from crdtcast.adapters.redis.commands.errors import NOT_A_FLOAT, SYNTAX
from crdtcast.adapters.redis.commands.sorted_sets import STORES, look_stored
from crdtcast.adapters.redis.server.resp import ReplyError

Words: TypeAlias = list[bytes]

_FLOAT = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z|[+-]?inf\Z", re.I)
_OPTIONS = frozenset((b"NX", b"XX", b"CH"))
_WIDEST, _HIGHEST = 180.0, 85.05112878
_STEPS = 26
"""Bits of each coordinate."""
_WITH = frozenset((b"WITHDIST", b"WITHHASH", b"WITHCOORD"))
_NOT_COMPATIBLE = ReplyError(
    "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
)


def geohash(longitude: float, latitude: float) -> int:
    """The score of a place: 52 bits, of the latitude and the longitude in turn, the latitude's last."""
    x = int((longitude + _WIDEST) / (2 * _WIDEST) * (1 << _STEPS))
    y = int((latitude + _HIGHEST) / (2 * _HIGHEST) * (1 << _STEPS))
    return _spread(y) | _spread(x) << 1


def _spread(bits: int) -> int:
    """The 32 bits with a zero before each."""
    for shift, mask in (
        (16, 0x0000FFFF0000FFFF),
        (8, 0x00FF00FF00FF00FF),
        (4, 0x0F0F0F0F0F0F0F0F),
        (2, 0x3333333333333333),
        (1, 0x5555555555555555),
    ):
        bits = (bits | bits << shift) & mask
    return bits


def _geoadd(args: Words) -> Words | ReplyError:
    """GEOADD key [NX | XX] [CH] longitude latitude member […] as a ZADD."""
    at = 2
    while at < len(args) and args[at].upper() in _OPTIONS:
        at += 1
    flags, words = args[2:at], args[at:]
    if len(words) % 3 or {b"NX", b"XX"} <= {flag.upper() for flag in flags}:
        return SYNTAX
    pairs: Words = []
    for x, y, member in zip(words[::3], words[1::3], words[2::3], strict=True):
        if not (_FLOAT.fullmatch(x) and _FLOAT.fullmatch(y)):
            return NOT_A_FLOAT
        longitude, latitude = float(x), float(y)
        if abs(longitude) > _WIDEST or abs(latitude) > _HIGHEST:
            return ReplyError(f"ERR invalid longitude,latitude pair {longitude:.6f},{latitude:.6f}")
        pairs += b"%d" % geohash(longitude, latitude), member
    return [b"ZADD", args[1], *flags, *pairs]


def _search(begin: int, origin: bytes) -> Callable[[Words], Words | ReplyError]:
    """GEORADIUS and GEORADIUSBYMEMBER. begin: where the radius is. origin: the option before what comes before it."""

    def rewrite(args: Words) -> Words | ReplyError:
        others: Words = []
        target: bytes | None = None
        distances: Words = []
        rest = iter(args[begin + 2 :])
        for word in rest:
            name = word.upper()
            if name in (b"STORE", b"STOREDIST") and (key := next(rest, None)) is not None:
                target, distances = key, [name] if name == b"STOREDIST" else []
            else:
                others.append(word)
        if target is None:
            return [args[0] + b"_RO", *args[1:]]
        if not _WITH.isdisjoint(word.upper() for word in others):
            return _NOT_COMPATIBLE
        where = [origin, *args[2:begin], b"BYRADIUS", *args[begin : begin + 2]]
        return [b"GEOSEARCHSTORE", target, args[1], *where, *others, *distances]

    return rewrite


REWRITTEN: dict[str, tuple[int, Callable[[Words], Words | ReplyError]]] = {
    "GEOADD": (-5, _geoadd),
    "GEORADIUS": (-6, _search(4, b"FROMLONLAT")),
    "GEORADIUSBYMEMBER": (-5, _search(3, b"FROMMEMBER")),
}
"""Arity, and the words of the command that does the same."""

COMMANDS = (
    STORES(
        "GEOSEARCHSTORE",
        -8,
        keys=(1, 2, 1),
        looks_at=lambda args: look_stored(
            args, [b"GEOSEARCH", *(word for word in args[2:] if word.upper() != b"STOREDIST")]
        ),
    ),
)
