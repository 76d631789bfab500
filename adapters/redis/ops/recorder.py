"""Writes a gateway's event log, with vectors and digests of objects that make logs comparable.

A line is written after its commit (where members come and go: after that is synced), so no line reports an event that
did not happen. A restart compares log and server, and writes missing lines. The vector W of an object may be any with
"operations on the object" <= W <= "delivered here". Equal (object, W) means the same operations, so it must mean the
same digest. So the memory of vectors may be trimmed at any time by raising `floor`.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from crdtcast.adapters.redis.compare.digests import key_digest
from crdtcast.adapters.redis.deadlines.index import MARGIN_MS
from crdtcast.adapters.redis.ops.held_log import HeldLog
from crdtcast.adapters.redis.store.contents import (
    Contents,
    KeyRead,
    deadline_of,
    types_of,
)
from crdtcast.adapters.redis.store.databases import db_of, home_of, object_of, select
from crdtcast.adapters.redis.store.effects import (
    WHOLE,
    Effect,
    EffectsEvent,
    KeyEffect,
    KillAll,
    RedisType,
)
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.slot_value import Figures
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.native import NOTHING
from crdtcast.adapters.redis.types.strings import String
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Tag, Vector, covers, merge_into
from crdtcast.eventlog.group_log import GroupLog
from crdtcast.eventlog.writer import EventLog

if TYPE_CHECKING:
    from crdtcast.adapters.redis.commit.round import Commit
    from crdtcast.adapters.redis.recorded.answer import Derived

Read = tuple[list[bytes], Callable[[object], None]]

_KEY: Callable[[KeyEffect], bytes] = attrgetter("key")
_DOT: Callable[[Tag | Message], Dot] = attrgetter("dot")
_REMEMBERED_OBJECTS = 100_000
_RECENT = 1_000
"""Messages of which it is not noted yet which objects they have touched."""
_OBJECTS_PER_ROUND = 200
_LARGEST = 5_000
"""Values with more slots (a string: bytes) are digested on VERIFY only: otherwise each quiet time would read them."""


class Recorder:
    """Records the events of commits. Without an event log it only counts.

    clock: seconds, monotonic.
    quiet_seconds: an object gets a STATE line after so long without an operation on it.
    first_of: the message of a former incarnation that is sent again as this one.
    """

    def __init__(
        self,
        log: EventLog | None,
        *,
        clock: Callable[[], float],
        metadata_db: int,
        store_bytes: Callable[[], tuple[int, int]],
        first_of: Callable[[Dot], Dot | None] = lambda dot: None,
        quiet_seconds: float = 0.3,
    ) -> None:
        self.log: EventLog | None = log
        self.group: GroupLog | None = None
        self.first_of = first_of
        self.keyspace: Keyspace = Keyspace(metadata_db)
        self.metadata_db = metadata_db
        self._clock = clock
        self._store_bytes = store_bytes
        self._quiet = quiet_seconds
        self._me = ""
        self._floor: dict[str, int] = {}
        self._vectors: dict[bytes, dict[str, int]] = {}
        self._touched: OrderedDict[bytes, float] = OrderedDict()
        """In order of the last touch; the oldest goes first. A plain dict would skip all removed ones each time."""
        self._small: dict[bytes, RedisType | None] = {}
        """Keys to read as a whole, by the type that they show, if that is known."""
        self._recent: list[tuple[Sequence[Effect], Dot, float]] = []
        """Effects that are not in `_vectors` and `_touched` yet, with their message and the time: see `_catch_up`."""
        self._derived: Sequence[Tag] = ()
        """Only for fixed members: messages without a line that were derived from the commit just answered."""
        self._forgettable: deque[tuple[int, list[Dot]]] = deque()
        """Stable messages by commit, until their lines are written: a restart needs them to write these lines."""
        self._size_before = 0
        self._told_size = -1.0

    # Start and restart

    def begin(
        self,
        log: EventLog | None,
        keyspace: Keyspace,
        *,
        incarnation: str,
        members: Iterable[str],
        vector: Vector,
        stable: Vector,
        stored: Sequence[Message],
        reported: Iterable[Dot],
        level: int,
        derived: Derived | None = None,
        group: GroupLog | None = None,
    ) -> None:
        """Continue from what the server holds: write the lines that the last commit lacks, then START.

        reported: messages that the last commit reported stable and the log has not.
        stored: the messages that are still in the server, stable ones among them, in the order of their delivery.
        level: the format level in force.
        derived: from a record in the server. Its message is not among the stored ones, and may leave at once.
        group: only where members come and go.
        """
        self.log, self.keyspace, self.group = log, keyspace, group
        self._me = incarnation
        self._floor = dict(vector)
        self._vectors.clear()
        self._touched.clear()
        self._recent.clear()
        self._derived = ()
        late = [message.dot for message in stored if covers(stable, message.dot)]
        number = log.number if isinstance(log, HeldLog) else 0
        self._forgettable = deque([(number, late)] if late else [])
        if log is None:
            return
        if log.seq and (group is None or log.view is not None):
            if group is not None:
                group.so_far()
            self._tell_missing(log, incarnation, reported, stored)
            for dot in late if group is not None else ():
                if not covers(log.told_stable, dot):
                    log.stable(dot)
        sent = () if derived is None else [tag.dot for tag, _, _ in derived.sent]
        if group is None:
            was_told = {dot.origin: dot.counter for dot in sent if covers(log.vector, dot)}
            log.start({**vector, **was_told}, members, stable, level)
        else:
            group.start(vector.get(incarnation, 0))
        if derived is not None:
            self.derived(derived)
            self._tell_derived()
        log.flush()

    def complete(
        self,
        log: EventLog,
        *,
        incarnation: str,
        reported: Iterable[Dot],
        stored: Sequence[Message],
    ) -> None:
        """Only for fixed members, before `begin`: write the lines that the log of an ended incarnation lacks. The next
        one sends its messages, so other members have them. `begin` documents the arguments.
        """
        if log.seq:
            self.log, self.group = log, None
            self._tell_missing(log, incarnation, reported, stored)
            log.flush()

    def _tell_missing(
        self,
        log: EventLog,
        incarnation: str,
        reported: Iterable[Dot],
        stored: Sequence[Message],
    ) -> None:
        for dot in reported:
            if covers(log.vector, dot):
                log.stable(dot)
        for message in stored:
            if not covers(log.vector, message.dot):
                self._tell(message, incarnation)

    def _tell(self, message: Message, me: str) -> None:
        assert self.log is not None
        dot = message.dot
        first = self.first_of(dot) if dot[0] == me else None
        if self.group is not None:
            self.group.happened(message, reissues=first)
        elif dot[0] == me:
            self.log.send(Tag(dot, message.context), reissues=first)
        else:
            self.log.deliver(dot)

    # The committer's observer

    def gathering(self, commit: Commit, number: int) -> None:
        """Write what the engine has issued between two commits, and what has become stable."""
        group = self.group
        if group is not None and isinstance(self.log, HeldLog):
            self.log.number = number
            for message in () if commit.derived is None else commit.derived.messages:
                self._tell(message, message.dot.origin)
            if commit.issued or group.has_news:
                group.issued(commit.issued)
            if commit.stable:
                group.stable(commit.stable)

    def prepared(self, commit: Commit) -> None:
        """A commit is about to be sent: the engine knows exactly what the commit contains."""
        group = self.group
        if group is None or self.log is None:
            return
        if commit.issued or commit.derived is not None or commit.unaware:
            # Some of its messages are told already, or not in this order.
            for message in commit.stored:
                if not covers(self.log.vector, message.dot):
                    self._tell(message, self._me)
        else:
            if commit.received:
                group.delivered_all(commit.received)
            for tag, _, _ in commit.sent:
                group.sent_too(tag, self.first_of(tag.dot))
        if commit.changes_group:
            group.issued(())

    def synced(self, number: int) -> None:
        """The commits up to this one are synced: their lines may be written."""
        if isinstance(self.log, HeldLog):
            self.log.synced(number)

    @property
    def has_forgettable(self) -> bool:
        """Whether the server holds stable messages that a commit may remove now."""
        queue = self._forgettable
        return bool(queue) and queue[0][0] <= self._written

    @property
    def _written(self) -> float:
        return self.log.written if isinstance(self.log, HeldLog) else math.inf

    def forgettable(self, dots: list[Dot]) -> list[Dot]:
        """Messages that the server may forget with the commit being prepared. dots: those that it makes stable."""
        queue = self._forgettable
        if not (dots or queue):
            return dots
        if dots and self.group is None:
            self.flush()  # a restart writes the lines of messages that the server still holds
        if isinstance(self.log, HeldLog):
            if dots:
                queue.append((self.log.number, dots))
            dots = []
        while queue and queue[0][0] <= self._written:
            dots = [*queue.popleft()[1], *dots]
        return dots

    def committed(self, commit: Commit, number: int) -> None:
        """The commit was applied: write notices, deliveries and own messages, in the order of their preparation."""
        log = self.log
        if log is None:
            return
        if isinstance(log, HeldLog):
            log.number = number  # a commit of reads only has no number
        now = self._clock()
        told = self.group is not None
        sent = commit.sent
        if not told and commit.stable:
            log.stable_all(list(map(_DOT, commit.stable)))
        if commit.unaware:
            self._tell_sent(sent[: commit.unaware], now)
            sent = sent[commit.unaware :]
        if commit.deliveries:
            if not told:
                log.deliver_all(list(map(_DOT, commit.received)))
            for delivery, event in commit.deliveries:
                self._recent.append((event.effects, delivery.tag.dot, now))
        self._tell_sent(sent, now)
        if self._derived:
            self._tell_derived()
        if len(self._recent) > _RECENT:
            self._catch_up()
        if commit.stable:
            self._tell_size(now, commit.bytes_before)
            if not told:
                log.flush()  # the server no longer holds these

    def flush(self) -> None:
        """Write the lines. To be called before any message that they are about leaves the process."""
        if self.log is not None and self.log.has_unwritten:
            self.log.flush()

    def derived(self, record: Derived) -> None:
        """The server has executed this: the state of its keys must not be reported without its message."""
        now = self._clock()
        for tag, _, event in record.sent if self.log is not None else ():
            self._recent.append((event.effects, tag.dot, now))
        if self.group is None:
            self._derived = [tag for tag, _, _ in record.sent]

    def _tell_derived(self) -> None:
        """With fixed members a derived message leaves before the commit that stores it, so its line does not wait for
        that: if the server loses the record, nothing else shows that it was sent.
        """
        derived, self._derived = self._derived, ()
        log = self.log
        for tag in derived:
            if log is not None and not covers(log.vector, tag.dot):
                log.send(tag)

    def _tell_sent(self, sent: Iterable[tuple[Tag, bytes, EffectsEvent]], now: float) -> None:
        for tag, _, event in sent:
            if self.group is None and self.log is not None:
                self.log.send(tag)
            self._recent.append((event.effects, tag.dot, now))

    def _catch_up(self) -> None:
        """Note what the last commits have touched. It waits until that matters, not to take up the time of writes."""
        recent, self._recent = self._recent, []
        vectors, touched = self._vectors, self._touched
        for effects, dot, now in recent:
            if len(effects) != 1 or isinstance(effect := effects[0], KillAll):
                self._touch(effects, dot, now)
                continue
            key = effect.key
            vector = vectors.get(key)
            if vector is None:
                vector = vectors[key] = dict(self._floor)
            vector[dot[0]] = dot[1]
            touched[key] = now
            touched.move_to_end(key)
        while len(self._touched) > _REMEMBERED_OBJECTS:  # more than can be reported
            self._touched.popitem(last=False)

    def _tell_size(self, now: float, before: int) -> None:
        """Messages were collected as stable. before: bytes of those that were kept until then."""
        size, entries = self._store_bytes()
        self._size_before = max(self._size_before, before, size)
        if self.log is not None and (entries == 0 or now - self._told_size >= 1):
            self.log.gc(self._size_before, size, entries)
            self._told_size, self._size_before = now, size

    def _touch_all(self, db: int | None, dot: Dot, now: float) -> None:
        """A message on all keys, or those of a database. STATE lines show for the last touched ones that they are gone.

        The floor counts for unknown keys: a vector may be higher than the operations on an object.
        """
        for vector in (self._floor, *self._vectors.values()):
            vector[dot.origin] = dot.counter
        last = (key for key in reversed(self._vectors) if db is None or db == db_of(key))
        for key in list(islice(last, _OBJECTS_PER_ROUND)):
            self._touched[key] = now
            self._touched.move_to_end(key)

    def _touch(self, applied: Sequence[Effect], dot: Dot, now: float) -> None:
        of_keys: Sequence[KeyEffect] = applied  # type: ignore[assignment]  # but for rare KillAlls
        if KillAll in map(type, applied):
            for effect in applied:
                if isinstance(effect, KillAll):
                    self._touch_all(effect.db, dot, now)
            of_keys = [effect for effect in applied if not isinstance(effect, KillAll)]
        origin, counter = dot
        vectors, touched = self._vectors, self._touched
        keys = dict.fromkeys(map(_KEY, of_keys), now)
        if not vectors.keys() >= keys.keys():
            for key in keys:
                if key not in vectors:
                    vectors[key] = dict(self._floor)
        for vector in map(vectors.__getitem__, keys):
            vector[origin] = counter
        touched.update(keys)
        deque(map(touched.move_to_end, keys), maxlen=0)

    # Digests of objects that have been quiet

    def reads(self) -> list[Read]:
        """Report objects that have been quiet for a while; returns the reads that this needs."""
        if self._recent:
            self._catch_up()
        if self.log is None or not (self._touched or self._small):
            return []
        ripe = self._clock() - self._quiet
        small, self._small = self._small, {}
        wanted = [read for key, type_ in small.items() for read in self._all_of(key, type_)]
        for key, touched in list(islice(self._touched.items(), _OBJECTS_PER_ROUND)):
            if touched > ripe:
                break
            del self._touched[key]
            wanted += self._digest(key)
        self._forget_vectors()
        return wanted

    def touch_again(self, key: bytes) -> None:
        """Report this key, too, when it has been quiet."""
        if self.log is not None:
            self._catch_up()
            self._touched.setdefault(key, self._clock())

    def _digest(self, key: bytes) -> list[Read]:
        known = self.keyspace.known(key)
        if key in self.keyspace.refused:
            return []  # reported after its repair
        if key in self.keyspace.hidden:
            return self._all_of(key)
        if isinstance(known, int):
            self.tell(key, {String.type: {WHOLE: b"%d" % known}})
        elif isinstance(known, Figures):
            self.tell(key, {String.type: {WHOLE: known.text}})
        elif known is NOTHING:
            self.tell(key, {})
        elif known is not None and known.type is not None:
            home, type_ = home_of(key), known.type
            size = TYPES[type_].size
            read: Read = ([size, home.key], lambda reply: self._sized(key, type_, reply))
            if not home.db:
                return [read]
            return [([*select(home.db)], _ignore), read, ([*select(0)], _ignore)]
        return []

    def _sized(self, key: bytes, type_: RedisType, size: object) -> None:
        if isinstance(size, int) and size <= _LARGEST:
            self._small[key] = type_

    def _all_of(self, key: bytes, visible: RedisType | None = None) -> list[Read]:
        """The reads of all that a key holds. visible: the type that it shows, as far as is known."""
        hidden = frozenset(self.keyspace.hidden.get(key, ()))
        read = KeyRead(key, hidden, self.keyspace.exact, self.metadata_db, visible=visible)
        replies: list[object] = []

        def tell(reply: object) -> None:
            replies.append(reply)
            if hidden != frozenset(self.keyspace.hidden.get(key, ())):
                self.touch_again(key)  # the commit with these reads has changed what it hides
            elif len(replies) == len(read.commands):
                if read.is_told(replies):
                    contents = read.contents(replies)
                    if self._may_tell(contents, hidden):
                        self.tell(key, contents)
                elif visible is not None:
                    self._small[key] = None  # it has another type

        return [(command, tell) for command in read.commands]

    def _may_tell(self, contents: Contents, hidden: Collection[RedisType]) -> bool:
        """Whether no server can have dropped the key at its deadline, even if its clock differs."""
        is_near = deadline_of(contents) <= self.keyspace.dates.now + MARGIN_MS
        return not is_near and not (hidden and hidden == set(types_of(contents)))

    def vector_of(self, key: bytes) -> Vector | None:
        """The vector of a key's value now; None without an event log, which does not need it."""
        return None if self.log is None else dict(self._vector_of(key))

    def _vector_of(self, key: bytes) -> Vector:
        self._catch_up()
        return self._vectors.get(key, self._floor)

    def tell(self, key: bytes, contents: Contents) -> None:
        """Write a STATE line for a key's value now."""
        if self.log is not None:
            self.tell_digest(key, self._vector_of(key), key_digest(key, contents))

    def tell_digest(self, key: bytes, vector: Vector | None, digest: str) -> None:
        """Write a STATE line for its value at another instant. vector: by `vector_of` at that instant."""
        if self.log is not None and vector is not None:
            self.log.state(object_of(key), vector, digest)

    def _forget_vectors(self) -> None:
        surplus = len(self._vectors) - _REMEMBERED_OBJECTS
        if surplus <= _REMEMBERED_OBJECTS // 4:  # the scan of all is too slow for each commit
            return
        for key in [key for key in self._vectors if key not in self._touched][:surplus]:
            merge_into(self._floor, self._vectors.pop(key))


def _ignore(_: object) -> None:
    """Ignore the reply to a SELECT."""
