"""Turns effects into native commands: the one place that knows what the server holds and what it should hold.

It keeps the unstable log and remembers the type (and the number) of keys in use. A value whose type is hidden by
another (rule H7) is kept in the metadata database. This module does no I/O: it appends commands to a `Plan`. The only
type that it names is the string, which may be a number.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import hiredis

from crdtcast.adapters.redis.adoption.left_out import NONE, LeftOut
from crdtcast.adapters.redis.commit.plan import SAYS_OK, Expect, Plan
from crdtcast.adapters.redis.deadlines.atoms import winner
from crdtcast.adapters.redis.deadlines.dates import Dates
from crdtcast.adapters.redis.deadlines.index import (
    ORPHANS,
    Due,
    FoundDeadlines,
    GoneDeadline,
    Move,
    advance,
    drop_entries,
    forget_all,
)
from crdtcast.adapters.redis.group.preimages import Aside
from crdtcast.adapters.redis.store import metadata
from crdtcast.adapters.redis.store.contents import (
    Contents,
    deadline_of,
    portions,
    types_of,
    with_deadline,
)
from crdtcast.adapters.redis.store.databases import (
    ELSEWHERE,
    USUAL,
    Databases,
    Home,
    db_of,
    described,
    home_of,
    key_of,
    names_in,
)
from crdtcast.adapters.redis.store.effects import (
    NEVER,
    WHOLE,
    Assign,
    Effect,
    EndsData,
    Expire,
    Inc,
    KeyEffect,
    KillAll,
    KillData,
    KillKey,
    KillSlots,
    One,
    RedisType,
    Reg,
    Replace,
    Until,
    pairs_of,
)
from crdtcast.adapters.redis.store.hiding import hidden_key
from crdtcast.adapters.redis.store.many_slots import command_of
from crdtcast.adapters.redis.store.slot_numbers import Known, SlotNumbers, known_of
from crdtcast.adapters.redis.store.slot_value import Figures, Number, Only, Worth, exact, text_of
from crdtcast.adapters.redis.store.unstable import KeyLog, UnstableLog
from crdtcast.adapters.redis.types import BY_NAME, TYPES
from crdtcast.adapters.redis.types.exact_values import ExactValues
from crdtcast.adapters.redis.types.native import NOTHING, OTHER, Content, Holds, NativeType
from crdtcast.adapters.redis.types.strings import String
from crdtcast.causality.tags import Tag, Vector
from crdtcast.exceptions import LocalProtocolError

_pack: Callable[[tuple[bytes, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_REMEMBERED_KEYS = 100_000
_KEEP_FOREIGN_SECONDS = 7 * 86_400
_TEXT, _STRING = String.here, String.type
_INTEGER = Expect.INTEGER


_Ending: TypeAlias = EndsData | KillAll | Expire
"""Effects after which a key that the server had dropped is known again."""


class Keyspace:
    """The relevant native state of the clients' databases, and the log over it. Keys are names (`databases`)."""

    def __init__(self, metadata_db: int) -> None:
        self.log: UnstableLog = UnstableLog()
        self.metadata_db = metadata_db
        self.databases: Databases = Databases(USUAL, metadata_db)
        self.hidden: dict[bytes, set[RedisType]] = {}
        """Hidden types, by key."""
        self.damaged: set[bytes] = set()
        """Keys that were overwritten directly in the server and wait for another region's copy."""
        self.left_out: LeftOut = NONE
        """Keys that the group leaves out."""
        self.disputed: set[bytes] = set()
        """Keys that differ between members, and nothing shows which copy is right."""
        self.incomplete: set[bytes] = set()
        """Large keys of which only some slots are repaired yet."""
        self.refused: set[bytes] = set()
        """All of these keys: commands on them are answered with an error."""
        self.restored: int = 0
        """How often a key was restored since start."""
        self.rewritten: set[bytes] = set()
        """Keys that were repaired since the committer last looked."""
        self.conflicts: int = 0
        """How often two types conflicted under one key since start."""
        self.aside: Aside | None = None
        """Keeps what this member's removals take away; only where members come and go."""
        self.types: dict[bytes, Known] = {}
        """What keys are known to hold. Read-only."""
        self._numbers = SlotNumbers()
        self.exact: ExactValues = ExactValues()
        self.dates: Dates = Dates()
        self.unsettled: dict[bytes, None] = {}
        """Keys whose visible type is unknown: a value that hid others may have become empty."""

    # What the server holds

    def known(self, key: bytes) -> Known | None:
        """What the key holds, or None if the server must be asked."""
        return self.types.get(key)

    def learn(self, key: bytes, type_name: bytes, text: object) -> None:
        """Take in the server's answers to TYPE and GET."""
        if type_name == String.name and isinstance(text, bytes):
            self.types[key] = known_of(text)
        else:
            native = BY_NAME.get(type_name)
            strange = NOTHING if type_name == b"none" else OTHER
            self.types[key] = strange if native is None else native.here

    def learn_dated(self, key: bytes, found: FoundDeadlines, now: int) -> None:
        """Take in a key's type, text and deadline, as found at the server's TIME."""
        self.learn(key, found.kind, found.text)
        self.dates.learn(key, found, now)

    def looked_at(self, key: bytes, *, is_empty: bool) -> None:
        """Record whether a key that may be empty holds its type or nothing."""
        known = self.types[key]
        if isinstance(known, Holds) and known.type is not None:
            self.types[key] = NOTHING if is_empty else TYPES[known.type].here

    def forget(self, key: bytes) -> None:
        """Ask the server again before the key is used."""
        self.types.pop(key, None)
        if self._numbers:
            self._numbers.forget(key)

    def number(self, key: bytes, type_: RedisType, slot: bytes) -> Known | None:
        """What a slot that will be counted holds: a number (0 if the slot is missing) or text; None if the server must
        be asked. For a string use `known`.
        """
        if (known := self._numbers.of(key, type_, slot)) is not None:
            return known
        if type_ not in self.hidden.get(key, ()):
            holds = self.types.get(key)
            if holds is not None and (not isinstance(holds, Holds) or holds.type is not type_):
                return 0
        return None

    def will_count(self, key: bytes, type_: RedisType, slot: bytes) -> bool:
        """Keep what the slot holds known until the end of the next batch. Returns False if the server must be asked."""
        known = self.number(key, type_, slot)
        if known is not None:
            self._numbers.learn(key, type_, slot, known)
        return known is not None

    def holds(self, key: bytes, type_: RedisType) -> bool:
        """Whether the key, which must be known, may have a value of that type."""
        known = self.types[key]
        visible = known.type if isinstance(known, Holds) else _STRING
        return visible is type_ or type_ in self.hidden.get(key, ())

    def place_of(self, key: bytes, type_: RedisType) -> Home:
        """Where the key's value of that type is, if it has one."""
        if type_ in self.hidden.get(key, ()):
            return self._hidden_home(key, type_)
        return home_of(key)

    def learn_number(self, key: bytes, type_: RedisType, slot: bytes, value: object) -> None:
        """Take in the server's reply for a slot: its value, nothing, or an error if the key has another type."""
        worth = self.exact.of(key, type_, slot, TYPES[type_].slot_of(value))
        self._numbers.learn(key, type_, slot, 0 if worth is None else known_of(worth))

    def trim(self) -> None:
        """Bound the memory of types. Only between batches, because a batch relies on it."""
        self._numbers.trim()
        surplus = len(self.types) - _REMEMBERED_KEYS
        if surplus > _REMEMBERED_KEYS // 4:  # copies all keys: too slow for every commit
            for key in list(self.types)[:surplus]:
                del self.types[key]

    # Effects

    def apply(
        self,
        applied: Sequence[Effect],
        tag: Tag,
        timestamp: int,
        plan: Plan,
        *,
        sees_all: bool = False,
    ) -> None:
        """Apply the effects of a remote message: log and native commands. sees_all: see `Delivery`."""
        touched = self.dates.touched
        for index, effect in enumerate(applied):
            if touched and not isinstance(effect, _Ending) and self.dates.is_dropped(effect.key):
                self._apply_to_dropped(effect, tag, timestamp, index)
                continue
            match effect:
                case One(key, type_, slots):
                    self.log.one(key, type_, slots, tag, index)
                    self.show(key, type_, slots, plan)
                case Inc(key, type_, slot, delta):
                    self.increment(key, type_, slot, delta, tag, index, plan)
                case Assign(key, value, at):
                    if sees_all or self.log.is_seen(key, tag):
                        self.assign(key, value, at, tag, timestamp, index, plan)
                        continue
                    self.kill_key(key, tag, plan, is_assigned=True)
                    self.until(key, at, Only.ALWAYS, tag, timestamp, index)
                    self.write(key, _STRING, {WHOLE: value}, tag, timestamp, index, plan)
                case Reg(key, type_, words, since):
                    written = timestamp if since is None else since
                    values = pairs_of(words)
                    if sees_all or self.log.are_seen(key, type_, values, tag):
                        self.log.put(key, type_, values, tag.dot, written, index, effect.only)
                        self.write_over(key, type_, words, plan)
                    else:
                        self.write(key, type_, values, tag, written, index, plan, effect.only)
                case Expire(key, whole):
                    self.dates.others_tell = True
                    self.expire(key, tag, plan, whole=whole)
                case KillKey(key):
                    self.kill_key(key, tag, plan)
                case Replace(key, at):
                    self.kill_key(key, tag, plan)
                    self.until(key, at, Only.ALWAYS, tag, timestamp, index)
                case KillSlots(key, type_, slots):
                    self.kill_slots(key, type_, slots, tag, plan)
                case Until(key, at, only):
                    self.until(key, at, only, tag, timestamp, index)
                case KillData(key):
                    self.expire(key, tag, plan, whole=False)
                case KillAll(db):
                    self.kill_all(db, tag, plan)
                    self._know(db, applied[index + 1 :])

    def _apply_to_dropped(self, effect: KeyEffect, tag: Tag, timestamp: int, index: int) -> None:
        """Apply an effect to a key that the server has dropped, while no expiry message (X) has followed. The contents
        are lost, so the key stays gone until X comes.
        """
        self.log.apply(effect, tag, timestamp, index)
        if isinstance(effect, Until):
            self._deadline_is(effect.key)

    def until(self, key: bytes, at: int, only: Only, tag: Tag, timestamp: int, index: int) -> None:
        """Move a key's deadline in the log; the server gets it at the end of the commit."""
        self.dates.set(key, self.log.deadlines.set(key, at, only, tag, timestamp, index))

    def ended(self, key: bytes) -> None:
        """A message that is now stored and in the log has ended all that was under the key."""
        self.dates.ended(key, winner(self.log.deadlines.of(key)))

    def _deadline_is(self, key: bytes) -> None:
        """The stable part of a key's deadline is gone: what is left in the log counts."""
        self.dates.set(key, winner(self.log.deadlines.of(key)))

    def expire(self, key: bytes, tag: Tag, plan: Plan, *, whole: bool) -> None:
        """The key has expired: remove what `tag` has seen of its contents. whole: its deadline, too."""
        if whole:
            self.kill_key(key, tag, plan)
            return
        self.dates.is_known_again(key)
        left = self.log.kill_data(key, tag)
        if left or self.types.get(key) is not NOTHING or key in self.hidden:
            self._hold_only(key, left, plan)
        else:
            self._emptied(key)

    def learn_due(self, due: Due) -> None:
        """The server has dropped this key."""
        self.types[due.key] = NOTHING
        self.dates.learn_due(due)

    def add(
        self,
        key: bytes,
        type_: RedisType,
        slots: Collection[bytes],
        tag: Tag,
        index: int,
        plan: Plan,
    ) -> int:
        """Add slots, in the log and in the server. Returns the position of the command."""
        self.log.one(key, type_, slots, tag, index)
        return self.show(key, type_, slots, plan)

    def show(self, key: bytes, type_: RedisType, slots: Collection[bytes], plan: Plan) -> int:
        """Make the server add slots, which are in the log. Returns the position of the command."""
        native = TYPES[type_]
        if key < ELSEWHERE:
            known = self.types[key]
            if known is native.here or known is NOTHING or known is native.perhaps:
                self.types[key] = native.here
                return plan.native_packed(key, _INTEGER, command_of(native.write, key, slots))
        home = self._home(key, type_, native.here, plan)
        return plan.at(home, command_of(native.write, home.key, slots))

    def write_over(self, key: bytes, type_: RedisType, words: Sequence[bytes], plan: Plan) -> int:
        """Give slots values in the server. words: slot and value in turn.

        The write has seen all that is in the log, as a local one has, so the slots are worth these values. Returns the
        position of the command.
        """
        native = TYPES[type_]
        if (
            self._numbers
            or self.exact.slots
            or key >= ELSEWHERE
            or self.types[key] is not native.here
            or (ordered := native.in_order(words)) is None
        ):
            return self._fill(key, type_, pairs_of(words), plan)
        return plan.native_packed(key, native.written, command_of(native.write, key, ordered))

    def write(
        self,
        key: bytes,
        type_: RedisType,
        values: Mapping[bytes, bytes],
        tag: Tag,
        timestamp: int,
        index: int,
        plan: Plan,
        only: Only = Only.ALWAYS,
    ) -> int:
        """Give slots values in the log, and make the server show what they are worth then: the log may have a later
        value. Returns the position of the command.
        """
        log = self.log.write(key, type_, values, tag, timestamp, index, only)
        shown: dict[bytes, Worth] = {slot: log.worth(slot) for slot in values}  # type: ignore[misc]
        return self._fill(key, type_, shown, plan)

    def put_aside(
        self,
        key: bytes,
        type_: RedisType,
        slots: Collection[bytes],
        tag: Tag,
        place: int,
        plan: Plan,
    ) -> None:
        """Keep what a local write is about to overwrite."""
        assert self.aside is not None
        if not self.holds(key, type_):
            return
        if type_ is _STRING:
            self.aside.key(key, tag.dot, place, plan, hides=False)
        else:
            self.aside.slots(TYPES[type_], self.place_of(key, type_), slots, tag.dot, place, plan)

    def _fill(self, key: bytes, type_: RedisType, content: Content, plan: Plan) -> int:
        """Make the server hold these slots, in addition to what it holds of that type."""
        native = TYPES[type_]
        known: Known = native.here
        if type_ is _STRING:
            known = known_of(content[WHOLE])
        else:
            self._written(key, type_, content)
        return _write(native, self._home(key, type_, known, plan), content, plan)

    def _written(self, key: bytes, type_: RedisType, content: Content) -> None:
        """Note the values of slots."""
        if self._numbers:
            self._numbers.written(key, type_, content)
        if TYPES[type_].rounds:
            self.exact.written(key, type_, content)

    def _removed(self, key: bytes, type_: RedisType, gone: Collection[bytes]) -> None:
        """Note that slots are gone."""
        if self._numbers:
            self._numbers.removed(key, type_, gone)
        if self.exact.slots:
            self.exact.removed(key, type_, gone)

    def _emptied(self, key: bytes, kept: Collection[RedisType] = ()) -> None:
        """Note that a key has no slots of types that are not in `kept`."""
        if self._numbers:
            self._numbers.emptied(key, kept)
        if self.exact.slots:
            self.exact.emptied(key, kept)

    def _home(self, key: bytes, type_: RedisType, then: Known, plan: Plan) -> Home:
        """Where to write slots of this type. then: what the key holds afterwards, if the type is visible."""
        known = self.types[key]
        if known is not then:
            visible = known.type if isinstance(known, Holds) else _STRING
            if known is OTHER or (visible is not None and visible < type_):
                self._note_hidden(key, type_)
                self._note_unsure(key, known)
                return self._hidden_home(key, type_)
            if visible is not None and visible is not type_:
                self._hide(key, visible, plan)
            self.types[key] = then
        return Home(key, key, 0) if key < ELSEWHERE else home_of(key)

    def assign(
        self,
        key: bytes,
        value: bytes,
        at: int,
        tag: Tag,
        timestamp: int,
        place: int,
        plan: Plan,
    ) -> int:
        """Make the key this string until the deadline. The effect, at `place` of its message, has seen all that is in
        the log. Returns the position of the SET.
        """
        self.log.assign(key, _STRING, value, at, tag.dot, timestamp, place)
        if at != NEVER or self.dates.touched:
            self.dates.replaced(key, at, is_mine=tag.dot.origin == self.dates.me)
        if key in self.hidden:
            self.drop_hidden(key, plan)
        if self._numbers or self.exact.slots:
            self._emptied(key)
        self.types[key] = known_of(value)
        if key < ELSEWHERE:
            return plan.native_packed(key, SAYS_OK, _pack((b"SET", key, value)))
        return plan.on_key(key, SAYS_OK, b"SET", value)

    def set_again(self, key: bytes, value: bytes, plan: Plan, former: int) -> int:
        """Replace the text that the same effect gave the key; `assign_again` must follow.

        former: the position of the SET that did so, if nothing behind it needs that text; otherwise -1. Returns the
        position of the SET that does it now.
        """
        self.types[key] = known_of(value)
        if former < 0:
            return plan.on_key(key, SAYS_OK, b"SET", value)
        plan.pieces[former] = _pack((b"SET", key if key < ELSEWHERE else key_of(key), value))
        return former

    def assign_again(self, key: bytes, value: bytes, at: int) -> None:
        """Replace, in the log, what the same effect gave the key."""
        self.log.assign_again(key, _STRING, value, at)
        if at != NEVER or self.dates.touched:
            self._deadline_is(key)

    def increment(
        self,
        key: bytes,
        type_: RedisType,
        slot: bytes,
        delta: Number,
        tag: Tag,
        index: int,
        plan: Plan,
    ) -> None:
        """Increase a number, in the log and in the server."""
        self.log.increment(key, type_, slot, delta, tag, index)
        if type_ is not _STRING:
            self._increase(key, type_, slot, delta, plan)
            return
        base = self.count(key, delta if isinstance(delta, int) else 0, plan)
        if base is not None:
            if not isinstance(delta, int):
                self.types[key] = _counted(exact(base + delta))
            self.show_number(key, base, plan)

    def _increase(
        self, key: bytes, type_: RedisType, slot: bytes, delta: Number, plan: Plan
    ) -> None:
        """Increase a slot in the server; what it holds must be known. A text hides the increments."""
        known = self.number(key, type_, slot)
        if known is None:
            raise LocalProtocolError(
                f"slot {slot!r} of key {described(key)} was not read before its use"
            )
        base = known.number if isinstance(known, Figures) else known
        if base is None or isinstance(base, Holds):
            return
        native, number = TYPES[type_], exact(base + delta)
        home = self._home(key, type_, native.here, plan)
        self._numbers.learn(key, type_, slot, _counted(number))
        if (
            native.increase is not None
            and type(base) is type(number) is type(delta) is int
            and base in native.counts
            and number in native.counts
            and delta in native.counts
        ):
            words = native.increasing(slot, delta)
            plan.speak(2)  # RESP3 sends a score as a double, not as text
            plan.at(home, command_of(native.increase, home.key, words), native.increased(number))
        else:
            content = {slot: text_of(number)}
            self.exact.written(key, type_, content)
            _write(native, home, content, plan)

    def count(self, key: bytes, delta: int, plan: Plan) -> Number | None:
        """Increase the number in memory; the increment must still be sent to the server. A visible value of another
        type gets hidden.

        Returns the number before; None where a text hides the increments.
        """
        known = self.types[key]
        if isinstance(known, int):
            self.types[key] = known + delta
            return known
        if isinstance(known, Figures):
            base = known.number
            if base is not None:
                self.types[key] = _counted(exact(base + delta))
            return base
        if known is _TEXT or known is OTHER:
            return None
        if known.type is not None:
            self._hide(key, known.type, plan)
        self.types[key] = delta
        return 0

    def show_number(self, key: bytes, base: Number, plan: Plan) -> None:
        """Bring the native number from `base` to the known one. The server counts with 64-bit integers; any other
        number it keeps as a text.
        """
        known = self.types[key]
        if type(known) is int and type(base) is int and _fits(base, known, delta := known - base):
            if key < ELSEWHERE:
                plan.native_packed(key, known, _pack((b"INCRBY", key, b"%d" % delta)))
            else:
                plan.on_key(key, known, b"INCRBY", b"%d" % delta)
        else:
            assert not isinstance(known, Holds)
            plan.on_key(key, SAYS_OK, b"SET", _text(known))

    def kill_key(
        self,
        key: bytes,
        tag: Tag,
        plan: Plan,
        own: int | None = None,
        *,
        is_assigned: bool = False,
    ) -> int:
        """Remove from the key what `tag` has seen: the log's survivors stay, which are none for a local DEL.

        own: the place of a local DEL in its message.
        is_assigned: the key becomes a string next, which needs no DEL if nothing survives.

        Returns the position of the DEL in the plan.
        """
        is_dated = key in self.log.deadlines or key in self.dates.touched
        left: KeyLog = {}
        if own is None:
            left = self.log.kill_key(key, tag)
        else:
            self.log.drop_key(key)
        if is_dated:
            self.dates.is_known_again(key)
            self._deadline_is(key)
        if self.aside is not None and own is not None:
            self.aside.key(key, tag.dot, own, plan, hides=key in self.hidden)
        return self._hold_only(key, left, plan, is_assigned=is_assigned)

    def kill_all(self, db: int | None, tag: Tag, plan: Plan) -> None:
        """Another region has removed all that it had seen of a database, or of all databases if `db` is None. Keys are
        worth what survives in the log.
        """
        self.log.kill_all(db, tag)
        plan.flush(self.databases.clients if db is None else (db,))
        self.flushed(db, plan)
        for key in names_in(self.log.keys(), db):
            self.types[key] = NOTHING
            self._put_survivors(key, self.log.key(key), plan)
        for key in names_in(self.log.deadlines, db):
            self._deadline_is(key)

    def _know(self, db: int | None, behind: Sequence[Effect]) -> None:
        """Know what keys hold after a removal of everything in a database: only what the log has."""
        for effect in behind:
            if isinstance(effect, KillAll) or (db is not None and db_of(effect.key) != db):
                continue
            self.types.setdefault(effect.key, NOTHING)
            if type(effect) is Inc and effect.type is not _STRING:
                worth = self.log.of(effect.key, effect.type).worth(effect.slot)
                known = 0 if worth is None else known_of(worth)
                self._numbers.learn(effect.key, effect.type, effect.slot, known)

    def flushed(self, db: int | None, plan: Plan) -> None:
        """At this place in the plan, a clients' database is empty, or all are if `db` is None: forget all that is kept
        or known of it. Nothing later in this commit may need that knowledge.
        """
        for key in names_in(self.hidden, db):
            self.drop_hidden(key, plan)
        for refused, name in self._refused_by_name:
            if gone := names_in(refused, db):
                plan.metadata(Expect.INTEGER, b"SREM", name, *gone)
                refused.difference_update(gone)
                self.refused.difference_update(gone)
        if self.dates.in_use:
            plan.metadata(Expect.INTEGER, *forget_all(db, self.metadata_db))
        self.dates.flushed(db)
        for key in names_in(self.unsettled, db):
            del self.unsettled[key]
        self._forget_all(db)

    @property
    def _refused_by_name(self) -> tuple[tuple[set[bytes], bytes], ...]:
        """Sets of refused keys, and their names in the metadata database."""
        sets = self.damaged, self.disputed, self.incomplete
        return tuple(zip(sets, metadata.REFUSED, strict=True))

    def _forget_all(self, db: int | None) -> None:
        """Forget what the keys of a database hold: to note for each that it is gone would take a while."""
        self.exact.flushed(db)
        if db is None:
            self.types.clear()
            self._numbers.forget_all()
            return
        for key in names_in(self.types, db):
            del self.types[key]
        self._numbers.forget_database(db)

    def begin(self, key: bytes, tag: Tag, plan: Plan) -> None:
        """A local write creates a key that holds nothing. Deadlines that it has seen do not apply to the new key.
        Values that were hidden when the server dropped the key are gone, too.
        """
        if key in self.log.deadlines or key in self.dates.touched:
            self.log.kill_key(key, tag)
            self.dates.is_known_again(key)
            self._deadline_is(key)
            self.drop_hidden(key, plan)
            self._emptied(key)

    def _hold_only(self, key: bytes, left: KeyLog, plan: Plan, *, is_assigned: bool = False) -> int:
        """Make the key hold only this. Returns the position of the DEL in the plan, -1 if none is needed."""
        position = -1
        if left or not is_assigned:
            position = plan.on_key(key, Expect.INTEGER, b"DEL")
        self.drop_hidden(key, plan)
        self.types[key] = NOTHING
        if self._numbers or self.exact.slots:
            self._emptied(key)
        if left:
            self._put_survivors(key, left, plan)
        return position

    def _put_survivors(self, key: bytes, left: KeyLog, plan: Plan) -> None:
        """Write what the log has to the key, which holds nothing."""
        for type_ in sorted(left):
            if survivors := left[type_].survivors():
                self._fill(key, type_, survivors, plan)

    def kill_slots(
        self,
        key: bytes,
        type_: RedisType,
        slots: Collection[bytes],
        tag: Tag,
        plan: Plan,
        own: int | None = None,
    ) -> tuple[int, ...]:
        """Remove slots of which nothing unseen is left; the others are worth what is left.

        own: the place of a local removal in its message.

        Returns the positions in the plan of the native commands that remove and count the slots.
        """
        gone = self.log.kill_slots(key, type_, slots, tag)
        native = TYPES[type_]
        known = self.types[key]
        is_visible = isinstance(known, Holds) and known.type is type_
        if not is_visible and type_ not in self.hidden.get(key, ()):
            return ()
        home = home_of(key) if is_visible else self._hidden_home(key, type_)
        if native.valued and gone is not slots:
            log = self.log.of(key, type_)
            left = {slot: w for slot in slots if (w := log.worth(slot)) is not None}
            self._written(key, type_, left)
            _write(native, home, left, plan)
        if not gone:
            return ()
        self._removed(key, type_, gone)
        if is_visible:
            self.types[key] = native.perhaps
        if key in self.hidden:
            self.unsettled[key] = None
        if self.aside is not None and own is not None:
            return self.aside.removing(native, home, gone, tag.dot, own, plan)
        return (plan.at(home, command_of(native.remove, home.key, gone)),)

    # What the server has executed by itself

    def executed(self, effect: Effect) -> None:
        """Know what a key holds after a command that the server has executed and not refused."""
        if type(effect) is One:
            self.types[effect.key] = TYPES[effect.type].here
            return
        if type(effect) is KillSlots:
            self._executed_removal(effect)
            return
        if isinstance(effect, KillAll):
            self._forget_all(effect.db)
            return
        key = effect.key
        match effect:
            case KillKey() | KillData() | Replace():
                self.types[key] = NOTHING
                self._emptied(key)
            case Assign(_, value):
                self.types[key] = known_of(value)
                self._emptied(key)
            case Reg(_, type_, words):
                values = pairs_of(words)
                self.types[key] = known_of(values[WHOLE]) if type_ is _STRING else TYPES[type_].here
                self._written(key, type_, values)

    def _executed_removal(self, effect: KillSlots) -> None:
        key, native, known = effect.key, TYPES[effect.type], self.types.get(effect.key)
        if key not in self.hidden and (known is native.here or known is native.perhaps):
            self.types[key] = native.perhaps
        else:
            self.types.pop(key, None)
        if self._numbers or self.exact.slots:
            self._removed(key, effect.type, effect.slots)

    def counted(self, effect: Inc, reply: object) -> None:
        """Know what a key holds after an increment that the server has executed, by its reply, or by the exact sum."""
        key, type_ = effect.key, effect.type
        known: Known = known_of(reply) if isinstance(reply, bytes) else _TEXT
        if isinstance(reply, bytes):
            self.exact.written(key, type_, {effect.slot: reply})
        if isinstance(reply, int):
            known = reply
        if isinstance(known, Holds):
            self.forget(key)
        elif type_ is _STRING:
            self.types[key] = known
        else:
            self.types[key] = TYPES[type_].here
            self._numbers.counted(key, type_, effect.slot, known)

    # Hidden values

    def _hide(self, key: bytes, type_: RedisType, plan: Plan) -> None:
        """Hide the visible value behind a type that comes before it."""
        self._note_unsure(key, self.types[key])
        target = hidden_key(type_, key)
        self._copy(key, target, plan)
        if key in self.dates.touched:  # its deadline was copied, too
            plan.metadata(Expect.INTEGER, b"PERSIST", target)
        plan.on_key(key, Expect.INTEGER, b"DEL")
        self._note_hidden(key, type_)

    def _hidden_home(self, key: bytes, type_: RedisType) -> Home:
        return Home(key, hidden_key(type_, key), self.metadata_db)

    def _note_unsure(self, key: bytes, known: Known) -> None:
        if isinstance(known, Holds) and not known.is_sure:
            self.unsettled[key] = None

    def _note_hidden(self, key: bytes, type_: RedisType) -> None:
        hidden = self.hidden.setdefault(key, set())
        if type_ not in hidden:
            hidden.add(type_)
            self.conflicts += 1

    def drop_hidden(self, key: bytes, plan: Plan) -> None:
        """Remove what the key hides."""
        for type_ in self.hidden.pop(key, ()):
            plan.metadata(Expect.INTEGER, b"DEL", hidden_key(type_, key))

    def settle(self, plan: Plan) -> None:
        """Show the next type of each key that may have become empty, and store exact values, at the end of a commit."""
        for key in self.unsettled:
            plan.settle(key)
        self.unsettled.clear()
        self.exact.store(plan)

    @property
    def is_unsettled(self) -> bool:
        """Whether `settle` has work to do."""
        return bool(self.unsettled) or self.exact.has_changed

    def let_out(self, key: bytes) -> None:
        """A key showed nothing when the gateway started: what it hides becomes visible with this commit, which has
        looked at it. Not if its server has dropped it at its deadline: X will end the hidden values, too.
        """
        is_empty = key in self.hidden and self.types[key] is NOTHING
        if is_empty and not self.dates.is_dropped(key):
            self.unsettled[key] = None

    def settled(self, key: bytes, reply: Any) -> None:
        """Take in the server's answer to `settle`: what is visible under a key, and which types it hides."""
        if not isinstance(reply, list):
            # An error, for instance because the server has no memory left: try again with the next commit.
            self.forget(key)
            self.unsettled[key] = None
            return
        visible, text, hidden = reply
        self.learn(key, visible, text)
        self.hidden.pop(key, None)
        if hidden:
            self.hidden[key] = set(map(RedisType, hidden))
        if self.dates.in_use:
            self.forget(key)  # knowledge of a key must include its deadline

    # Deadlines

    def set_deadlines(
        self, plan: Plan, found: Mapping[bytes, GoneDeadline], *, pins: bool = False
    ) -> None:
        """Send the server the deadlines of the keys that had one, or have one now, at the end of a commit.

        found: see `Dates.moves`.
        pins: it is not the end of the commit, and no key may be dropped before that.
        """
        for some in self.dates.moves(found):
            plan.set_deadlines(some, self.dates.offset_ms, pins=pins)
        if pins:
            self.dates.pinned()

    def deadlines_set(self, moves: Sequence[Move], reply: Any, delivered: Vector) -> None:
        """Take in the server's answer: the new state of these keys. delivered: the vector now."""
        if isinstance(reply, list):
            until = dict(delivered)
            for move, found in zip(moves, reply, strict=True):
                if self.dates.moved(move, found, until):
                    self.forget(move.key)

    def forget_dated(self) -> None:
        """After a commit, forget keys that may be dropped at any time: the server is asked again."""
        for key in self.dates.dropped():
            self.forget(key)
        self.dates.touched.clear()

    def advance(self, by_ms: int, plan: Plan) -> None:
        """Move the clock that deadlines are judged by."""
        words = advance(self.metadata_db, self.dates.offset_ms, by_ms)
        plan.script(*words)
        self.dates.advance(by_ms)

    def drop_entries(self, keys: Sequence[bytes], plan: Plan, place: int) -> None:
        """At this position, which the plan holds, take keys out of the index: they are replaced without a look."""
        plan.fill(place, drop_entries(keys, self.metadata_db, self.dates.offset_ms))

    def drop_orphans(self, stable: Vector, delivered: Vector, plan: Plan) -> None:
        """Forget deadlines without data that no effect can need any more."""
        if gone := self.dates.unneeded(stable, delivered):
            plan.metadata(Expect.INTEGER, b"HDEL", ORPHANS, *gone)

    # Repair

    def restore(self, key: bytes, plan: Plan) -> None:
        """Put back what a key is worth after a client changed it directly in the server.

        A number is known exactly. Of any other value, only the unstable part is known at this member. What was found is
        kept aside, and the key counts as `damaged` until another region has sent its value.
        """
        self.restored += 1
        known = self.types.get(key)
        if known is not None and not isinstance(known, Holds):
            plan.on_key(key, SAYS_OK, b"SET", _text(known))
            return
        self.damaged.add(key)
        self.refused.add(key)
        plan.metadata(Expect.INTEGER, b"SADD", metadata.DAMAGED, key)
        self._keep_foreign(key, plan)
        plan.on_key(key, Expect.INTEGER, b"DEL")
        hidden = self.hidden.get(key, ())
        self.types[key] = NOTHING
        self._emptied(key, kept=hidden)
        if hidden:
            self.unsettled[key] = None
        left = {t: log for t, log in self.log.key(key).items() if t not in hidden}
        self._put_survivors(key, left, plan)

    def with_orphan(self, key: bytes, contents: Contents) -> Contents:
        """The contents read, with the deadline that the key has without data."""
        orphan = self.dates.orphans.get(key)
        return contents if contents or orphan is None else with_deadline(contents, orphan.at)

    def put(self, key: bytes, contents: Contents, plan: Plan) -> None:
        """Give the key these contents, whatever its server holds, which is kept aside. From then on the key is in
        order.

        The log stays: it was never wrong.
        """
        if key not in self.damaged:  # otherwise it is aside already
            self._keep_foreign(key, plan)
        plan.on_key(key, Expect.INTEGER, b"DEL")
        self.drop_hidden(key, plan)
        self.types[key] = NOTHING
        self._emptied(key)
        for type_ in types_of(contents):
            for some in portions(contents[type_]):
                self._fill(key, type_, some, plan)
        self.dates.put(key, deadline_of(contents))
        self.rewritten.add(key)
        self.in_order(key, plan)

    def put_slots(
        self,
        key: bytes,
        contents: Contents,
        slots: Mapping[RedisType, Sequence[bytes]],
        before: Contents,
        plan: Plan,
    ) -> None:
        """Give these slots of the key these contents, whatever its server holds in them; remove those that `contents`
        lacks.

        before: what they were worth, which is kept aside.
        """
        self._keep_slots(key, before, plan)
        for type_, some in slots.items():
            there = contents.get(type_, {})
            if gone := [slot for slot in some if slot not in there]:
                self._drop_slots(key, type_, gone, plan)
        for type_ in slots:
            if content := contents.get(type_):
                self._fill(key, type_, content, plan)
        if deadline_of(contents) != deadline_of(before) or key in self.dates.touched:
            self.dates.put(key, deadline_of(contents))
        self.rewritten.add(key)

    def _drop_slots(self, key: bytes, type_: RedisType, gone: Sequence[bytes], plan: Plan) -> None:
        native, known = TYPES[type_], self.types[key]
        is_visible = (known.type if isinstance(known, Holds) else _STRING) is type_
        if not is_visible and type_ not in self.hidden.get(key, ()):
            return
        home = home_of(key) if is_visible else self._hidden_home(key, type_)
        self._removed(key, type_, gone)
        if is_visible:
            self.types[key] = native.perhaps
        if key in self.hidden:
            self.unsettled[key] = None
        plan.at(home, command_of(native.remove, home.key, () if native.get is None else gone))

    def refuse_meanwhile(self, key: bytes, plan: Plan) -> None:
        """Refuse commands on the key until all of its slots are repaired."""
        self.incomplete.add(key)
        self.refused.add(key)
        plan.metadata(Expect.INTEGER, b"SADD", metadata.INCOMPLETE, key)

    def in_order(self, key: bytes, plan: Plan) -> None:
        """Accept commands on the key again, if they were refused."""
        for refused, name in self._refused_by_name:
            if key in refused:
                refused.discard(key)
                plan.metadata(Expect.INTEGER, b"SREM", name, key)
        self.refused.discard(key)

    def dispute(self, key: bytes, plan: Plan) -> None:
        """Refuse commands on the key until it is repaired."""
        self.disputed.add(key)
        self.refused.add(key)
        plan.metadata(Expect.INTEGER, b"SADD", metadata.DISPUTED, key)

    def _keep_slots(self, key: bytes, before: Contents, plan: Plan) -> None:
        """Keep what some slots were worth. Several values of one key may be kept in this way, but only the first type
        has room.
        """
        aside = metadata.FOREIGN_PREFIX + key
        for type_ in types_of(before)[:1]:
            native = TYPES[type_]
            plan.metadata(Expect.ANY, native.write, aside, *native.words(before[type_]))
            plan.metadata(Expect.INTEGER, b"EXPIRE", aside, b"%d" % _KEEP_FOREIGN_SECONDS)

    def _keep_foreign(self, key: bytes, plan: Plan) -> None:
        """Keep for a while what the server holds under the key, where clients do not see it."""
        aside = metadata.FOREIGN_PREFIX + key
        self._copy(key, aside, plan)
        plan.metadata(Expect.INTEGER, b"EXPIRE", aside, b"%d" % _KEEP_FOREIGN_SECONDS)

    def _copy(self, key: bytes, target: bytes, plan: Plan) -> None:
        """Copy the visible value of a key to the metadata database."""
        home, db = home_of(key), b"%d" % self.metadata_db
        plan.look(home, command_of(b"COPY", home.key, (target, b"DB", db, b"REPLACE")))


def _counted(number: Number) -> Known:
    return number if isinstance(number, int) else Figures(text_of(number))


def _text(known: int | Figures) -> bytes:
    return b"%d" % known if isinstance(known, int) else known.text


def _fits(*numbers: Number) -> bool:
    """Whether a server can count with these numbers."""
    return min(numbers) >= INT64_MIN and max(numbers) <= INT64_MAX


def _write(native: type[NativeType], home: Home, content: Content, plan: Plan) -> int:
    return plan.at(home, command_of(native.write, home.key, native.words(content)), native.written)
