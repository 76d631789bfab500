"""The key `record` of our database: commands that the server has decided, recorded in the step that executes them.

A list: a header (for the one message of the record), the server's time, and of each command the request and its result.
Effects are derived from that, and from nothing else (docs/redis-recorded.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import msgpack

from crdtcast.adapters.redis.deadlines.index import PIN_BELOW_MS, PIN_MS
from crdtcast.adapters.redis.recorded import exact_scores, exact_sums
from crdtcast.adapters.redis.server.resp import ReplyError, StatusReply
from crdtcast.adapters.redis.store.databases import LUA_HOME, db_of
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import NativeType
from crdtcast.causality.tags import Dot, make_tuple
from crdtcast.exceptions import ConfigurationError, OutdatedError

LEVEL = 1
"""The level of a record's format."""
MOST_WORDS = 4000
"""Words of a command that a script can call: Lua's stack holds twice as many."""
MOST_BYTES = 8 << 20
"""Bytes of the commands of one message, and of the values that they copy."""
MOST_SLOTS = 1 << 17
"""Slots of the values that a command copies."""

_MISSING = ord("0")
_pack: Callable[[object], bytes] = msgpack.packb
_pack_for_script: Callable[[object], bytes] = partial(msgpack.packb, use_bin_type=False)
"""A server's scripts do not know msgpack's type for bytes."""

_OURS = b"local ours = tonumber(ARGV[1])\n"
# No line after the first write can fail: errors of commands are caught, all sizes checked before.
_SCRIPT = b"""
local header, always, most = ARGV[2], ARGV[3] == '1', tonumber(ARGV[4])
local results, kept, wrote, used, stopped = {0}, {}, always, 0, false
local sizes, reads, rounds = {%(sizes)b}, {%(reads)b}, {%(rounds)b}
local function bytes(value)
  if type(value) == 'string' then return #value end
  local sum = 0
  if type(value) == 'table' then for i = 1, #value do sum = sum + bytes(value[i]) end end
  return sum
end
local function expire(words)
  local key, at, old = words[2], tonumber(words[3]), redis.call('PEXPIRETIME', words[2])
  if old == -2 then return 0 end
  if old >= PIN_MS then old = old - PIN_MS end
  for j = 4, #words do
    local only = string.upper(words[j])
    if only == 'NX' and old >= 0 or only == 'XX' and old < 0 then return 0 end
    if only == 'GT' and (old < 0 or at <= old) or only == 'LT' and old >= 0 and at >= old then return 0 end
  end
  if at == 1 then return redis.call('DEL', key) end  -- it is over, whenever one looks
  local time = redis.call('TIME')
  if at - time[1] * 1000 < BELOW_MS then at = at + PIN_MS end
  return redis.call('PEXPIREAT', key, string.format('%%.0f', at))
end
local function flush_all(count)
  for db = 0, count - 1 do
    if db ~= ours then
      to(db)
      redis.call('FLUSHDB', 'ASYNC')
    end
  end
  return {ok = 'OK'}
end
local function carry_out(asked, found)
  local words = asked[2]
  if words[1] == 'FLUSHALL' then return flush_all(tonumber(words[2])) end
  if words[1] == 'PEXPIREAT' then return expire(words) end  -- a deadline may be put off, and nobody is to see that
  local score = scored[string.upper(words[1])]
  if score then return score(asked, found) end
  return counted(words)
end
local function look(words, asked)
  if words[1] ~= 'VALUE' then return redis.pcall(unpack(words)) end
  local kind = redis.call('TYPE', words[2]).ok
  if kind == 'none' then return false end
  if not reads[kind] then return {err = 'ERR crdtcast: a key of type ' .. kind .. ' is not replicated'} end
  local at = redis.call('PEXPIRETIME', words[2])
  local value = redis.call(reads[kind][1], words[2], unpack(reads[kind], 2))
  local exact = rounds[kind] and of_exact('HGETALL', 'exact:' .. kind .. ':' .. name_at(asked, 2)) or {}
  return {kind, value, string.format('%%.0f', at), exact}
end
local function too_large(keys)
  local slots, text = 0, 0
  for i = 1, #keys do
    local kind = redis.call('TYPE', keys[i]).ok
    if kind == 'string' then text = text + redis.call('STRLEN', keys[i])
    elseif sizes[kind] then slots = slots + redis.call(sizes[kind], keys[i]) end
  end
  return slots > %(slots)d or text > most
end
for i = 5, #ARGV do
  local asked = cmsgpack.unpack(ARGV[i])
  local words, begins, idle, before, weighs, exact = asked[2], asked[3], asked[4], asked[5], asked[6], asked[7]
  local db, into, after = asked[8] or 0, asked[9] or asked[8] or 0, asked[11]
  to(db)
  local there, found, reply, sum, is_idle = '', false, nil, nil, false
  if weighs and too_large(weighs) then
    reply = {err = 'ERR crdtcast: what this command copies is too large for one message'}
  elseif before and not stopped then
    found = look(before, asked)
    if type(found) == 'table' and found.err then
      -- Else the command fails by itself.
      if not after and string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then reply = found end
      found = false
    end
    local size = bytes(found)
    if used + size > most then
      if used == 0 or always then
        reply = {err = 'ERR crdtcast: what this command copies is too large for one message'}
      else
        stopped = true
      end
    else
      used = used + size
    end
  end
  if stopped then
    results[#results + 1] = ''
  else
    if not reply then
      to(into)
      for j = 1, #begins do there = there .. redis.call('EXISTS', words[begins[j]]) end
      to(db)
      reply, sum, is_idle = carry_out(asked, found)
      found = sum or found
    end
    local kind = 0
    if type(reply) == 'table' then
      if reply.err then kind, reply, found = 2, reply.err, false
      elseif reply.ok then kind, reply = 1, reply.ok end
    elseif type(reply) == 'number' and (reply >= 9007199254740992 or reply <= -9007199254740992) and exact then
      kind, reply = 3, redis.call(unpack(exact))
    end
    if reply == nil then reply = false end
    if after and kind == 0 then found = {found, look(after, asked)} end
    local result = cmsgpack.pack({there, found, kind, reply})
    results[#results + 1] = result
    kept[#kept + 1] = ARGV[i]
    kept[#kept + 1] = result
    local empty = not reply or reply == 0 or (type(reply) == 'table' and #reply == 0)
    if kind ~= 2 and not is_idle and not (idle and empty) then wrote = true end
  end
end
if wrote and #kept > 0 then
  to(ours)
  if redis.call('EXISTS', 'record') == 0 then
    local time = redis.call('TIME')
    redis.call('RPUSH', 'record', header, time[1] .. '.' .. time[2])
  end
  for i = 1, #kept, 1000 do redis.call('RPUSH', 'record', unpack(kept, i, math.min(i + 999, #kept))) end
  results[1] = 1
end
to(0)
return results
"""


def _script(scores: bytes, types: Sequence[type[NativeType]]) -> tuple[bytes, bytes]:
    """The script, and its digest. types: those whose values it can copy."""
    body = _SCRIPT % {
        b"slots": MOST_SLOTS,
        b"sizes": b", ".join(b"%b = '%b'" % (t.name, t.size) for t in types),
        b"reads": b", ".join(
            b"%b = {'%b'}" % (t.name, b"', '".join((t.read, *t.read_behind))) for t in types
        ),
        b"rounds": b", ".join(b"%b = true" % t.name for t in types if t.rounds),
    }
    body = body.replace(b"PIN_MS", b"%d" % PIN_MS).replace(b"BELOW_MS", b"%d" % PIN_BELOW_MS)
    text = _OURS + LUA_HOME + exact_sums.LUA + scores + body
    return text, hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


SCRIPT, SCRIPT_SHA = _script(
    exact_scores.NOT_NEEDED, [native for native in TYPES.values() if not native.rounds]
)
SCORE_SCRIPT, SCORE_SCRIPT_SHA = _script(exact_scores.LUA, list(TYPES.values()))
"""For segments with one of `exact_scores.COMMANDS`, from their format level on."""


class ServerLook(NamedTuple):
    """Reads in the same step as a command, before it or (`exact`) after it.

    before: a read whose reply is recorded; or VALUE and a key, for its type, its whole contents, its deadline and its
      exact values.
    weighs: keys that `before` reads completely.
    exact: a read that returns an integer again as text, if a script cannot hold the integer exactly.
    after: a read after the command, whose reply is recorded behind that of `before`. If it reads the result, `before`
      bounds that.
    """

    before: Sequence[bytes] = ()
    weighs: Sequence[bytes] = ()
    exact: Sequence[bytes] = ()
    after: Sequence[bytes] = ()


NO_LOOK = ServerLook()


class AskedCommand(NamedTuple):
    """One command for the script.

    number: its number in its commit.
    begins: places of keys that it may begin: the script records whether they had data before.
    idle: whether a reply of nil, 0 or no elements means that it wrote nothing.
    db: the database that it runs in.
    names: names of keys in the record, by place, where they differ from the keys.
    """

    number: int
    words: Sequence[bytes]
    begins: Sequence[int] = ()
    idle: bool = False
    look: ServerLook = NO_LOOK
    db: int = 0
    names: Mapping[int, bytes] = {}

    @staticmethod
    def plain(number: int, words: Sequence[bytes], begins: tuple[int, ...], idle: bool) -> bytes:
        """The encoded form of a command in database 0 without looks."""
        return _pack_for_script([number, words, _lua_places(begins), idle, False, False, False])

    def encode(self) -> bytes:
        """The form that the script takes and the record keeps."""
        before, weighs, exact, after = self.look
        asked: list[Any] = [
            self.number,
            self.words,
            _lua_places(tuple(self.begins)),
            self.idle,
            before or False,
            weighs or False,
            exact or False,
        ]
        if self.db or self.names or after:
            into = {db_of(self.names[place]) for place in self.begins if place in self.names}
            asked += self.db, max(into, default=self.db), list(self.names.items())
        if after:
            asked.append(after)
        return _pack_for_script(asked)


@cache
def _lua_places(places: tuple[int, ...]) -> list[int]:
    return [place + 1 for place in places]


class RecordEntry(NamedTuple):
    """The record of one command, with names for keys.

    fresh: keys that had no data before.
    before: the reply to `ServerLook.before`, or both replies if there is an `after`; of an exact sum, its decimal.
    """

    number: int
    words: Sequence[bytes]
    fresh: Sequence[bytes]
    before: Any
    reply: Any

    @classmethod
    def decode(cls, asked: bytes, result: bytes) -> RecordEntry:
        """From its two elements in the list: the request and the result."""
        number, words, begins, _, _, _, _, *elsewhere = msgpack.unpackb(asked, raw=True)
        for place, name in elsewhere[2] if elsewhere else ():
            words[place] = name
        there, before, kind, reply = msgpack.unpackb(result, raw=True)
        fresh: Sequence[bytes] = ()
        if _MISSING in there:
            places = zip(begins, there, strict=False)
            fresh = [words[place - 1] for place, found in places if found == _MISSING]
        value = _reply(kind, reply) if kind or reply is False else reply
        entry: RecordEntry = make_tuple(
            cls, (number, words, fresh, None if before is False else before, value)
        )
        return entry

    @staticmethod
    def reply_of(result: bytes) -> Any:
        """Only the reply, from the result."""
        _, _, kind, reply = msgpack.unpackb(result, raw=True)
        return _reply(kind, reply)


def _reply(kind: int, reply: Any) -> Any:
    match kind:
        case 1:
            return StatusReply(reply)
        case 2:
            return ReplyError(reply)
        case 3:
            return int(reply)
    return None if reply is False else reply


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """The source of the one message of some recorded commands."""

    dot: Dot
    context: tuple[Dot, ...]
    timestamp: int
    entries: tuple[RecordEntry, ...] = ()
    offset_ms: int = 0
    """How far the clock of deadlines is ahead of the server's."""

    def header(self) -> bytes:
        """The first element of the list: everything but the entries."""
        return _pack([LEVEL, self.dot, self.context, self.timestamp, self.offset_ms])

    def with_entries(self, entries: Iterable[RecordEntry]) -> ServerRecord:
        """The same record with these entries."""
        return replace(self, entries=tuple(entries))

    @classmethod
    def decode(cls, elements: Sequence[bytes]) -> ServerRecord | None:
        """From the list; None if it is empty.

        Raises OutdatedError if a later program wrote it, ConfigurationError if it is damaged.
        """
        if not elements:
            return None
        try:
            level, dot, context, timestamp, offset_ms = msgpack.unpackb(elements[0])
            if level != LEVEL:
                raise OutdatedError(
                    f"the server holds a record of level {level}, and this gateway's program "
                    f"reads {LEVEL}: start the program that wrote it; this one changed nothing"
                )
            entries = map(RecordEntry.decode, elements[2::2], elements[3::2])
            dots = tuple(Dot(*pair) for pair in context)
            return cls(Dot(*dot), dots, int(timestamp), tuple(entries), int(offset_ms))
        except (ValueError, TypeError, LookupError, msgpack.UnpackException) as error:
            raise ConfigurationError(
                f"the key 'record' of the metadata database is damaged ({error}), so another "
                "program wrote to it: restore the server's append-only file or snapshot"
            ) from error
