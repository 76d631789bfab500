"""Exact scores in the server's scripts: commands that set, add to, or move scores, where the server decides.

A double alone would lose digits: `exact:zset:KEY` has them, and a later command of the same commit needs them
(`types/exact_values.py`). `types/sorted_sets.py` defines which decimal a double stands for; a test compares the two.
"""

import re

from crdtcast.adapters.redis.store.effects import LEVELS, Opcode
from crdtcast.adapters.redis.types.exact_values import exact_key
from crdtcast.adapters.redis.types.sorted_sets import SortedSet

LUA = b"""
local function number(text)
  local x = tonumber(text)
  if x then return x end
  local sign = string.match(string.lower(text), '^([+-]?)inf')
  if sign then return sign == '-' and -math.huge or math.huge end
end
local function is_finite(x) return x == x and x ~= math.huge and x ~= -math.huge end
local function is_small(x) return x == math.floor(x) and x < 2 ^ 51 and x > -2 ^ 51 end
local function shortest(x)
  for digits = 15, 17 do
    local text = string.format('%.' .. digits .. 'g', x)
    if tonumber(text) == x then return text end
  end
end
local function printed(x)
  if is_finite(x) then return string.format('%.17g', x) end
  return x > 0 and 'inf' or '-inf'
end
local function name_at(asked, place)
  local names, key, db = asked[10] or {}, asked[2][place], asked[8] or 0
  for j = 1, #names do
    if names[j][1] == place - 1 then return names[j][2] end
  end
  if db == 0 and string.byte(key) ~= 255 then return key end
  return string.char(255, db) .. key
end
local function of_exact(...)
  local db = stands
  to(ours)
  local reply = redis.call(...)
  to(db)
  return reply
end
local function failed(reply) return type(reply) == 'table' and reply.err end
local function no_negative_zero(words, at)  -- see `decimal_of`
  if string.byte(words[at]) == 45 and number(words[at]) == 0 then words[at] = '0' end
end
local function summed(asked, at)
  local words, name = asked[2], EXACT .. name_at(asked, 2)
  if #words ~= at + 1 then return redis.pcall(unpack(words)) end
  no_negative_zero(words, at)
  local raw, member = words[at], words[at + 1]
  local old = redis.pcall('ZSCORE', words[2], member)
  local reply = redis.pcall(unpack(words))
  if type(reply) ~= 'string' then return reply end
  local kept, was, delta = of_exact('HGET', name, member), old and number(old) or 0, number(raw)
  if not kept and is_small(was) and is_small(delta) and is_small(number(reply)) then return reply, reply end
  local base = is_finite(was) and shortest(was) or nil
  if old and kept and number(kept) == was then base = kept end
  local a, b = base and decimal(base), is_finite(delta) and decimal(shortest(delta))
  if not a or not b then
    if kept then of_exact('HDEL', name, member) end
    return reply
  end
  local sum = added(a, b)
  local near = number(sum)
  if near ~= number(reply) then
    redis.pcall('ZADD', words[2], printed(near), member)
    reply = redis.pcall('ZSCORE', words[2], member)
  end
  if not is_finite(near) or added(decimal(shortest(near)), decimal('0')) ~= sum then
    of_exact('HSET', name, member, sum)
  elseif kept then
    of_exact('HDEL', name, member)
  end
  return reply, sum
end
local options = {NX = 1, XX = 1, GT = 1, LT = 1, CH = 1, INCR = 1}
local function holds(flags, old, score)
  if not old then return not flags.XX end
  if flags.NX then return false end
  if flags.GT then return number(score) > number(old) end
  if flags.LT then return number(score) < number(old) end
  return true
end
local function set_scores(asked, found)
  local words, at, flags = asked[2], 3, {}
  while words[at] and options[string.upper(words[at])] do
    flags[string.upper(words[at])] = true
    at = at + 1
  end
  if flags.INCR then return summed(asked, at) end
  for j = at, #words, 2 do no_negative_zero(words, j) end
  local reply = redis.pcall(unpack(words))
  if failed(reply) then return reply end
  local name, now, is_idle = EXACT .. name_at(asked, 2), {}, true
  local is_kept = of_exact('EXISTS', name) == 1
  for j = at, #words, 2 do
    local member = words[j + 1]
    local old = now[member]
    if old == nil then old = found and found[(j - at) / 2 + 1] end
    if holds(flags, old, words[j]) then
      now[member], is_idle = words[j], false
      if is_kept then of_exact('HDEL', name, member) end
    end
  end
  return reply, nil, is_idle
end
local function store_scores(asked)
  local reply = redis.pcall(unpack(asked[2]))
  if not failed(reply) then of_exact('DEL', EXACT .. name_at(asked, 2)) end
  return reply
end
local function pass_scores(asked)
  local words = asked[2]
  local source = EXACT .. name_at(asked, 2)
  local target = EXACT .. name_at(asked, 3)
  local reply = redis.pcall(unpack(words))
  if failed(reply) or reply == 0 or source == target then return reply end
  of_exact('DEL', target)
  if of_exact('EXISTS', source) == 1 then
    of_exact(string.upper(words[1]) == 'COPY' and 'COPY' or 'RENAME', source, target)
  end
  return reply
end
local scored = {
  ZADD = set_scores,
  ZINCRBY = function(asked) return summed(asked, 3) end,
  ZUNIONSTORE = store_scores, ZINTERSTORE = store_scores, ZDIFFSTORE = store_scores,
  ZRANGESTORE = store_scores, GEOSEARCHSTORE = store_scores,
  RENAME = pass_scores, RENAMENX = pass_scores, COPY = pass_scores, MOVE = pass_scores,
}
""".replace(b"EXACT", b"'%b'" % exact_key(SortedSet.type, b""))
COMMANDS = frozenset(
    name.decode() for name in re.findall(rb"\b([A-Z]+) = ", LUA.partition(b"local scored")[2])
)
"""Commands that need this part of the script; the server would have to read it with every other one."""
LEVEL = LEVELS[Opcode.REG, SortedSet.type]
"""The format level before which no score may be copied: other members could not read it."""
NOT_NEEDED = b"local scored = {}\n"
"""What takes its place."""
