"""The index of deadlines in the metadata database, and the fixed scripts that read and change it.

    due             sorted set of the seconds that have a bucket
    due:SECOND      hash, keys with a deadline in that second -> whether this member (`m`) or another (`o`) has set it
    orphans         hash, keys without data -> their deadline and which member has set it
    pinned          hash, keys whose native deadline is postponed for a moment -> their deadline
    looked          text; while it exists, no key is dropped whose deadline a look has seen and not postponed

Keys are given by name (`databases`). An entry is always in the bucket of the native deadline, moved in the same step as
the write. So an entry that is over, and whose key is gone, means that the server has dropped the key; no memory is
needed per key. An entry that is over, and whose key exists, is stale: a write on the whole key does not look for the
entry, and the next search removes it.

A gateway looks at a key, decides, and writes: three instants. So a look postpones a near deadline (`pinned`): the
server cannot drop the key in between, and the write, or a restart, sets the deadline again. For deadlines farther away,
the look sets `looked`, which expires before they do and is watched: a later write fails as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import compress, product
from typing import Any, NamedTuple

from crdtcast.adapters.redis.store.databases import LUA_HOME, home_of, select
from crdtcast.adapters.redis.store.effects import LATEST
from crdtcast.adapters.redis.store.slot_value import LONGEST_NUMBER

DUE, ORPHANS, PINNED, LOOKED = b"due", b"orphans", b"pinned", b"looked"
BUCKET_PREFIX = b"due:"
BOUND_MS = 500
"""How far a clock in use may differ from the true time."""
MARGIN_MS = 3 * BOUND_MS
"""Keys with less time to live are not compared: covers the clocks' bounds, and some time for messages."""
PIN_BELOW_MS, PIN_MS = 20_000, LATEST + 1
"""A deadline nearer than the first is postponed by the second, a thousand years, so that it differs from any other."""
MOST_DUE = 16
"""Keys of one search for expired ones, and so of one commit: a client's write waits for no more."""

# offset: how far an administrator has moved the clock, for tests; a deadline in the server is earlier by that. index:
# if a client has replaced an index directly in the server, it starts again, empty. Other members have their own.
COMMON = (
    LUA_HOME
    + b"""
local db, offset = tonumber(ARGV[1]), tonumber(ARGV[2])
local function ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000) + offset
end
local function text(number) return string.format('%.0f', number) end
local function ends(key)
  local at = redis.call('PEXPIRETIME', key)
  return at < 0 and at or at + offset
end
local function set(key, at) return redis.call('PEXPIREAT', key, text(at - offset)) end
local function are_gone(names)
  local keys = {}
  for _, name in ipairs(names) do
    local number, key = place(name)
    keys[number] = keys[number] or {}
    table.insert(keys[number], key)
  end
  for number, some in pairs(keys) do
    to(number)
    if redis.call('EXISTS', unpack(some)) > 0 then return false end
  end
  return true
end
local function index(command, name, ...)
  local reply = redis.pcall(command, name, ...)
  if type(reply) == 'table' and reply.err then
    if not string.find(reply.err, 'WRONGTYPE') then error(reply.err) end
    redis.call('UNLINK', name)
    reply = redis.call(command, name, ...)
  end
  return reply
end
local function seconds(from, last)
  local found = {}
  for _, second in ipairs(index('ZRANGEBYSCORE', 'due', from, last)) do
    if string.find(second, '^%d+$') then
      found[#found + 1] = second
    else
      redis.call('ZREM', 'due', second)
    end
  end
  return found
end
local pin = PIN_MS
local function unpinned(at)
  if at >= 2 * pin then return pin - 1 end
  return at >= pin and at - pin or at
end
""".replace(b"PIN_MS", b"%d" % PIN_MS)
)

_LOOK = (
    COMMON
    + b"""
local longest, bound = tonumber(ARGV[3]), tonumber(ARGV[4])
local below = tonumber(ARGV[5])
local now = ms()
to(db)
local over = seconds('-inf', text(math.floor((now + 2 * bound) / 1000)))
local found = {text(now)}
if are_gone(KEYS) then
  for i in ipairs(KEYS) do found[i + 1] = {'none', '', '-1', '', ''} end
  to(db)
  for _, second in ipairs(over) do
    for i, owner in ipairs(index('HMGET', 'due:' .. second, unpack(KEYS))) do
      if owner then found[i + 1] = {'none', '', '-1', owner, second} end
    end
  end
  to(0)
  return found
end
local is_far = false
for i, name in ipairs(KEYS) do
  local key = home(name)
  local kind = redis.call('TYPE', key).ok
  local number, at, owner, bucket = '', -1, '', ''
  if kind == 'string' and redis.call('STRLEN', key) <= longest then number = redis.call('GET', key) end
  if kind ~= 'none' then
    at = unpinned(ends(key))
    if at >= 0 then
      to(db)
      owner = index('HGET', 'due:' .. text(math.floor(at / 1000)), name) or ''
      if owner ~= '' then bucket = text(math.floor(at / 1000)) end
      if at - now < below then
        index('HSET', 'pinned', name, text(at))
        home(name)
        set(key, at + pin)
      else
        is_far = true
      end
    end
  elseif #over > 0 then
    to(db)
    for _, second in ipairs(over) do
      local found_owner = index('HGET', 'due:' .. second, name)
      if found_owner then owner, bucket = found_owner, second end
    end
  end
  found[i + 1] = {kind, number, text(at), owner, bucket}
end
if is_far then
  to(db)
  -- A server without room has to take what frees some.
  if redis.call('PTTL', 'looked') < below / 2 then redis.pcall('SET', 'looked', '', 'PX', below) end
end
to(0)
return found
"""
)

# at: a deadline, empty for none, or `r` if only the server knows it, after a command that the server decided. Changes
# of our database are collected, so that each of its keys gets one command for each kind of them.
_FINISH = (
    COMMON
    + b"""
local below, there = tonumber(ARGV[3]), {}
local gone, kept, over = {}, {}, {}
local function list(lists, key)
  local found = lists[key]
  if not found then
    found = {}
    lists[key] = found
  end
  return found
end
local function drop(from, name) table.insert(list(gone, from), name) end
local function put(into, name, value)
  local found = list(kept, into)
  found[#found + 1], found[#found + 2] = name, value
end
local function second_of(at) return #at > 3 and string.sub(at, 1, -4) or at ~= '' and '0' or '' end
local expired, places = {}, {}
for i, name in ipairs(KEYS) do
  if ARGV[4 * i + 3] ~= '' and string.find(ARGV[4 * i + 3], 'd') then
    expired[#expired + 1], places[#places + 1] = name, i
  end
end
if #expired > 0 and are_gone(expired) then
  for _, i in ipairs(places) do
    drop('due:' .. ARGV[4 * i + 2], KEYS[i])
    put('orphans', KEYS[i], ARGV[4 * i] .. ARGV[4 * i + 1])
    there[i] = ''
  end
end
local last, into = '', nil
for i, name in ipairs(KEYS) do if not there[i] then
  local at, owner, old, marks = ARGV[4 * i], ARGV[4 * i + 1], ARGV[4 * i + 2], ARGV[4 * i + 3]
  local key, exists, near, orphan = home(name), false, false, at
  if offset == 0 and marks == '' and string.find(at, '^%d') then  -- nearly always
    exists = redis.call('PEXPIREAT', key, at) == 1
  elseif string.sub(at, 1, 1) == 'r' then
    orphan, at = string.sub(at, 2), ''
    local found = ends(key)
    exists = found ~= -2
    if found >= pin then
      found = found - pin
      set(key, found)
    end
    if found >= 0 then
      at = text(found)
      if at ~= orphan then owner = 'm' end
    end
  elseif at == '' then
    exists = redis.call('PERSIST', key) == 1 or redis.call('EXISTS', key) == 1
  else
    near = string.find(marks, 'k') and tonumber(at) - ms() < below
    exists = set(key, near and tonumber(at) + pin or tonumber(at)) == 1
  end
  if near and exists then
    put('pinned', name, at)
  elseif marks ~= '' and string.find(marks, 'p') then
    drop('pinned', name)
  end
  local second = exists and second_of(at) or ''
  if old ~= '' and old ~= second then drop('due:' .. old, name) end
  if second ~= '' then
    if second ~= last then
      last, into = second, list(kept, 'due:' .. second)
      over[second] = second
    end
    into[#into + 1] = name
    into[#into + 1] = owner
  end
  if not exists and orphan ~= '' then
    put('orphans', name, orphan .. owner)
  elseif marks ~= '' and string.find(marks, 'o') then
    drop('orphans', name)
  end
  there[i] = exists and 'x' .. at or ''
end end
to(db)
for from, names in pairs(gone) do index('HDEL', from, unpack(names)) end
for into, pairs_of in pairs(kept) do index('HSET', into, unpack(pairs_of)) end
for second in pairs(over) do index('ZADD', 'due', second, second) end
to(0)
return there
"""
)

_DROP_ENTRIES = (
    COMMON
    + b"""
local lists, gone = {}, {}
for _, name in ipairs(KEYS) do
  local at = ends(home(name))
  if at == -2 then
    gone[#gone + 1] = name
  elseif at >= 0 then
    local second = math.floor(unpinned(at) / 1000)
    local names = lists[second]
    if names then names[#names + 1] = name else lists[second] = {name} end
  end
end
local function drop(bucket, names)
  for i = 1, #names, 1000 do
    index('HDEL', bucket, unpack(names, i, math.min(i + 999, #names)))
  end
end
to(db)
for second, names in pairs(lists) do drop('due:' .. text(second), names) end
local bound = tonumber(ARGV[3])
if #gone > 0 and bound then
  for _, second in ipairs(seconds('-inf', text(math.floor((ms() + 2 * bound) / 1000)))) do
    drop('due:' .. second, gone)
  end
end
to(0)
return #KEYS
"""
)

# of: the database whose keys to forget, or empty for all.
_FORGET = (
    LUA_HOME
    + b"""
local of = ARGV[2]
to(tonumber(ARGV[1]))
local seconds = redis.call('ZRANGE', 'due', 0, -1)
if of == '' then
  for i = 1, #seconds, 1000 do
    local names = {}
    for j = i, math.min(i + 999, #seconds) do names[#names + 1] = 'due:' .. seconds[j] end
    redis.call('UNLINK', unpack(names))
  end
  redis.call('UNLINK', 'due', 'orphans', 'pinned')
  return #seconds
end
of = tonumber(of)
local function forget(index)
  local gone = {}
  for _, name in ipairs(redis.call('HKEYS', index)) do
    if place(name) == of then gone[#gone + 1] = name end
  end
  for i = 1, #gone, 1000 do redis.call('HDEL', index, unpack(gone, i, math.min(i + 999, #gone))) end
end
for _, second in ipairs(seconds) do forget('due:' .. second) end
forget('orphans')
forget('pinned')
return #seconds
"""
)

# A search may begin where the last one stopped, in the middle of a bucket whose earlier entries are gone. So it need
# not pass over them again, nor over buckets that have only deadlines of other members. Keys of a page are mostly gone
# together: one question for all of them.
_FIND = (
    COMMON
    + b"""
local most, grace, mine = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local from, cursor, none_of_mine = ARGV[6], ARGV[7], tonumber(ARGV[8])
local now = ms()
to(db)
local last = text(math.floor(now / 1000) - 1)
local found, pages = {}, 0
local function look(names, owners, second, is_late)
  local all_gone, stale = are_gone(names), {}
  for i, name in ipairs(names) do
    local key = not all_gone and home(name)
    local there = key and redis.call('EXISTS', key) == 1
    if not there then
      if is_late or owners[i] == mine then found[#found + 1] = {name, owners[i], second} end
    else
      local at = unpinned(ends(key))
      if at < 0 or math.floor(at / 1000) ~= tonumber(second) then stale[#stale + 1] = name end
    end
  end
  if #stale > 0 then
    to(db)
    index('HDEL', 'due:' .. second, unpack(stale))
  end
end
local second_at, cursor_at = '', '0'
for _, second in ipairs(seconds(from == '' and '-inf' or from, last)) do
  local bucket, is_late = 'due:' .. second, now - (tonumber(second) + 1) * 1000 >= grace
  if is_late or tonumber(second) > none_of_mine then
    if second ~= from then cursor = '0' end
    repeat
      to(db)
      local some = index('HSCAN', bucket, cursor, 'COUNT', most)
      cursor, pages = some[1], pages + 1
      local names, owners = {}, {}
      for i = 1, #some[2], 2 do
        names[#names + 1], owners[#owners + 1] = some[2][i], some[2][i + 1]
        if #names == 1000 or i + 1 == #some[2] then
          look(names, owners, second, is_late)
          names, owners = {}, {}
        end
      end
    until cursor == '0' or #found >= most or pages >= 200
    to(db)
    if cursor ~= '0' then
      second_at, cursor_at = second, cursor
      break
    end
    if redis.call('EXISTS', bucket) == 0 then redis.call('ZREM', 'due', second) end
    if #found >= most or pages >= 200 then
      second_at = text(tonumber(second) + 1)
      break
    end
  end
end
to(0)
return {text(now), second_at, cursor_at, found}
"""
)

_ADVANCE = (
    COMMON
    + b"""
local by = tonumber(ARGV[3])
to(db)
for _, second in ipairs(redis.call('ZRANGE', 'due', 0, -1)) do
  to(db)
  for _, name in ipairs(redis.call('HKEYS', 'due:' .. second)) do
    local key = home(name)
    local at = ends(key)
    if at >= 0 and text(math.floor(unpinned(at) / 1000)) == second then set(key, at - by) end
  end
end
to(0)
"""
)

MINE, OTHER = b"m", b"o"


class FoundDeadlines(NamedTuple):
    """What a look found of a key. A missing key with a bucket was dropped by the server.

    kind: its type, as TYPE answers it.
    text: its value, if that may be a number.
    at: its deadline, None without one.
    owner: which member has set it, by the index.
    bucket: where the index has it.
    """

    kind: bytes
    text: bytes
    at: int | None
    owner: bytes
    bucket: bytes


def pinned(at: int, now: int) -> int:
    """A native deadline to set in the middle of a commit: no server drops the key before the commit's end."""
    return at + PIN_MS if at - now < PIN_BELOW_MS else at


def unpinned(at: int) -> int:
    """A native deadline without its postponement, if it has one. One that no gateway has set may be later: it counts as
    the latest.
    """
    if at >= 2 * PIN_MS:
        return LATEST
    return at - PIN_MS if at >= PIN_MS else at


def check_deadline(text: bytes) -> None:
    """Raises ValueError if the text is not a deadline for the index: one that a server accepts."""
    if not 0 <= int(text) < PIN_MS:
        raise ValueError(f"{int(text)} is not a valid deadline")


def commands_until(
    name: bytes, at: int, metadata_db: int, *, is_there: bool
) -> Iterator[Sequence[bytes]]:
    """Commands that give a copied key its deadline, from database 0 and back. is_there: whether the key holds a
    value.
    """
    second = b"%d" % (at // 1000)
    if is_there:
        home = home_of(name)
        if home.db:
            yield select(home.db)
        yield b"PEXPIREAT", home.key, b"%d" % at
    yield select(metadata_db)
    if is_there:
        yield b"HSET", BUCKET_PREFIX + second, name, OTHER
        yield b"ZADD", DUE, second, second
    else:
        yield b"HSET", ORPHANS, name, b"%d%b" % (at, OTHER)
    yield select(0)


def look(keys: Sequence[bytes], metadata_db: int, offset_ms: int) -> tuple[bytes, ...]:
    """The command that looks at keys, and postpones near deadlines."""
    numbers = (metadata_db, offset_ms, LONGEST_NUMBER, BOUND_MS, PIN_BELOW_MS)
    return b"EVAL", _LOOK, b"%d" % len(keys), *keys, *(b"%d" % number for number in numbers)


def looked(reply: Sequence[Any]) -> tuple[int, list[FoundDeadlines]]:
    """The server's TIME in milliseconds, and what a look found of each key."""
    now, *rows = reply
    return int(now), [
        FoundDeadlines(kind, text, int(at) if int(at) >= 0 else None, owner, bucket)
        for kind, text, at, owner, bucket in rows
    ]


class GoneDeadline(Enum):
    """What happens to the deadline of a key that was emptied by a command whose effects only the server knows."""

    ENDS = "all members have lost it"
    STAYS = "kept, without data"


class Move(NamedTuple):
    """The change of a key's deadline at the end of a commit.

    at: None for none.
    bucket: where the index has it.
    is_new: whether it differs from the former one, or was over.
    gone: only the server knows the deadline, and `at` counts if the key is empty now; None: `at` is known.
    was_dropped: the server had dropped the key, and no known write has followed: for many of these the server is asked
        in one go.
    """

    key: bytes
    at: int | None
    owner: bytes
    bucket: bytes
    was_pinned: bool
    was_orphan: bool
    is_new: bool
    gone: GoneDeadline | None = None
    was_dropped: bool = False


_MARKS = {
    flags: b"".join(compress((b"p", b"o", b"k", b"d"), flags))
    for flags in product((False, True), repeat=4)
}
"""Marks: whether a deadline was postponed, was an orphan, is postponed once more, and was dropped."""


def finish(
    moves: Iterable[Move], metadata_db: int, offset_ms: int, *, pins: bool = False
) -> tuple[bytes, ...]:
    """The command that sets these deadlines; if it `pins`, it postpones near ones once more. It answers for each key:
    empty if the key is missing, otherwise x and its deadline, if it has one.
    """
    keys: list[bytes] = []
    words: list[bytes] = []
    for key, at, owner, bucket, was_pinned, was_orphan, _, gone, was_dropped in moves:
        keys.append(key)
        until = b"" if at is None else b"%d" % at
        if gone is not None:
            until = b"r" + until
        words += until, owner, bucket, _MARKS[was_pinned, was_orphan, pins, was_dropped]
    numbers = b"%d" % metadata_db, b"%d" % offset_ms, b"%d" % PIN_BELOW_MS
    return b"EVAL", _FINISH, b"%d" % len(keys), *keys, *numbers, *words


def drop_entries(
    keys: Sequence[bytes], metadata_db: int, offset_ms: int, *, dropped: bool = True
) -> tuple[bytes, ...]:
    """The command that takes keys out of the index. dropped: also those that the server has dropped."""
    numbers = b"%d" % metadata_db, b"%d" % offset_ms, b"%d" % BOUND_MS if dropped else b""
    return b"EVAL", _DROP_ENTRIES, b"%d" % len(keys), *keys, *numbers


class Due(NamedTuple):
    """A key that the server has dropped. second: the bucket of its deadline."""

    key: bytes
    owner: bytes
    second: bytes


class DeadlinePlace(NamedTuple):
    """Where a search for dropped keys continues."""

    second: bytes = b""
    cursor: bytes = b"0"


BEGINNING = DeadlinePlace()


def find_due(
    metadata_db: int,
    offset_ms: int,
    grace_ms: int,
    place: DeadlinePlace = BEGINNING,
    none_of_mine: int = 0,
) -> tuple[bytes, ...]:
    """The command that searches for keys that the server has dropped; keys with other members' deadlines only after the
    grace.

    none_of_mine: buckets up to this second have no deadline that this member has set.
    """
    numbers = (metadata_db, offset_ms, MOST_DUE, grace_ms)
    words = (*(b"%d" % number for number in numbers), MINE, *place, b"%d" % none_of_mine)
    return b"EVAL", _FIND, b"0", *words


def found_due(reply: Sequence[Any]) -> tuple[int, DeadlinePlace, list[Due]]:
    """The server's TIME in milliseconds, where the search stopped (the beginning: it is complete), and what it has
    found.
    """
    now, second, cursor, rows = reply
    return int(now), DeadlinePlace(second, cursor), [Due(*row) for row in rows]


def forget_all(db: int | None, metadata_db: int) -> tuple[bytes, ...]:
    """The command that removes the entries of a database from the index, or all; the reply is a number. It reads each
    entry, unless all are removed.
    """
    return b"EVAL", _FORGET, b"0", b"%d" % metadata_db, b"" if db is None else b"%d" % db


def advance(metadata_db: int, offset_ms: int, by_ms: int) -> tuple[bytes, ...]:
    """The command that moves all deadlines in the server, when the clock moves."""
    return b"EVAL", _ADVANCE, b"0", b"%d" % metadata_db, b"%d" % offset_ms, b"%d" % by_ms


def unpinning(
    pinned: Mapping[bytes, bytes], metadata_db: int, offset_ms: int
) -> list[Sequence[bytes]]:
    """The commands, from database 0 and back, that restore deadlines which were postponed for a commit that did not
    happen.
    """
    again: list[Sequence[bytes]] = []
    for name, at in pinned.items():
        home = home_of(name)
        again += select(home.db), (b"PEXPIREAT", home.key, b"%d" % (int(at) - offset_ms))
    return [*again, select(metadata_db), (b"DEL", PINNED), select(0)]
