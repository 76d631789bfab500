"""The local half of a commit: client commands become effects of one causal message and native commands.

A message carries all local operations since the last delivery, up to a limit on operations and bytes. (dot, index)
identifies an operation. Effects are compressed as they come: increments of one key are summed; members added and values
written to one key are listed once, unless a removal stands between them. While an effect grows like this it is *open*:
the unstable log does not have it, nor, for a number, does the server. It is sealed before these are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Protocol

from crdtcast.adapters.redis.commit.plan import Plan
from crdtcast.adapters.redis.group.preimages import Taking
from crdtcast.adapters.redis.store import effects
from crdtcast.adapters.redis.store.databases import Home
from crdtcast.adapters.redis.store.effects import (
    NEVER,
    WHOLE,
    Assign,
    Effect,
    EffectsEvent,
    Expire,
    Inc,
    KillAll,
    KillKey,
    KillSlots,
    One,
    RedisType,
    Reg,
    Until,
    pairs_of,
)
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.many_slots import ManySlots
from crdtcast.adapters.redis.store.open_increments import OpenIncrements
from crdtcast.adapters.redis.store.slot_value import Number, Only
from crdtcast.adapters.redis.store.unstable import SlotLog
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import NOTHING
from crdtcast.causality.tags import Dot, Tag, Vector, make_tuple

MAX_OPERATIONS = 4096
MAX_BYTES = 1 << 20
MAX_COMMAND_BYTES = (8 << 20) + (64 << 10)
"""Bytes of arguments of one write, or of one transaction: neither is divided. A value of 8 MiB and its names fit."""


class CommitSender(Protocol):
    """Sends the messages: the engine."""

    @property
    def me(self) -> str:
        """Its incarnation."""
        ...

    @property
    def vector(self) -> Vector:
        """The delivered messages, own ones included. It is live: it changes with each message."""
        ...

    def send(self, payload: bytes, *, after: Sequence[Tag] | None = None) -> Tag:
        """Broadcast a message (tcbroadcast).

        after: it comes after these and all acknowledged messages only; None: after all that this member delivered.
        """
        ...


class _Assigned:
    """A key that the open message has made a string. A further value replaces this one.

    place: of its SET in the plan, -1 if something behind that may have seen the value.
    is_behind: whether the log has a former value.
    """

    __slots__ = ("effect", "is_behind", "place")

    def __init__(self, effect: Assign, place: int) -> None:
        self.effect = effect
        self.place = place
        self.is_behind = False


class _Values:
    """An open effect that writes values.

    place: of the effect in the message.
    words: slots and values in turn.
    home: where the former values are, if they are kept together with those of other effects, as they were before the
      message.
    aside: the slots whose former values are kept already, if each is when it is overwritten.
    """

    home: Home | None = None
    aside: set[bytes] | None = None

    def __init__(self, place: int, type_: RedisType) -> None:
        self.place = place
        self.type = type_
        self.words: list[bytes] = []


class LocalBatch:
    """Effects of the open message. The engine sends it when it is closed."""

    def __init__(
        self,
        plan: Plan,
        keyspace: Keyspace,
        engine: CommitSender,
        timestamp: Callable[[], int],
    ) -> None:
        self.plan = plan
        self.keyspace = keyspace
        self.increments: OpenIncrements = OpenIncrements(plan, keyspace)
        self.sent: list[tuple[Tag, bytes, EffectsEvent]] = []
        self._unseen: list[bytes] = []
        """Keys replaced without a look at them, where keys may have deadlines."""
        self._unseen_place = 0
        self.bounded: bool = True
        """Whether a message is closed when it is full. A message that is sent again is not divided."""
        self._engine = engine
        self._timestamp = timestamp
        self._open()

    def _open(self) -> None:
        # The open message comes after all that was delivered: the live vector is its past.
        engine = self._engine
        me, vector = engine.me, engine.vector
        dot: Dot = make_tuple(Dot, (me, vector.get(me, 0) + 1))
        self.tag: Tag = Tag(dot, (), vector)
        self._effects: list[Effect | None] = []
        self._additions: dict[bytes, tuple[int, RedisType, list[Sequence[bytes]]]] = {}
        self._values: dict[bytes, _Values] = {}
        self._changed: set[bytes] = set()
        """Keys with an earlier effect in this message that is closed."""
        self._taken: list[Taking] = []
        """What closed effects have overwritten, to be kept together."""
        self._taken_place = -1
        self._assigned: dict[bytes, _Assigned] = {}
        self._time = 0
        self._operations = self._bytes = 0

    def add(
        self, key: bytes, type_: RedisType, slots: Sequence[bytes], *, begins: bool = True
    ) -> int:
        """Make slots present. Returns the position of the native command whose reply counts the new ones.

        begins: whether this begins a new key if the key does not exist.
        """
        if self.bounded:
            self._count(len(slots), _size(slots) + len(key))
        if begins and self.keyspace.types[key] is NOTHING:
            self._begin(key)
        if type(slots) is ManySlots:  # a separate effect
            self._seal(key)
            place = len(self._effects)
            self._effects.append(One(key, type_, slots))
            return self.keyspace.add(key, type_, slots, self.tag, place, self.plan)
        open_ = self._additions.get(key)
        if open_ is None:
            if self._values or self._assigned:
                self._seal_values_of(key)
            self._additions[key] = len(self._effects), type_, [slots]
            self._effects.append(None)
        else:
            open_[2].append(slots)
        return self.keyspace.show(key, type_, slots, self.plan)

    def write(
        self,
        key: bytes,
        type_: RedisType,
        words: Sequence[bytes],
        since: int | None = None,
        *,
        begins: bool = True,
        only: Only = Only.ALWAYS,
    ) -> int:
        """Give slots values. Returns the position of the native command.

        words: slots and values in turn.
        since: when they were written; None: now.
        only: the condition under which they were written, which they meet.
        begins: whether this begins a new key if the key does not exist.
        """
        if self.bounded:
            self._count(len(words) // 2, _size(words) + len(key))
        if begins and self.keyspace.types[key] is NOTHING:
            self._begin(key)
        open_ = self._values.get(key)
        if since is not None or only or type(words) is ManySlots:
            self._seal(key)
            return self._write_apart(key, type_, words, since, only)
        if open_ is None or open_.type is not type_:
            keeps = self.keyspace.aside is not None
            is_first = keeps and self._is_first(key)
            self._seal(key)
            open_ = self._values[key] = _Values(len(self._effects), type_)
            self._effects.append(None)
            if keeps and self.keyspace.holds(key, type_):
                self._keep(open_, key, is_first=is_first)
        if open_.aside is not None:
            slots = [slot for slot in dict.fromkeys(words[::2]) if slot not in open_.aside]
            if slots:
                open_.aside.update(slots)
                self.keyspace.put_aside(key, type_, slots, self.tag, open_.place, self.plan)
        open_.words += words
        return self.keyspace.write_over(key, type_, words, self.plan)

    def _is_first(self, key: bytes) -> bool:
        """Whether the message has no effect on this key yet."""
        return not (
            key in self._changed
            or key in self._values
            or key in self._additions
            or key in self._assigned
            or key in self.increments
        )

    def _keep(self, open_: _Values, key: bytes, *, is_first: bool) -> None:
        """Let the values that an effect is about to overwrite be kept. is_first: see `_is_first`."""
        if is_first and TYPES[open_.type].get_several is not None:
            open_.home = self.keyspace.place_of(key, open_.type)
            if self._taken_place < 0:
                self._taken_place = self.plan.hold()
        else:
            open_.aside = set()

    def _write_apart(
        self,
        key: bytes,
        type_: RedisType,
        words: Sequence[bytes],
        since: int | None,
        only: Only,
    ) -> int:
        """Like `write`, in a separate effect."""
        place = len(self._effects)
        kept = words if type(words) is ManySlots else tuple(words)
        self._effects.append(Reg(key, type_, kept, since, only))
        values, keyspace, tag = pairs_of(kept), self.keyspace, self.tag
        if keyspace.aside is not None:
            keyspace.put_aside(key, type_, values, tag, place, self.plan)
        written = self._now() if since is None else since
        keyspace.log.put(key, type_, values, tag.dot, written, place, only)
        return keyspace.write_over(key, type_, kept, self.plan)

    def assign(self, key: bytes, value: bytes, at: int = NEVER) -> None:
        """Make the key this string, whatever it was, until the deadline."""
        if self.bounded:
            self._count(2, len(key) + len(value))
        keyspace, plan = self.keyspace, self.plan
        assigned = self._assigned.get(key)
        if assigned is not None:
            effect = assigned.effect
            effect.value, effect.at = value, at
            assigned.place = keyspace.set_again(key, value, plan, assigned.place)
            assigned.is_behind = True
            return
        self._seal(key)
        place = len(self._effects)
        effect = Assign(key, value, at)
        self._effects.append(effect)
        if keyspace.dates.in_use and key not in keyspace.types:
            self._replace_unseen(key)
        if keyspace.aside is not None:
            keyspace.aside.key(key, self.tag.dot, place, plan, hides=key in keyspace.hidden)
        at_place = keyspace.assign(key, value, at, self.tag, self._now(), place, plan)
        self._assigned[key] = _Assigned(effect, at_place)

    def _replace_unseen(self, key: bytes) -> None:
        """A key is replaced that nobody has looked at: what the index has of it must go before."""
        self.keyspace.dates.recall(key)
        if not self._unseen:
            self._unseen_place = self.plan.hold()
        self._unseen.append(key)

    def increase(self, key: bytes, type_: RedisType, slot: bytes, delta: Number) -> None:
        """Add to the number in a slot whose value is known."""
        if self.bounded:
            self._count(1, len(key) + len(slot) + 8)
        if self.keyspace.types[key] is NOTHING:
            self._begin(key)
        self._seal(key)
        place = len(self._effects)
        self._effects.append(Inc(key, type_, slot, delta))
        self.keyspace.increment(key, type_, slot, delta, self.tag, place, self.plan)

    def until(self, key: bytes, at: int, only: Only = Only.ALWAYS) -> None:
        """Move a key's deadline."""
        if self.bounded:
            self._count(1, len(key))
        self._seal(key)
        place = len(self._effects)
        self._effects.append(Until(key, at, only))
        self.keyspace.until(key, at, only, self.tag, self._now(), place)

    def expire(self, keys: Collection[bytes]) -> None:
        """Report that the server has dropped these keys at their deadlines. The deadlines stay."""
        if self.bounded:
            self._count(len(keys), _size(keys))
        self._effects += [Expire(key, False) for key in keys]
        expire, tag, plan = self.keyspace.expire, self.tag, self.plan
        for key in keys:
            expire(key, tag, plan, whole=False)

    def expire_behind(self, keys: Sequence[bytes], before: Sequence[Tag]) -> None:
        """Report keys that the server dropped before this commit's deliveries.

        before: the message comes after these only, so it is concurrent with the deliveries.
        """
        self.close()
        event = EffectsEvent(self._now(), [Expire(key, whole=False) for key in keys])
        payload = effects.encode(*event)
        tag = self._engine.send(payload, after=before)
        self.sent.append((tag, payload, event))
        for key in keys:
            self.keyspace.expire(key, tag, self.plan, whole=False)
        self._open()

    def _begin(self, key: bytes) -> None:
        """A write begins an empty key: drop the deadlines that this region has seen."""
        if key in self._additions or key in self.increments or key in self._values:
            return
        dates = self.keyspace.dates
        is_dropped = dates.touched and dates.is_dropped(key)
        self._effects.append(Expire(key, whole=True) if is_dropped else KillKey(key))
        self.keyspace.begin(key, self.tag, self.plan)

    def remove(self, key: bytes, type_: RedisType, slots: Sequence[bytes]) -> tuple[int, ...]:
        """Remove slots. Returns the positions of the native commands whose replies count them."""
        if self.bounded:
            self._count(len(slots), _size(slots) + len(key))
        keyspace, native = self.keyspace, TYPES[type_]
        # One script keeps what all such removals of a message remove, if it finds the slots as they were before.
        is_kept = (
            keyspace.aside is not None
            and native.move is None
            and native.get_several is not None
            and type(slots) is not ManySlots
            and self._is_first(key)
        )
        self._seal(key)
        place = len(self._effects)
        kept = slots if type(slots) is ManySlots else tuple(slots)
        self._effects.append(KillSlots(key, type_, kept))
        if not is_kept:
            return keyspace.kill_slots(key, type_, slots, self.tag, self.plan, place)
        if keyspace.holds(key, type_):
            home = keyspace.place_of(key, type_)
            if self._taken_place < 0:
                self._taken_place = self.plan.hold()
            self._taken.append(make_tuple(Taking, (place, native, home, dict.fromkeys(kept))))
        return keyspace.kill_slots(key, type_, slots, self.tag, self.plan)

    def take_any(
        self, key: bytes, type_: RedisType, number: int
    ) -> tuple[list[bytes], tuple[int, ...]] | None:
        """Remove so many slots chosen at random, or all if there are fewer. Returns them, and the positions of the
        native commands whose replies count them; None if the server must choose.
        """
        return None

    def increment(self, key: bytes, delta: int) -> None:
        """Add to the number that is the value of a key."""
        if self.bounded:
            self._count(1, len(key) + 8)
        if self.keyspace.types[key] is NOTHING:
            self._begin(key)
        if self.increments.add(key, delta, len(self._effects)):
            self._effects.append(None)
            if self._values or self._assigned:
                self._seal_values_of(key)

    def kill_key(self, key: bytes) -> int:
        """Remove a key. Returns the position of the native DEL."""
        if self.bounded:
            self._count(1, len(key))
        self._seal(key)
        place = len(self._effects)
        self._effects.append(KillKey(key))
        return self.keyspace.kill_key(key, self.tag, self.plan, place)

    def show(self, keys: Collection[bytes]) -> None:
        """Whatever follows in the plan sees all that was written under these keys, or all keys if none is given."""
        self.increments.show(keys)
        if self._assigned:
            for key in keys or self._assigned:
                if (assigned := self._assigned.get(key)) is not None:
                    self._catch_up(key, assigned)
                    assigned.place = -1

    def has_touched(self, key: bytes) -> bool:
        """Whether this batch contains an operation on this key."""
        told = [effect for _, _, event in self.sent for effect in event.effects]
        touched = {
            effect.key
            for effect in (*told, *self._effects)
            if effect is not None and not isinstance(effect, KillAll)
        }
        is_open = key in self.increments or key in self._additions or key in self._values
        return is_open or key in touched

    def unstable(self, key: bytes, type_: RedisType) -> SlotLog:
        """The unstable effects of a type on a key, those of this batch included."""
        self._seal(key)
        return self.keyspace.log.of(key, type_)

    @contextmanager
    def undivided(self, operations: int, size: int) -> Iterator[None]:
        """Inside this context, all effects go into one message, however large. Earlier effects may share that message.

        operations, size: about what will come; an open message without room for it is closed first.
        """
        bounded = self.bounded
        if bounded:
            self._count(operations, size)
        self.bounded = False
        try:
            yield
        finally:
            self.bounded = bounded

    def _count(self, operations: int, size: int) -> None:
        if self._operations and (
            self._operations + operations > MAX_OPERATIONS or self._bytes + size > MAX_BYTES
        ):
            self.close()
        self._operations += operations
        self._bytes += size

    def _seal(self, key: bytes) -> None:
        """Close the key's open effects: another effect on it comes after them."""
        self._changed.add(key)
        if key in self.increments.by_key:
            self._seal_increment(key)
        if key in self._additions:
            self._seal_addition(key, *self._additions.pop(key))
        if key in self._values or key in self._assigned:
            self._seal_values_of(key)

    def _seal_values_of(self, key: bytes) -> None:
        if key in self._values:
            self._seal_values(key, self._values.pop(key))
        if key in self._assigned:
            self._catch_up(key, self._assigned.pop(key))

    def _catch_up(self, key: bytes, assigned: _Assigned) -> None:
        """Let the log have the last value of an open effect."""
        if assigned.is_behind:
            assigned.is_behind = False
            self.keyspace.assign_again(key, assigned.effect.value, assigned.effect.at)

    def _seal_increment(self, key: bytes) -> None:
        index, total = self.increments.take(key)
        self._effects[index] = Inc(key, RedisType.STRING, WHOLE, total)
        self.keyspace.log.increment(key, RedisType.STRING, WHOLE, total, self.tag, index)

    def _seal_addition(
        self, key: bytes, index: int, type_: RedisType, listed: list[Sequence[bytes]]
    ) -> None:
        several = len(listed) > 1
        slots = tuple(dict.fromkeys(chain.from_iterable(listed)) if several else listed[0])
        self._effects[index] = One(key, type_, slots)
        self.keyspace.log.one(key, type_, slots, self.tag, index)

    def _seal_values(self, key: bytes, open_: _Values) -> None:
        place, type_, words, home = open_.place, open_.type, open_.words, open_.home
        values = pairs_of(words)
        several = len(words) > 2
        kept = tuple(chain.from_iterable(values.items()) if several else words)
        self._effects[place] = Reg(key, type_, kept)
        self.keyspace.log.put(key, type_, values, self.tag.dot, self._now(), place)
        if home is not None:
            self._taken.append(make_tuple(Taking, (place, TYPES[type_], home, values)))

    def _now(self) -> int:
        """The time stamp of the open message."""
        self._time = self._time or self._timestamp()
        return self._time

    def close(self) -> None:
        """Tag and send the open message if it has effects; then open the next one."""
        if self._effects:
            self._close()
            self._open()

    def end(self) -> list[tuple[Tag, bytes, EffectsEvent]]:
        """Tag and send the open message if it has effects. Returns all sent messages; the batch is used up then."""
        if self._effects:
            self._close()
        if self._unseen:
            self.keyspace.drop_entries(self._unseen, self.plan, self._unseen_place)
        return self.sent

    def _close(self) -> None:
        for key in list(self.increments.by_key):
            self._seal_increment(key)
        for key, (index, type_, listed) in self._additions.items():
            self._seal_addition(key, index, type_, listed)
        for key, values in self._values.items():
            self._seal_values(key, values)
        for key, assigned in self._assigned.items():
            self._catch_up(key, assigned)
        if self._taken:
            assert self.keyspace.aside is not None
            taken, place = self._taken, self._taken_place
            self.keyspace.aside.together(taken, self.tag.dot, self.plan, place)
        closed: list[Effect] = self._effects  # type: ignore[assignment]  # all are sealed
        event = EffectsEvent(self._now(), closed)
        payload = effects.encode(*event)
        tag = self._engine.send(payload)
        if tag.dot != self.tag.dot:
            raise AssertionError(f"prepared for {self.tag.dot}, tagged {tag.dot}")
        self.sent.append((tag, payload, event))


def _size(members: Collection[bytes]) -> int:
    """The approximate size of members in bytes."""
    return len(members.encoded) if type(members) is ManySlots else sum(map(len, members))
