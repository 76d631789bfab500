"""Preimages: what own writes remove or overwrite, kept in the metadata database until the writes are stable.

    taken:ORIGIN:COUNTER:PLACE        a key as it was; or slots that existed, as a set, or a hash with their values
    taken:ORIGIN:COUNTER:PLACE:lost   exists if something was removed that could not be kept

Only where members come and go. If a gateway is evicted before that and has to send a write again, it compares the
preimage with what the group has by then (`rebase`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import chain
from typing import TypeGuard

from crdtcast.adapters.redis.commit.plan import SAYS_OK, Expect, Plan
from crdtcast.adapters.redis.store import metadata
from crdtcast.adapters.redis.store.contents import Contents
from crdtcast.adapters.redis.store.databases import Home, home_of
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


def taken_name(dot: Dot, place: int) -> bytes:
    """The key that keeps what the effect at that place of that message removed."""
    return b"%s%s:%d" % (metadata.TAKEN_PREFIX, metadata.store_field(dot), place)


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
