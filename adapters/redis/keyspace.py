"""Turns effects into native commands: the one place that knows what the server holds and what it should hold.

It keeps the unstable log, remembers the type (and the number) of keys in use, and keeps a value whose type is hidden
by another (rule H7) in the metadata database. It does no I/O: it appends commands to a `Plan`.
"""

import re
from collections.abc import Collection, Iterable
from enum import Enum

from crdtcast.adapters.redis import metadata
from crdtcast.adapters.redis.aside import Aside
from crdtcast.adapters.redis.effects import Effect, Inc, KillKey, KillSlots, One, RedisType
from crdtcast.adapters.redis.many_slots import command_of
from crdtcast.adapters.redis.plan import SAYS_OK, Expect, Plan
from crdtcast.adapters.redis.unstable import UnstableLog
from crdtcast.tags import Tag

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_CANONICAL_INTEGER = re.compile(rb"0|-?[1-9][0-9]*\Z")
_LONGEST_NUMBER = 1000
"""Digits; no sum of increments comes near it, and Python refuses to read a number of more than 4300."""
_REMEMBERED_KEYS = 200_000
_KEEP_FOREIGN_SECONDS = 7 * 86_400
_SLOTS_AT_ONCE = 5_000


class Holds(Enum):
    """What a key is known to hold natively, when it is not an integer (then the integer itself is remembered)."""

    NOTHING = "none"
    SET = "set"
    PERHAPS_SET = "set or none"
    """After a removal: nobody has looked whether a member is left."""
    TEXT = "string that is no integer"
    OTHER = "another type"


Known = int | Holds
_SET, _INTEGER = Holds.SET, Expect.INTEGER


def integer_of(text: object) -> int | None:
    """The number that a string of the server stands for, if a gateway may have written it."""
    if not isinstance(text, bytes) or len(text) > _LONGEST_NUMBER:
        return None
    return int(text) if _CANONICAL_INTEGER.fullmatch(text) else None


def hidden_key(type_: RedisType, key: bytes) -> bytes:
    """Where the metadata database keeps a value that another type hides."""
    return b"hidden:%s:%s" % (type_.name.lower().encode(), key)


class Keyspace:
    """Native state of database 0, as far as it matters, and the log over it."""

    def __init__(self, metadata_db: int) -> None:
        self.log = UnstableLog()
        self.metadata_db = metadata_db
        self.hidden: set[bytes] = set()
        """Keys whose set is hidden behind a string."""
        self.damaged: set[bytes] = set()
        """Sets that were overwritten past the gateway and wait for another region's copy."""
        self.disputed: set[bytes] = set()
        """Keys that differ between members, of which nothing tells who is right."""
        self.refused: set[bytes] = set()
        """Both: commands on them are answered with an error."""
        self.rewritten: set[bytes] = set()
        """Keys that were put right since the committer has looked."""
        self.conflicts = 0
        """How often two types met under one key, since start."""
        self.aside: Aside | None = None
        """Where members come and go: what own removals take away is kept."""
        self.types: dict[bytes, Known] = {}
        """What keys are known to hold. To be read only."""

    # What the server holds

    def known(self, key: bytes) -> Known | None:
        """What the key holds, or None when the server must be asked."""
        return self.types.get(key)

    def learn(self, key: bytes, type_name: bytes, text: object) -> None:
        """Take in the server's answers to TYPE and GET."""
        if type_name == b"none":
            self.types[key] = Holds.NOTHING
        elif type_name == b"set":
            self.types[key] = Holds.SET
        elif type_name == b"string" and isinstance(text, bytes):
            number = integer_of(text)
            self.types[key] = Holds.TEXT if number is None else number
        else:
            self.types[key] = Holds.OTHER

    def looked_at_set(self, key: bytes, *, is_empty: bool) -> None:
        """A set, or nothing, is there: it has become known which of them."""
        self.types[key] = Holds.NOTHING if is_empty else Holds.SET

    def forget(self, key: bytes) -> None:
        """Ask the server again before the key is used."""
        self.types.pop(key, None)

    def trim(self) -> None:
        """Bound the memory of types; only between batches, since a batch relies on it."""
        surplus = len(self.types) - _REMEMBERED_KEYS
        if surplus > _REMEMBERED_KEYS // 4:  # this looks at all of them: not at every commit
            for key in list(self.types)[:surplus]:
                del self.types[key]

    # Effects

    def apply(self, effect: Effect, tag: Tag, index: int, plan: Plan) -> None:
        """Apply a remote effect: log and native commands."""
        match effect:
            case One(key, _, members):
                self.add_members(key, members, tag, index, plan)
            case Inc(key, _, delta):
                self.increment(key, delta, tag, index, plan)
            case KillKey(key):
                self.kill_key(key, tag, plan)
            case KillSlots(key, _, members):
                self.kill_members(key, members, tag, plan)

    def add_members(
        self, key: bytes, members: Collection[bytes], tag: Tag, index: int, plan: Plan
    ) -> int:
        """Set members become present, in the log and for the server. Returns the position of the command."""
        self.log.one(key, members, tag, index)
        return self.show_members(key, members, plan)

    def show_members(self, key: bytes, members: Collection[bytes], plan: Plan) -> int:
        """Have the server add members: natively or, under a string, to the hidden set.

        Returns the position in the plan of the command that does it.
        """
        known = self.types[key]
        if known is not _SET:
            if known is not Holds.NOTHING and known is not Holds.PERHAPS_SET:
                self._note_conflict(key)
                hidden = hidden_key(RedisType.SET, key)
                return plan.metadata_packed(command_of(b"SADD", hidden, members))
            self.types[key] = Holds.SET
        return plan.native_packed(key, _INTEGER, command_of(b"SADD", key, members))

    def increment(self, key: bytes, delta: int, tag: Tag, index: int, plan: Plan) -> None:
        """A number grows: in the log, and for the server."""
        self.log.increment(key, delta, tag, index)
        base = self.count(key, delta, plan)
        if base is not None:
            self.show_number(key, base, plan)

    def count(self, key: bytes, delta: int, plan: Plan) -> int | None:
        """A number is known to grow; the server has to be sent what it grows by. A set that stands there is hidden.

        Returns the number before; None where a text base hides the deltas beside it.
        """
        known = self.types[key]
        if isinstance(known, int):
            self.types[key] = known + delta
            return known
        if known is Holds.TEXT or known is Holds.OTHER:
            return None
        if known is Holds.SET or known is Holds.PERHAPS_SET:
            self._note_conflict(key)
            self._hide_set(key, plan)
        self.types[key] = delta
        return 0

    def show_number(self, key: bytes, base: int, plan: Plan) -> None:
        """Bring the native number from `base` to what it is known to be."""
        known = self.types[key]
        assert isinstance(known, int)
        self.set_number(key, base, known, plan)

    def set_number(self, key: bytes, base: int, value: int, plan: Plan) -> None:
        """Bring the native number from `base` to `value`; beyond 64 bits the server keeps it as text."""
        delta = value - base
        if min(base, value, delta) >= INT64_MIN and max(base, value, delta) <= INT64_MAX:
            plan.native(key, value, b"INCRBY", key, b"%d" % delta)
        else:
            plan.native(key, SAYS_OK, b"SET", key, b"%d" % value)
        self.types[key] = value

    def kill_key(self, key: bytes, tag: Tag, plan: Plan, own: int | None = None) -> int:
        """The key is worth what of the log survives: nothing, for a local DEL; `own` is its place in its message.

        Returns the position in the plan of the DEL.
        """
        left = self.log.kill_key(key, tag)
        if self.aside is not None and own is not None:
            self.aside.key(key, tag.dot, own, plan, hides=key in self.hidden)
        position = plan.native(key, Expect.INTEGER, b"DEL", key)
        if key in self.hidden:
            plan.metadata(Expect.INTEGER, b"DEL", hidden_key(RedisType.SET, key))
            self.hidden.discard(key)
        self.types[key] = Holds.NOTHING
        if left.increments:
            self.set_number(key, 0, sum(left.increments.values()), plan)
        if left.members:
            if left.increments:
                self._note_conflict(key)
                plan.metadata(
                    Expect.INTEGER, b"SADD", hidden_key(RedisType.SET, key), *left.members
                )
            else:
                plan.native(key, Expect.INTEGER, b"SADD", key, *left.members)
                self.types[key] = Holds.SET
        return position

    def kill_members(
        self,
        key: bytes,
        members: Collection[bytes],
        tag: Tag,
        plan: Plan,
        own: int | None = None,
    ) -> tuple[int, ...]:
        """Members of which no unseen add is left go; `own` is the place of a local SREM in its message.

        Returns the positions in the plan of the native commands that do it and count them.
        """
        gone = self.log.kill_members(key, members, tag)
        if not gone:
            return ()
        known = self.types[key]
        aside = None if own is None else self.aside
        if key in self.hidden:
            hidden = hidden_key(RedisType.SET, key)
            if aside is not None and own is not None:
                return aside.hidden_members(hidden, gone, tag.dot, own, plan)
            return (plan.metadata_packed(command_of(b"SREM", hidden, gone)),)
        if known is Holds.SET or known is Holds.PERHAPS_SET:
            self.types[key] = Holds.PERHAPS_SET
            if aside is not None and own is not None:
                return aside.members(key, gone, tag.dot, own, plan)
            return (plan.native_packed(key, Expect.INTEGER, command_of(b"SREM", key, gone)),)
        return ()

    def restore(self, key: bytes, plan: Plan) -> None:
        """Put back what a key is worth after somebody changed it past the gateway.

        A number is known exactly. Of a set only the unstable members are known here: what stood in its place is kept
        aside, and the key counts as `damaged` until another region has told its members.
        """
        known = self.types.get(key)
        if isinstance(known, int):
            plan.native(key, SAYS_OK, b"SET", key, b"%d" % known)
            return
        self.damaged.add(key)
        self.refused.add(key)
        plan.metadata(Expect.INTEGER, b"SADD", metadata.DAMAGED, key)
        self._keep_foreign(key, plan)
        plan.native(key, Expect.INTEGER, b"DEL", key)
        members = self.log.members(key)
        if members:
            plan.native(key, Expect.INTEGER, b"SADD", key, *members)
        self.types[key] = Holds.SET if members else Holds.NOTHING

    def put(self, key: bytes, number: int | None, members: Iterable[bytes], plan: Plan) -> None:
        """The key becomes worth this, whatever its server holds, which is kept aside. It is in order from here on.

        The log stays: it never was wrong.
        """
        if key not in self.damaged:  # then it is aside already
            self._keep_foreign(key, plan)
        plan.native(key, Expect.INTEGER, b"DEL", key)
        hidden = hidden_key(RedisType.SET, key)
        if key in self.hidden:
            plan.metadata(Expect.INTEGER, b"DEL", hidden)
            self.hidden.discard(key)
        if number is not None:
            plan.native(key, SAYS_OK, b"SET", key, b"%d" % number)
        slots = list(members)
        for start in range(0, len(slots), _SLOTS_AT_ONCE):
            some = slots[start : start + _SLOTS_AT_ONCE]
            if number is None:
                plan.native(key, Expect.INTEGER, b"SADD", key, *some)
            else:
                plan.metadata(Expect.INTEGER, b"SADD", hidden, *some)
        if number is not None and slots:
            self._note_conflict(key)
        self.types[key] = number if number is not None else Holds.SET if slots else Holds.NOTHING
        self.rewritten.add(key)
        self.in_order(key, plan)

    def in_order(self, key: bytes, plan: Plan) -> None:
        """Commands on the key are carried out again, if they were refused."""
        for refused, name in (
            (self.damaged, metadata.DAMAGED),
            (self.disputed, metadata.DISPUTED),
        ):
            if key in refused:
                refused.discard(key)
                plan.metadata(Expect.INTEGER, b"SREM", name, key)
        self.refused.discard(key)

    def dispute(self, key: bytes, plan: Plan) -> None:
        """Refuse commands on the key until it is put right."""
        self.disputed.add(key)
        self.refused.add(key)
        plan.metadata(Expect.INTEGER, b"SADD", metadata.DISPUTED, key)

    def _keep_foreign(self, key: bytes, plan: Plan) -> None:
        """Keep what the server holds there for a while, outside of the clients' sight."""
        aside, db = metadata.FOREIGN_PREFIX + key, b"%d" % self.metadata_db
        plan.native(key, Expect.INTEGER, b"COPY", key, aside, b"DB", db, b"REPLACE")
        plan.metadata(Expect.INTEGER, b"EXPIRE", aside, b"%d" % _KEEP_FOREIGN_SECONDS)

    def _hide_set(self, key: bytes, plan: Plan) -> None:
        target = hidden_key(RedisType.SET, key)
        plan.native(
            key, Expect.INTEGER, b"COPY", key, target, b"DB", b"%d" % self.metadata_db, b"REPLACE"
        )
        plan.native(key, Expect.INTEGER, b"DEL", key)

    def _note_conflict(self, key: bytes) -> None:
        if key not in self.hidden:
            self.hidden.add(key)
            self.conflicts += 1
