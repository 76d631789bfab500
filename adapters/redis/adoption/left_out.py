"""Keys that a group leaves out, by the patterns that its founder was started with.

Patterns are those of the server's KEYS, and hold for all databases. Scripts cannot call the server's own matching, so a
pattern becomes a Lua pattern there, and a regular expression at the gateway.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

from crdtcast.adapters.redis.store.databases import key_of

LUA_LEFT_OUT: Final = b"""
local function kept_types_and_patterns(first)
  local types, patterns = {}, {}
  local last = first + tonumber(ARGV[first])
  for i = first + 1, last do types[ARGV[i]] = true end
  for i = last + 1, #ARGV do patterns[#patterns + 1] = ARGV[i] end
  return types, patterns
end
local function is_left_out(key, patterns)
  for _, pattern in ipairs(patterns) do
    if string.find(key, pattern) then return true end
  end
  return false
end
"""
_ALL: Final = frozenset(range(256))
_Many: Final = None
_Part = frozenset[int] | None
"""The bytes that may stand at one place; None for any number of any bytes."""


class LeftOut:
    """The keys that match one of these patterns."""

    def __init__(self, patterns: Iterable[bytes] = ()) -> None:
        self.patterns: Sequence[bytes] = tuple(sorted(set(patterns)))
        parts = [list(_parts(pattern)) for pattern in self.patterns]
        self.lua: Sequence[bytes] = tuple(map(_for_lua, parts))
        """The same as patterns of Lua, for `LUA_LEFT_OUT`."""
        self._matches: Sequence[Callable[[bytes], object]] = [
            re.compile(b"".join(map(_for_re, each)), re.DOTALL).fullmatch for each in parts
        ]

    def __bool__(self) -> bool:
        return bool(self.patterns)

    def has(self, name: bytes) -> bool:
        """Whether the key of this name is left out."""
        key = key_of(name)
        return any(matches(key) for matches in self._matches)

    def kept(self, names: Collection[bytes]) -> Collection[bytes]:
        """The names of keys that are not left out."""
        if not self._matches:
            return names
        return [name for name in names if not self.has(name)]

    def words(self, types: Collection[bytes]) -> list[bytes]:
        """The last arguments of a script that looks at keys of these types: see `LUA_LEFT_OUT`."""
        return [b"%d" % len(types), *sorted(types), *self.lua]

    def shown(self) -> str:
        """The patterns, for people."""
        return ", ".join(p.decode(errors="backslashreplace") for p in self.patterns)


def _parts(pattern: bytes) -> Iterator[_Part]:
    """The parts of a pattern, as the server reads them."""
    at, end = 0, len(pattern)
    while at < end:
        byte = pattern[at]
        if byte == 0x2A:  # *
            yield _Many
        elif byte == 0x3F:  # ?
            yield _ALL
        elif byte == 0x5B:  # [
            some, at = _class(pattern, at + 1)
            yield some
        else:
            if byte == 0x5C and at + 1 < end:  # a backslash
                at += 1
            yield frozenset((pattern[at],))
        at += 1


def _class(pattern: bytes, at: int) -> tuple[frozenset[int], int]:
    """The bytes between brackets, and the place of the closing one: the pattern's last place if that is missing."""
    end = len(pattern)
    is_negated = pattern[at : at + 1] == b"^"
    at += is_negated
    some: set[int] = set()
    while at < end and pattern[at] != 0x5D:
        if pattern[at] == 0x5C and at + 1 < end:
            at += 1
            some.add(pattern[at])
        elif at + 2 < end and pattern[at + 1] == 0x2D:
            first, last = sorted((pattern[at], pattern[at + 2]))
            some.update(range(first, last + 1))
            at += 2
        else:
            some.add(pattern[at])
        at += 1
    return frozenset(_ALL - some if is_negated else some), at


def _for_re(part: _Part) -> bytes:
    if part is None:
        return b".*"
    if not part:
        return b"(?!)"
    return b"[" + b"".join(b"\\x%02x" % byte for byte in sorted(part)) + b"]"


def _for_lua(parts: Iterable[_Part]) -> bytes:
    return b"^" + b"".join(map(_part_for_lua, parts)) + b"$"


def _part_for_lua(part: _Part) -> bytes:
    if part is None:
        return b".*"
    if part == _ALL:
        return b"."
    if not part:
        return b"[^%z\x01-\xff]"
    shown = b"".join(map(_byte_for_lua, sorted(part)))
    return shown if len(part) == 1 else b"[" + shown + b"]"


def _byte_for_lua(byte: int) -> bytes:
    if byte == 0:
        return b"%z"
    char = bytes((byte,))
    return char if char.isalnum() or byte > 0x7F else b"%" + char


NONE: Final = LeftOut()
