"""Places of values that another type hides (rule H7), and how the next one becomes visible when that type is empty."""

from __future__ import annotations

from collections.abc import Iterable

from crdtcast.adapters.redis.store.databases import LUA_HOME
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.store.slot_value import LONGEST_NUMBER

# MOVE keeps the name. If a client's key has that name, the value is copied instead.
_SETTLE = (
    LUA_HOME
    + b"""
local db, longest = tonumber(ARGV[1]), tonumber(ARGV[2])
local key = home(KEYS[1])
local there = stands
local visible = redis.call('TYPE', key).ok
local hidden = {}
to(db)
local ends = redis.call('HGET', 'ending', KEYS[1])
if ends then redis.call('HDEL', 'ending', KEYS[1]) end
for i = 3, #ARGV, 2 do
  if redis.call('TYPE', ARGV[i + 1]).ok ~= 'none' then
    if visible == 'none' then
      if redis.call('MOVE', ARGV[i + 1], there) == 1 then
        to(there)
        redis.call('RENAME', ARGV[i + 1], key)
        to(db)
      else
        redis.call('COPY', ARGV[i + 1], key, 'DB', there)
        redis.call('UNLINK', ARGV[i + 1])
      end
      if ends then
        to(there)
        redis.call('PEXPIREAT', key, ends)
        to(db)
      end
      visible = ''
    else
      hidden[#hidden + 1] = tonumber(ARGV[i])
    end
  end
end
to(there)
visible = redis.call('TYPE', key).ok
local text = ''
if visible == 'string' and redis.call('STRLEN', key) <= longest then text = redis.call('GET', key) end
return {visible, text, hidden}
"""
)


# The server drops the deadline with the last slot of the visible type.
_KEEP_DEADLINE = (
    LUA_HOME
    + b"""
local ends = redis.call('PEXPIRETIME', home(KEYS[1]))
to(tonumber(ARGV[1]))
if ends >= 0 then redis.call('HSET', 'ending', KEYS[1], string.format('%.0f', ends)) end
to(0)
"""
)


def hidden_key(type_: RedisType, key: bytes) -> bytes:
    """Where the metadata database keeps a value that another type hides."""
    return b"hidden:%s:%s" % (type_.name.lower().encode(), key)


def settling(key: bytes, metadata_db: int) -> tuple[bytes, ...]:
    """The command that makes the first hidden type visible if nothing is. It answers the type that is visible then, its
    text if it may be a number, and the types that stay hidden.
    """
    names = (word for each in RedisType for word in (b"%d" % each, hidden_key(each, key)))
    return b"EVAL", _SETTLE, b"1", key, b"%d" % metadata_db, b"%d" % LONGEST_NUMBER, *names


def keeping_deadline(key: bytes, metadata_db: int) -> tuple[bytes, ...]:
    """The command that keeps the deadline of a key for the value that `settling` brings out, which must follow in the
    same transaction. To be sent before a command that may empty the key, if only the server knows its deadline then.
    """
    return b"EVAL", _KEEP_DEADLINE, b"1", key, b"%d" % metadata_db


def hidden_of(names: Iterable[bytes]) -> dict[bytes, set[RedisType]]:
    """Which types are hidden under which keys, from names of the metadata database."""
    hidden: dict[bytes, set[RedisType]] = {}
    for name in names:
        _, word, key = name.split(b":", 2)
        hidden.setdefault(key, set()).add(RedisType[word.decode().upper()])
    return hidden
