"""What own removals take away, kept in the metadata database until they are stable: `taken:ORIGIN:COUNTER:PLACE`.

Only where members come and go. A gateway that is evicted meanwhile, and has to send a removal again, compares this with
what the group has by then (`rebasing`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from crdtcast.adapters.redis import metadata
from crdtcast.adapters.redis.effects import Effect, KillKey, KillSlots
from crdtcast.adapters.redis.many_slots import command_of
from crdtcast.adapters.redis.plan import SAYS_OK, Expect, Plan
from crdtcast.adapters.redis.types.native import Home, NativeType
from crdtcast.tags import Dot

NOT_KEPT = b"?"
"""In the place of a value for which there was no room."""
MOST_MEMBERS = 4096
"""Of one removal that are taken aside: each is moved by a command of its own."""


def taken_name(dot: Dot, place: int) -> bytes:
    """Where it is kept what the effect at that place of that message took away."""
    return b"%s%s:%d" % (metadata.TAKEN_PREFIX, metadata.store_field(dot), place)


class Aside:
    """Which of them there are. It appends commands to plans that put them there, and away."""

    def __init__(self, metadata_db: int) -> None:
        self._db = b"%d" % metadata_db
        self._names: dict[Dot, list[bytes]] = {}
        self.has_room = True
        """Otherwise it is only noted that something was taken away."""

    def found(self, dot: Dot, effects: Iterable[Effect]) -> None:
        """An own message that is not stable was read from the server."""
        for place, effect in enumerate(effects):
            if isinstance(effect, KillKey | KillSlots):
                self._name(dot, place)

    def key(self, key: bytes, dot: Dot, place: int, plan: Plan, *, hides: bool) -> None:
        """A key is about to be deleted by the effect at that place of that own message. hides: another value, a set."""
        name = self._name(dot, place)
        if self.has_room and not hides:
            command = b"COPY", key, name, b"DB", self._db, b"REPLACE"
            plan.native(key, Expect.INTEGER, *command)
        else:
            plan.metadata(SAYS_OK, b"SET", name, NOT_KEPT)

    def slots(
        self,
        native: type[NativeType],
        home: Home,
        slots: Collection[bytes],
        dot: Dot,
        place: int,
        plan: Plan,
    ) -> tuple[int, ...]:
        """Take slots out of a value. Positions of the commands whose replies count them."""
        name = self._name(dot, place)
        if not self.has_room or len(slots) > MOST_MEMBERS or native.move is None:
            plan.metadata(SAYS_OK, b"SET", name, NOT_KEPT)
            return (plan.at(home, command_of(native.remove, home.key, slots)),)
        places = [plan.at(home, command_of(native.move, home.key, (name, slot))) for slot in slots]
        if not home.db:
            plan.native(home.owner, Expect.INTEGER, b"MOVE", name, self._db)
        return tuple(places)

    def stable(self, dots: Iterable[Dot], plan: Plan) -> None:
        """These messages will never be sent again."""
        names = [name for dot in dots for name in self._names.pop(dot, ())]
        if names:
            plan.metadata(Expect.INTEGER, b"UNLINK", *names)

    def make_room(self, plan: Plan) -> None:
        """Keep no values, neither old nor new ones, until `has_room` is set again."""
        self.has_room = False
        for names in self._names.values():
            for name in names:
                plan.metadata(SAYS_OK, b"SET", name, NOT_KEPT)

    def _name(self, dot: Dot, place: int) -> bytes:
        name = taken_name(dot, place)
        self._names.setdefault(dot, []).append(name)
        return name
