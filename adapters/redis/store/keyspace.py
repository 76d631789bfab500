"""Turns effects into native commands: the one place that knows what the server holds and what it should hold.

It keeps the unstable log, remembers the type (and the number) of keys in use, and keeps values whose type is hidden by
another (rule H7) in the metadata database. It does no I/O: it appends commands to a `Plan`. Of types it names one: the
string, which may be a number.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import hiredis

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
    Only,
    RedisType,
    Reg,
    Replace,
    Until,
    pairs_of,
)
from crdtcast.adapters.redis.store.hiding import hidden_key
from crdtcast.adapters.redis.store.many_slots import command_of
from crdtcast.adapters.redis.store.slot_numbers import Known, SlotNumbers, known_of
from crdtcast.adapters.redis.store.slot_value import Figures, Number, Worth, exact, text_of
from crdtcast.adapters.redis.store.unstable import KeyLog, UnstableLog
from crdtcast.adapters.redis.types import BY_NAME, TYPES
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
"""What makes a key known again that its server has dropped."""


class Keyspace:
    """Native state of the clients' databases, as far as it matters, and the log over it; keys by name (`databases`)."""

    def __init__(self, metadata_db: int) -> None:
        self.log: UnstableLog = UnstableLog()
        self.metadata_db = metadata_db
        self.databases: Databases = Databases(USUAL, metadata_db)
        self.hidden: dict[bytes, set[RedisType]] = {}
        """Types that another one hides, by key."""
        self.damaged: set[bytes] = set()
        """Keys that were overwritten past the gateway and wait for another region's copy."""
        self.disputed: set[bytes] = set()
        """Keys that differ between members, of which nothing tells who is right."""
        self.incomplete: set[bytes] = set()
        """Large keys of which some slots are put right, and others not yet."""
        self.refused: set[bytes] = set()
        """All of them: commands on them are answered with an error."""
        self.restored: int = 0
        """How often a key was restored, since start."""
        self.rewritten: set[bytes] = set()
        """Keys that were put right since the committer has looked."""
        self.conflicts: int = 0
        """How often two types met under one key, since start."""
        self.aside: Aside | None = None
        """Where members come and go: what own removals take away is kept."""
        self.types: dict[bytes, Known] = {}
        """What keys are known to hold. To be read only."""
        self._numbers = SlotNumbers()
        self.dates: Dates = Dates()
        self.unsettled: dict[bytes, None] = {}
        """Keys of which it is not known which type is visible: one that hid others may have become empty."""

    # What the server holds

    def known(self, key: bytes) -> Known | None:
        """What the key holds, or None when the server must be asked."""
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
        """Take in a look at a key and its deadline, at the server's TIME."""
        self.learn(key, found.kind, found.text)
        self.dates.learn(key, found, now)

    def looked_at(self, key: bytes, *, is_empty: bool) -> None:
        """A key holds a type or nothing: it has become known which of them."""
        known = self.types[key]
        if isinstance(known, Holds) and known.type is not None:
            self.types[key] = NOTHING if is_empty else TYPES[known.type].here

    def forget(self, key: bytes) -> None:
        """Ask the server again before the key is used."""
        self.types.pop(key, None)
        if self._numbers:
            self._numbers.forget(key)

    def number(self, key: bytes, type_: RedisType, slot: bytes) -> Known | None:
        """What a slot holds that is to be counted with: a number (0 if it is not there) or text; None when the server
        must be asked. Of a string see `known`.
        """
        if (known := self._numbers.of(key, type_, slot)) is not None:
            return known
        if type_ not in self.hidden.get(key, ()):
            holds = self.types.get(key)
            if holds is not None and (not isinstance(holds, Holds) or holds.type is not type_):
                return 0
        return None

    def will_count(self, key: bytes, type_: RedisType, slot: bytes) -> bool:
        """Have it known to the end of the next batch what the slot holds; False if the server must be asked."""
        known = self.number(key, type_, slot)
        if known is not None:
            self._numbers.learn(key, type_, slot, known)
        return known is not None

    def place_of(self, key: bytes, type_: RedisType) -> Home:
        """Where the key's value of that type stands, if it has one."""
        if type_ in self.hidden.get(key, ()):
            return self._hidden_home(key, type_)
        return home_of(key)

    def learn_number(self, key: bytes, type_: RedisType, slot: bytes, value: object) -> None:
        """Take in what the server has told of a slot: its value, nothing, or an error if the key is of another type."""
        self._numbers.learn(key, type_, slot, known_of(value) if isinstance(value, bytes) else 0)

    def trim(self) -> None:
        """Bound the memory of types; only between batches, since a batch relies on it."""
        self._numbers.trim()
        surplus = len(self.types) - _REMEMBERED_KEYS
        if surplus > _REMEMBERED_KEYS // 4:  # this looks at all of them: not at every commit
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
                        self.log.put(key, type_, values, tag.dot, written, index)
                        self.write_over(key, type_, words, plan)
                    else:
                        self.write(key, type_, values, tag, written, index, plan)
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
        """The server has dropped the key, and no X has followed: its contents are nowhere, so it stays gone until one
        does.
        """
        self.log.apply(effect, tag, timestamp, index)
        if isinstance(effect, Until):
            self._deadline_is(effect.key)

    def until(self, key: bytes, at: int, only: Only, tag: Tag, timestamp: int, index: int) -> None:
        """A key's deadline moves, in the log; the server hears of it at the end of the commit."""
        self.dates.set(key, self.log.deadlines.set(key, at, only, tag, timestamp, index))

    def ended(self, key: bytes) -> None:
        """A message that is stored now, and is in the log, has ended all that was under the key."""
        self.dates.ended(key, winner(self.log.deadlines.of(key)))

    def _deadline_is(self, key: bytes) -> None:
        """All that is stable of a key's deadline has gone: what is left in the log counts."""
        self.dates.set(key, winner(self.log.deadlines.of(key)))

    def expire(self, key: bytes, tag: Tag, plan: Plan, *, whole: bool) -> None:
        """The key has expired: what `tag` has seen of its contents goes. whole: its deadline, too."""
        if whole:
            self.kill_key(key, tag, plan)
            return
        self.dates.is_known_again(key)
        left = self.log.kill_data(key, tag)
        if left or self.types.get(key) is not NOTHING or key in self.hidden:
            self._hold_only(key, left, plan)

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
        """Slots become present, in the log and for the server. Returns the position of the command."""
        self.log.one(key, type_, slots, tag, index)
        return self.show(key, type_, slots, plan)

    def show(self, key: bytes, type_: RedisType, slots: Collection[bytes], plan: Plan) -> int:
        """Have the server add slots, which are present. Returns the position of the command that does it."""
        native = TYPES[type_]
        if key < ELSEWHERE and self.types[key] is native.here:
            return plan.native_packed(key, _INTEGER, command_of(native.write, key, slots))
        home = self._home(key, type_, native.here, plan)
        return plan.at(home, command_of(native.write, home.key, slots))

    def write_over(self, key: bytes, type_: RedisType, words: Sequence[bytes], plan: Plan) -> int:
        """Have the server give slots values, slot and value in turn, by a write that has seen all that is here, as an
        own one has: they are worth this. Returns the position of the command.
        """
        native = TYPES[type_]
        if (
            self._numbers
            or not native.in_turn
            or key >= ELSEWHERE
            or self.types[key] is not native.here
        ):
            return self._fill(key, type_, pairs_of(words), plan)
        return plan.native_packed(key, native.written, command_of(native.write, key, words))

    def write(
        self,
        key: bytes,
        type_: RedisType,
        values: Mapping[bytes, bytes],
        tag: Tag,
        timestamp: int,
        index: int,
        plan: Plan,
    ) -> int:
        """Slots get values, in the log, and for the server what they are worth then: a later one may be there. Returns
        the position of the command.
        """
        log = self.log.write(key, type_, values, tag, timestamp, index)
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
        """What an own write is going to write over."""
        assert self.aside is not None
        known = self.types[key]
        visible = known.type if isinstance(known, Holds) else _STRING
        if visible is not type_ and type_ not in self.hidden.get(key, ()):
            return  # nothing is there
        if type_ is _STRING:
            self.aside.key(key, tag.dot, place, plan, hides=False)
        else:
            self.aside.slots(TYPES[type_], self.place_of(key, type_), slots, tag.dot, place, plan)

    def _fill(self, key: bytes, type_: RedisType, content: Content, plan: Plan) -> int:
        """Have the server hold these slots, beside what it holds of that type."""
        native = TYPES[type_]
        known: Known = native.here
        if type_ is _STRING:
            known = known_of(content[WHOLE])
        elif self._numbers:
            self._numbers.written(key, type_, content)
        return _write(native, self._home(key, type_, known, plan), content, plan)

    def _home(self, key: bytes, type_: RedisType, then: Known, plan: Plan) -> Home:
        """Where slots of this type are to be written. then: what the key holds, if it is the visible one."""
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
    ) -> None:
        """The key becomes this string until the deadline. The effect, at `place` of its message, has seen all that is
        here.
        """
        self.log.assign(key, _STRING, value, at, tag.dot, timestamp, place)
        if at != NEVER or self.dates.touched:
            self.dates.is_known_again(key)
            self._deadline_is(key)
        if key in self.hidden:
            self.drop_hidden(key, plan)
        if self._numbers:
            self._numbers.emptied(key)
        self._set(key, value, plan)

    def assign_again(self, key: bytes, value: bytes, plan: Plan) -> None:
        """Another value takes the place of the one that the same effect has given the key."""
        self.log.assign_again(key, _STRING, value)
        self._set(key, value, plan)

    def _set(self, key: bytes, value: bytes, plan: Plan) -> None:
        """Have the server hold this string."""
        self.types[key] = known_of(value)
        if key < ELSEWHERE:
            plan.native_packed(key, SAYS_OK, _pack((b"SET", key, value)))
        else:
            plan.on_key(key, SAYS_OK, b"SET", value)

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
        """A number grows: in the log, and for the server."""
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
        """Have the server count in a slot of which it is known what it holds; a text hides the increments beside it."""
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
            and _fits(base, number, delta)
        ):
            words = native.increase, home.key, slot, b"%d" % delta
            plan.at(home, command_of(words[0], words[1], words[2:]), number)
        else:
            _write(native, home, {slot: text_of(number)}, plan)

    def count(self, key: bytes, delta: int, plan: Plan) -> Number | None:
        """A number is known to grow; the server has to be sent what it grows by. Another type that stands there is
        hidden.

        Returns the number before; None where a text base hides the deltas beside it.
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
        """Bring the native number from `base` to what it is known to be. The server counts with integers of 64 bits;
        all else it keeps as a text.
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
        """The key is worth what of the log survives: nothing, for a local DEL; `own` is its place in its message.

        is_assigned: it becomes a string next, which needs no DEL if nothing survives. Returns the position in the plan
        of the DEL.
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
        """Another region has removed all that it had seen of a database, or, without a number, of all of them: keys are
        worth what of the log survives that.
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
        """What keys of a database hold behind a removal of all in it: only what the log has."""
        for effect in behind:
            if isinstance(effect, KillAll) or (db is not None and db_of(effect.key) != db):
                continue
            self.types.setdefault(effect.key, NOTHING)
            if type(effect) is Inc and effect.type is not _STRING:
                worth = self.log.of(effect.key, effect.type).worth(effect.slot)
                known = 0 if worth is None else known_of(worth)
                self._numbers.learn(effect.key, effect.type, effect.slot, known)

    def flushed(self, db: int | None, plan: Plan) -> None:
        """This database of the clients is empty as of this place in the plan, or, without a number, all of them are:
        nothing of it is kept elsewhere, nor known. In this commit nothing may follow that has to know.
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
        """Sets of keys that are refused, and where our own database has them."""
        sets = self.damaged, self.disputed, self.incomplete
        return tuple(zip(sets, metadata.REFUSED, strict=True))

    def _forget_all(self, db: int | None) -> None:
        """Of no key of a database it is known what it holds: to note for each that it is gone would take a while."""
        if db is None:
            self.types.clear()
            self._numbers.forget_all()
            return
        for key in names_in(self.types, db):
            del self.types[key]
        self._numbers.forget_database(db)

    def begin(self, key: bytes, tag: Tag, plan: Plan) -> None:
        """A local write begins a key that holds nothing: deadlines that it has seen are not the new one's, and what was
        hidden when the server has dropped the key is gone, too.
        """
        if key in self.log.deadlines or key in self.dates.touched:
            self.log.kill_key(key, tag)
            self.dates.is_known_again(key)
            self._deadline_is(key)
            self.drop_hidden(key, plan)
            if self._numbers:
                self._numbers.emptied(key)

    def _hold_only(self, key: bytes, left: KeyLog, plan: Plan, *, is_assigned: bool = False) -> int:
        """The key holds this, and nothing else. Returns the position in the plan of the DEL, -1 if none is needed."""
        position = -1
        if left or not is_assigned:
            position = plan.on_key(key, Expect.INTEGER, b"DEL")
        self.drop_hidden(key, plan)
        self.types[key] = NOTHING
        if self._numbers:
            self._numbers.emptied(key)
        if left:
            self._put_survivors(key, left, plan)
        return position

    def _put_survivors(self, key: bytes, left: KeyLog, plan: Plan) -> None:
        """The key, which holds nothing, gets what the log says."""
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
        """Slots of which nothing unseen is left go, and the others are worth that; `own` is the place of a local
        removal in its message.

        Returns the positions in the plan of the native commands that remove them and count them.
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
            self._numbers.written(key, type_, left)
            _write(native, home, left, plan)
        if not gone:
            return ()
        if self._numbers:
            self._numbers.removed(key, type_, gone)
        if is_visible:
            self.types[key] = native.perhaps
        if key in self.hidden:
            self.unsettled[key] = None
        if self.aside is not None and own is not None:
            return self.aside.removing(native, home, gone, tag.dot, own, plan)
        return (plan.at(home, command_of(native.remove, home.key, gone)),)

    # What the server has carried out by itself

    def executed(self, effect: Effect) -> None:
        """Know what a key holds after a command that the server has carried out, and has not refused."""
        if isinstance(effect, KillAll):
            self._forget_all(effect.db)
            return
        key = effect.key
        match effect:
            case KillKey() | KillData() | Replace():
                self.types[key] = NOTHING
                self._numbers.emptied(key)
            case Assign(_, value):
                self.types[key] = known_of(value)
                self._numbers.emptied(key)
            case One(_, type_, _):
                self.types[key] = TYPES[type_].here
            case Reg(_, type_, words):
                values = pairs_of(words)
                self.types[key] = known_of(values[WHOLE]) if type_ is _STRING else TYPES[type_].here
                self._numbers.written(key, type_, values)
            case KillSlots(_, type_, slots):
                known = self.types.get(key)
                if isinstance(known, Holds) and known.type is type_ and key not in self.hidden:
                    self.types[key] = TYPES[type_].perhaps
                else:
                    self.types.pop(key, None)
                self._numbers.removed(key, type_, slots)

    def counted(self, effect: Inc, reply: object) -> None:
        """The same of an increment, which was answered with what has come of it."""
        key, type_ = effect.key, effect.type
        known: Known = known_of(reply) if isinstance(reply, bytes) else _TEXT
        if isinstance(reply, int):
            known = reply
        if isinstance(known, Holds):
            self.forget(key)
        elif type_ is _STRING:
            self.types[key] = known
        else:
            self.types[key] = TYPES[type_].here
            self._numbers.counted(key, type_, effect.slot, known)

    # What is hidden

    def _hide(self, key: bytes, type_: RedisType, plan: Plan) -> None:
        """The visible value makes room for a type that comes before it."""
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
        """At the end of a commit: of each key that may have become empty the next type comes out."""
        for key in self.unsettled:
            plan.settle(key)
        self.unsettled.clear()

    def let_out(self, key: bytes) -> None:
        """A key has shown nothing when the gateway began: what it hides comes out with this commit, which has looked
        at it. Not if its server has dropped it at its deadline: X will end that, too.
        """
        is_empty = key in self.hidden and self.types[key] is NOTHING
        if is_empty and not self.dates.is_dropped(key):
            self.unsettled[key] = None

    def settled(self, key: bytes, reply: Any) -> None:
        """Take in the server's answer to `settle`: what is visible under a key, and which types it hides."""
        if not isinstance(reply, list):
            # An error, of a server without room, say: with the next commit again.
            self.forget(key)
            self.unsettled[key] = None
            return
        visible, text, hidden = reply
        self.learn(key, visible, text)
        self.hidden.pop(key, None)
        if hidden:
            self.hidden[key] = set(map(RedisType, hidden))
        if self.dates.in_use:
            self.forget(key)  # what is known of it has to tell its deadline, too

    # Deadlines

    def set_deadlines(
        self, plan: Plan, found: Mapping[bytes, GoneDeadline], *, pins: bool = False
    ) -> None:
        """At the end of a commit: the server gets the deadlines of the keys that had one, or have one now. found: see
        `Dates.moves`. pins: it is not the end, and no key may be dropped before that.
        """
        for some in self.dates.moves(found):
            plan.set_deadlines(some, self.dates.offset_ms, pins=pins)
        if pins:
            self.dates.pinned()

    def deadlines_set(self, moves: Sequence[Move], reply: Any, delivered: Vector) -> None:
        """Take in the server's answer: what these keys have come to. delivered: all that is by now."""
        if isinstance(reply, list):
            until = dict(delivered)
            for move, found in zip(moves, reply, strict=True):
                if self.dates.moved(move, found, until):
                    self.forget(move.key)

    def forget_dated(self) -> None:
        """A commit is done: of keys that may be dropped at any time the server is asked again."""
        for key in self.dates.dropped():
            self.forget(key)
        self.dates.touched.clear()

    def advance(self, by_ms: int, plan: Plan) -> None:
        """Move the clock that deadlines are judged by."""
        words = advance(self.metadata_db, self.dates.offset_ms, by_ms)
        plan.script(*words)
        self.dates.advance(by_ms)

    def drop_orphans(self, stable: Vector, delivered: Vector, plan: Plan) -> None:
        """Forget deadlines without data that nothing can need any more."""
        if gone := self.dates.unneeded(stable, delivered):
            plan.metadata(Expect.INTEGER, b"HDEL", ORPHANS, *gone)

    # Repair

    def restore(self, key: bytes, plan: Plan) -> None:
        """Put back what a key is worth after somebody changed it past the gateway.

        A number is known exactly. Of all else only what is unstable is known here: what stood in its place is kept
        aside, and the key counts as `damaged` until another region has told what it is worth.
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
        self._numbers.emptied(key, kept=hidden)
        if hidden:
            self.unsettled[key] = None
        left = {t: log for t, log in self.log.key(key).items() if t not in hidden}
        self._put_survivors(key, left, plan)

    def with_orphan(self, key: bytes, contents: Contents) -> Contents:
        """What is read of a key, with the deadline that it has without data."""
        orphan = self.dates.orphans.get(key)
        return contents if contents or orphan is None else with_deadline(contents, orphan.at)

    def put(self, key: bytes, contents: Contents, plan: Plan) -> None:
        """The key becomes worth this, whatever its server holds, which is kept aside. It is in order from here on.

        The log stays: it never was wrong.
        """
        if key not in self.damaged:  # then it is aside already
            self._keep_foreign(key, plan)
        plan.on_key(key, Expect.INTEGER, b"DEL")
        self.drop_hidden(key, plan)
        self.types[key] = NOTHING
        self._numbers.emptied(key)
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
        """These slots of the key become worth this, whatever its server holds in them; those that `contents` lacks go.

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
        self._numbers.removed(key, type_, gone)
        if is_visible:
            self.types[key] = native.perhaps
        if key in self.hidden:
            self.unsettled[key] = None
        plan.at(home, command_of(native.remove, home.key, () if native.get is None else gone))

    def refuse_meanwhile(self, key: bytes, plan: Plan) -> None:
        """Refuse commands on the key until all of its slots are put right."""
        self.incomplete.add(key)
        self.refused.add(key)
        plan.metadata(Expect.INTEGER, b"SADD", metadata.INCOMPLETE, key)

    def in_order(self, key: bytes, plan: Plan) -> None:
        """Commands on the key are carried out again, if they were refused."""
        for refused, name in self._refused_by_name:
            if key in refused:
                refused.discard(key)
                plan.metadata(Expect.INTEGER, b"SREM", name, key)
        self.refused.discard(key)

    def dispute(self, key: bytes, plan: Plan) -> None:
        """Refuse commands on the key until it is put right."""
        self.disputed.add(key)
        self.refused.add(key)
        plan.metadata(Expect.INTEGER, b"SADD", metadata.DISPUTED, key)

    def _keep_slots(self, key: bytes, before: Contents, plan: Plan) -> None:
        """The same of some slots. Several values of one key may be kept like that; the first type has the room."""
        aside = metadata.FOREIGN_PREFIX + key
        for type_ in types_of(before)[:1]:
            native = TYPES[type_]
            plan.metadata(Expect.ANY, native.write, aside, *native.words(before[type_]))
            plan.metadata(Expect.INTEGER, b"EXPIRE", aside, b"%d" % _KEEP_FOREIGN_SECONDS)

    def _keep_foreign(self, key: bytes, plan: Plan) -> None:
        """Keep what the server holds there for a while, outside of the clients' sight."""
        aside = metadata.FOREIGN_PREFIX + key
        self._copy(key, aside, plan)
        plan.metadata(Expect.INTEGER, b"EXPIRE", aside, b"%d" % _KEEP_FOREIGN_SECONDS)

    def _copy(self, key: bytes, target: bytes, plan: Plan) -> None:
        """Have our own database have a copy of what is visible under a key."""
        home, db = home_of(key), b"%d" % self.metadata_db
        plan.look(home, command_of(b"COPY", home.key, (target, b"DB", db, b"REPLACE")))


def _counted(number: Number) -> Known:
    return number if isinstance(number, int) else Figures(text_of(number))


def _text(known: int | Figures) -> bytes:
    return b"%d" % known if isinstance(known, int) else known.text


def _fits(*numbers: Number) -> bool:
    """Whether a server counts with them."""
    return min(numbers) >= INT64_MIN and max(numbers) <= INT64_MAX


def _write(native: type[NativeType], home: Home, content: Content, plan: Plan) -> int:
    return plan.at(home, command_of(native.write, home.key, native.words(content)), native.written)
