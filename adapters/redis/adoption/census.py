"""Keys of a server that cannot be replicated, counted by the server itself: of types that no command of the gateway
writes, and hashes with fields that expire.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from crdtcast.adapters.redis.adoption.left_out import LUA_LEFT_OUT, NONE, LeftOut
from crdtcast.adapters.redis.server.steps import Read
from crdtcast.adapters.redis.store.databases import Databases, in_words, name_of
from crdtcast.adapters.redis.types import BY_NAME
from crdtcast.exceptions import ServerError
from crdtcast.option_checks import nearest

KINDS = ("list", "stream")
"""Types that every server has. Modules add types with names of nine characters, which no list can be complete about."""
FIELDS = "hash with fields that expire"
_AT_ONCE = 2_000
"""Keys of one step, about 2 ms of the server."""
_EXAMPLES = 3

_OF_MODULE = re.compile("[A-Za-z0-9_-]{9}")

_COUNT = (
    LUA_LEFT_OUT
    + b"""
local db, cursor, count, looks = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local examples, fields = tonumber(ARGV[5]), ARGV[6]
local types, patterns = kept_types_and_patterns(7)
local whys, counts, names = {}, {}, {}
local function note(why, key)
  if not counts[why] then
    whys[#whys + 1] = why
    counts[why], names[why] = 0, {}
  end
  counts[why] = counts[why] + 1
  if #names[why] < examples then table.insert(names[why], key) end
end
local function has_deadlines(key)
  local fields = redis.call('HKEYS', key)
  for i = 1, #fields, 1000 do
    local some = {unpack(fields, i, math.min(i + 999, #fields))}
    for _, at in ipairs(redis.call('HPEXPIRETIME', key, 'FIELDS', #some, unpack(some))) do
      if at >= 0 then return true end
    end
  end
  return false
end
redis.call('SELECT', db)
local page = redis.call('SCAN', cursor, 'COUNT', count)
for _, key in ipairs(page[2]) do
  if is_left_out(key, patterns) then
    note('', key)
  else
    local kind = redis.call('TYPE', key).ok
    if kind ~= 'none' and not types[kind] then
      note(kind, key)
    elseif looks and kind == 'hash' and has_deadlines(key) then
      note(fields, key)
    end
  end
end
redis.call('SELECT', 0)
local found = {}
for i, why in ipairs(whys) do found[i] = {why, counts[why], names[why]} end
return {page[1], found}
"""
)


@dataclass(slots=True)
class Census:
    """The result. SCAN may return a key twice, which then counts twice.

    counts: keys by type, or `FIELDS`.
    examples: a few of them, by name.
    left_out: keys that match a pattern of the group.
    """

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[bytes]] = field(default_factory=dict)
    left_out: int = 0

    def add(self, why: str, number: int, names: Iterable[bytes]) -> None:
        """Take in a part of the count."""
        if not why:
            self.left_out += number
            return
        self.counts[why] = self.counts.get(why, 0) + number
        known = self.examples.setdefault(why, [])
        known += [name for name in names if name not in known][: _EXAMPLES - len(known)]


def is_replicated(kind: object) -> bool:
    """Whether a key with this reply to TYPE is copied and compared; also true for a key that does not exist."""
    return kind == b"none" or kind in BY_NAME


async def take_census(
    ask: Read, databases: Databases, left_out: LeftOut = NONE, *, expiring_fields: bool = False
) -> Census:
    """Count the keys that no other member would have. The connection is on database 0.

    expiring_fields: whether to look for fields of hashes that expire.
    """
    found = Census()
    for db in databases.clients:
        cursor = b"0"
        while True:
            words = _counting(db, cursor, left_out, expiring_fields=expiring_fields)
            (reply,) = await ask([words])
            if not isinstance(reply, list):
                raise ServerError(f"the server cannot count its keys: {reply!s:.200}")
            cursor, rows = reply
            for why, number, keys in rows:
                names = [name_of(db, key) for key in keys]
                found.add(why.decode(errors="replace"), number, names)
            if cursor == b"0":
                break
    return found


def _counting(db: int, cursor: bytes, left_out: LeftOut, *, expiring_fields: bool) -> list[bytes]:
    numbers = b"%d" % db, cursor, b"%d" % _AT_ONCE, b"%d" % expiring_fields
    shown = b"%d" % _EXAMPLES, FIELDS.encode()
    return [b"EVAL", _COUNT, b"0", *numbers, *shown, *left_out.words(BY_NAME)]


def described(found: Mapping[str, int], examples: Mapping[str, Iterable[bytes]] = {}) -> str:
    """As part of a sentence: `2 keys of type list (a, b), 1 key of type stream`."""
    return ", ".join(
        _of_kind(kind, number) + _named(examples.get(kind, ()))
        for kind, number in sorted(found.items())
    )


def _of_kind(kind: str, number: int) -> str:
    if kind == FIELDS:
        return f"{number} {'hash' if number == 1 else 'hashes'} with fields that expire"
    return f"{number} {'key' if number == 1 else 'keys'} of type {kind}"


def _named(names: Iterable[bytes]) -> str:
    words = ", ".join(map(in_words, names))
    return f" ({words})" if words else ""


def not_a_kind(name: str) -> str | None:
    """Why this name of a type to leave out is invalid, as part of a sentence; None if it is valid."""
    if name in KINDS:
        return None
    if near := nearest(name, KINDS):
        return f"{name!r}, did you mean {near}?"
    if _OF_MODULE.fullmatch(name):
        return None
    return (
        f"{name!r}, which is not a type that a copy can leave out: use {', '.join(KINDS)}, or the "
        "type of a module (strings, hashes, sorted sets and sets are always copied)"
    )
