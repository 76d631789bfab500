"""Preimages: what own writes remove or overwrite, kept in the metadata database until the writes are stable.

    taken:ORIGIN:COUNTER:PLACE        a key as it was; or slots that existed, as a set, or a hash with their values
    taken:ORIGIN:COUNTER:PLACE:lost   exists if something was removed that could not be kept

Only where members come and go. If a gateway is evicted before that and has to send a write again, it compares the
preimage with what the group has by then (`rebase`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain
from typing import NamedTuple, TypeGuard

from crdtcast.adapters.redis.commit.plan import SAYS_OK, Expect, Plan
from crdtcast.adapters.redis.store import metadata
from crdtcast.adapters.redis.store.contents import Contents
from crdtcast.adapters.redis.store.databases import LUA_HOME, Home, home_of
from crdtcast.adapters.redis.store.effects import (
    WHOLE,
    Effect,
    EndsData,
    KillSlots,
    RedisType,
    Reg,
)
from crdtcast.adapters.redis.store.many_slots import command_of
from crdtcast.adapters.redis.types.native import NativeType
from crdtcast.causality.tags import Dot

MOST_SLOTS = 4096
"""Slots of one write that are kept: each costs a look."""

# A key whose type was changed directly in the server is not kept: the write after this finds that
# out. What cannot be kept because the server is full counts as nothing: a removal of it does
# nothing, and a value yields to it.
_TAKE = b"""
local key, into, from, to, get, valued = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
redis.call('SELECT', from)
local found = {}
for i = 6, #ARGV do
  local value = redis.pcall(get, key, ARGV[i])
  if valued == '0' then value = value == 1 and '' end
  if type(value) == 'string' then
    found[#found + 1] = ARGV[i]
    found[#found + 1] = value
  end
end
redis.call('SELECT', to)
for i = 1, #found, 1000 do
  redis.pcall('HSET', into, unpack(found, i, math.min(i + 999, #found)))
end
redis.call('SELECT', 0)
return #found / 2
"""

# The same for slots of several values, each with a variadic command and the place of its effect. They are read before
# any is written, so that the database is selected twice only.
_TAKE_TOGETHER = (
    LUA_HOME
    + b"""
local prefix, ours, found, i = ARGV[1], tonumber(ARGV[2]), {}, 3
while i < #ARGV do
  local place, db, key, get, is_valued = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3], ARGV[i + 4] == '1'
  local first, count = i + 6, tonumber(ARGV[i + 5])
  i = first + count
  to(db)
  local values = redis.pcall(get, key, unpack(ARGV, first, i - 1))
  local kept = {}
  for j = 1, count do
    local value = values[j]
    if not is_valued then value = value == 1 and '' end
    if value then
      kept[#kept + 1] = ARGV[first + j - 1]
      kept[#kept + 1] = value
    end
  end
  if #kept > 0 then
    found[#found + 1] = prefix .. place
    found[#found + 1] = kept
  end
end
to(ours)
for j = 1, #found, 2 do
  local kept = found[j + 1]
  for k = 1, #kept, 1000 do
    redis.pcall('HSET', found[j], unpack(kept, k, math.min(k + 999, #kept)))
  end
end
to(0)
return #found / 2
"""
)


class Taking(NamedTuple):
    """Slots of a value to keep. place: of the effect that overwrites them in its message."""

    place: int
    native: type[NativeType]
    home: Home
    slots: Collection[bytes]


def taken_prefix(dot: Dot) -> bytes:
    """The names of all keys that keep what that message removed begin like this."""
    return b"%s%s:" % (metadata.TAKEN_PREFIX, metadata.store_field(dot))


def taken_name(dot: Dot, place: int) -> bytes:
    """The key that keeps what the effect at that place of that message removed."""
    return b"%s%d" % (taken_prefix(dot), place)


def lost_name(name: bytes) -> bytes:
    """The key that exists if something was removed that is not kept under the name."""
    return name + b":lost"


def takes_away(effect: Effect) -> TypeGuard[EndsData | KillSlots | Reg]:
    """Whether an effect may remove something of a key, or overwrite something."""
    return isinstance(effect, EndsData | KillSlots | Reg)


def is_whole(effect: Effect) -> bool:
    """Whether a copy of the whole key is kept, instead of slots."""
    if isinstance(effect, KillSlots | Reg):
        return effect.type is RedisType.STRING
    return isinstance(effect, EndsData)


class Aside:
    """The preimages of one member. It appends the commands that write and remove them to plans."""

    def __init__(self, metadata_db: int) -> None:
        self._db = b"%d" % metadata_db
        self._names: dict[Dot, list[bytes]] = {}
        self.has_room: bool = True
        """False: only the fact that something was removed is noted."""

    def found(self, dot: Dot, effects: Iterable[Effect]) -> None:
        """Note the preimages of an own unstable message that was read from the server."""
        for place, effect in enumerate(effects):
            if takes_away(effect):
                name = self._name(dot, place)
                self._names[dot].append(lost_name(name))

    def key(self, key: bytes, dot: Dot, place: int, plan: Plan, *, hides: bool) -> None:
        """Keep a key before the effect at that place of an own message removes it. hides: whether it hides values."""
        name = self._name(dot, place)
        if self.has_room and not hides:
            home = home_of(key)
            plan.look(home, command_of(b"COPY", home.key, (name, b"DB", self._db, b"REPLACE")))
        else:
            self._note_lost(dot, name, plan)

    def slots(
        self,
        native: type[NativeType],
        home: Home,
        slots: Collection[bytes],
        dot: Dot,
        place: int,
        plan: Plan,
    ) -> None:
        """Keep slots of a value before they are removed or overwritten."""
        name = self._name(dot, place)
        if not self.has_room or len(slots) > MOST_SLOTS or native.get is None:
            self._note_lost(dot, name, plan)
            return
        where = b"%d" % home.db, self._db, native.get, b"%d" % native.valued
        words = _TAKE, b"1", home.key, name, *where, *slots
        plan.look(home_of(home.owner), command_of(b"EVAL", words[0], words[1:]))

    def together(self, taken: Iterable[Taking], dot: Dot, plan: Plan, at: int) -> None:
        """Keep slots of several values, each of which has a command that reads several, before one message overwrites
        them.

        at: the position that the plan holds for it, before the message's first change of any of the values.
        """
        words: list[bytes] = []
        for place, native, home, slots in taken:
            name = self._name(dot, place)
            if not self.has_room or len(slots) > MOST_SLOTS or native.get_several is None:
                self._note_lost(dot, name, plan)
                continue
            counts = b"%d" % native.valued, b"%d" % len(slots)
            words += b"%d" % place, b"%d" % home.db, home.key, native.get_several, *counts, *slots
        plan.fill(at, (b"EVAL", _TAKE_TOGETHER, b"0", taken_prefix(dot), self._db, *words))

    def removing(
        self,
        native: type[NativeType],
        home: Home,
        slots: Collection[bytes],
        dot: Dot,
        place: int,
        plan: Plan,
    ) -> tuple[int, ...]:
        """Remove slots and keep their values. Returns the positions of the commands whose replies count them."""
        if native.move is None or not self.has_room or len(slots) > MOST_SLOTS:
            self.slots(native, home, slots, dot, place, plan)
            return (plan.at(home, command_of(native.remove, home.key, slots)),)
        # This costs the server a quarter of the script.
        name = self._name(dot, place)
        places = [plan.at(home, command_of(native.move, home.key, (name, slot))) for slot in slots]
        if home == home_of(home.owner):
            plan.look(home, command_of(b"MOVE", name, (self._db,)))
        return tuple(places)

    def executed(self, dot: Dot, place: int, contents: Contents | None, plan: Plan) -> None:
        """Keep the preimage of a write that the server has executed by itself.

        contents: slots that it removed or overwrote; None if that is not known.
        """
        if contents == {}:
            return
        name = self._name(dot, place)
        slots = [slot for content in (contents or {}).values() for slot in content.items()]
        if contents is None or not self.has_room or len(slots) > MOST_SLOTS:
            self._note_lost(dot, name, plan)
        elif RedisType.STRING in contents:
            plan.metadata(SAYS_OK, b"SET", name, contents[RedisType.STRING][WHOLE])
        else:
            plan.metadata(Expect.INTEGER, b"HSET", name, *chain.from_iterable(slots))

    def stable(self, dots: Iterable[Dot], plan: Plan) -> None:
        """Forget the preimages of stable messages: these are never sent again."""
        if not self._names:
            return
        names = [name for dot in dots for name in self._names.pop(dot, ())]
        if names:
            plan.metadata(Expect.INTEGER, b"UNLINK", *names)

    def make_room(self, plan: Plan) -> None:
        """Drop all kept values, and keep no new ones until `has_room` is set again."""
        self.has_room = False
        for dot, names in self._names.items():
            kept = [name for name in names if not name.endswith(lost_name(b""))]
            if kept:
                plan.metadata(Expect.INTEGER, b"UNLINK", *kept)
            self._names[dot] = []
            for name in kept:
                self._note_lost(dot, name, plan)

    def _note_lost(self, dot: Dot, name: bytes, plan: Plan) -> None:
        lost = lost_name(name)
        self._names.setdefault(dot, []).append(lost)
        plan.metadata(SAYS_OK, b"SET", lost, b"")

    def _name(self, dot: Dot, place: int) -> bytes:
        name = taken_name(dot, place)
        self._names.setdefault(dot, []).append(name)
        return name
