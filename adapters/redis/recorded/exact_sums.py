"""Exact decimal sums in the server's scripts: `INCRBYFLOAT` and `HINCRBYFLOAT` where the server decides.

The server itself adds with binary fractions of 64 bits, so a sum depends on the order of its parts.
`store/slot_value.py` defines what a number is; a test compares the two.
"""

from crdtcast.adapters.redis.store.slot_value import (
    LONGEST_INTEGER,
    MOST_DIGITS,
    MOST_EXPONENT,
    MOST_PLACES,
)

LUA = b"""
local function decimal(text, is_delta)
  local sign, whole, point, part = string.match(text, '^([+-]?)([0-9]*)(%.?)([0-9]*)$')
  local shift = 0
  if not sign then
    local side, e
    sign, whole, point, part, side, e = string.match(text, '^([+-]?)([0-9]*)(%.?)([0-9]*)[eE]([+-]?)([0-9]+)$')
    if not sign or #e > 9 or tonumber(e) > MOST_EXPONENT or #whole + #part > MOST_DIGITS then return nil end
    shift = tonumber(side .. e)
  elseif #whole + #part > MOST_DIGITS then
    if is_delta then return nil end
    local is_canonical = sign ~= '+' and (whole == '0' or string.find(whole, '^[1-9]'))
      and (point == '' or string.find(part, '[1-9]$'))
    if not is_canonical or #sign + #whole > LONGEST_INTEGER or #part > MOST_PLACES then return nil end
  end
  if #whole + #part == 0 then return nil end
  local digits, places = whole .. part, #part - shift
  if places < 0 then digits, places = digits .. string.rep('0', -places), 0 end
  return {sign == '-', digits, places}
end
local function less(a, b)
  for i = 1, #a do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return false
end
local function combined(a, b, factor)
  local digits, carry = {}, 0
  for i = #a, 1, -1 do
    local sum = string.byte(a, i) - 48 + factor * (string.byte(b, i) - 48) + carry
    carry = math.floor(sum / 10)
    digits[i] = sum - carry * 10
  end
  return (carry > 0 and carry or '') .. table.concat(digits)
end
local function added(base, delta)
  local places = math.max(base[3], delta[3])
  local a = base[2] .. string.rep('0', places - base[3])
  local b = delta[2] .. string.rep('0', places - delta[3])
  a = string.rep('0', #b - #a) .. a
  b = string.rep('0', #a - #b) .. b
  local negative, digits = base[1], nil
  if base[1] == delta[1] then digits = combined(a, b, 1)
  elseif less(a, b) then digits, negative = combined(b, a, -1), delta[1]
  else digits = combined(a, b, -1) end
  digits = string.rep('0', places + 1 - #digits) .. digits
  local whole = string.gsub(string.sub(digits, 1, #digits - places), '^0+', '')
  local part = string.gsub(string.sub(digits, #digits - places + 1), '0+$', '')
  if whole == '' then whole = '0' end
  if part ~= '' then whole = whole .. '.' .. part end
  return (negative and whole ~= '0') and '-' .. whole or whole
end
local function counted(words)
  local name, base = string.upper(words[1]), nil
  local in_field = name == 'HINCRBYFLOAT'
  if in_field and #words == 4 then base = redis.pcall('HGET', words[2], words[3])
  elseif name == 'INCRBYFLOAT' and #words == 3 then base = redis.pcall('GET', words[2])
  else return redis.pcall(unpack(words)) end
  if type(base) == 'table' then return base end
  local number, delta = decimal(base or '0'), decimal(words[#words], true)
  if not number then return {err = in_field and 'ERR hash value is not a float' or 'ERR value is not a valid float'} end
  if not delta then
    local text = string.gsub(string.lower(words[#words]), '^[+-]', '')
    local infinite = text == 'inf' or text == 'infinity'
    return {err = infinite and 'ERR increment would produce NaN or Infinity' or 'ERR value is not a valid float'}
  end
  local sum = added(number, delta)
  local reply
  if in_field then reply = redis.pcall('HSET', words[2], words[3], sum)
  else reply = redis.pcall('SET', words[2], sum, 'KEEPTTL') end
  return (type(reply) == 'table' and reply.err) and reply or sum
end
"""
for _name, _value in (
    (b"MOST_EXPONENT", MOST_EXPONENT),
    (b"MOST_DIGITS", MOST_DIGITS),
    (b"LONGEST_INTEGER", LONGEST_INTEGER),
    (b"MOST_PLACES", MOST_PLACES),
):
    LUA = LUA.replace(_name, b"%d" % _value)
