"""From the answer to recorded commands to the next commit: their one message is derived now and stored by that commit.

The server has the values already, so the message only goes into the log. The commit that stores it also removes hidden
values and deadlines that it ends (docs/redis-recorded.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from crdtcast.adapters.redis.commit.plan import Expect, Plan
from crdtcast.adapters.redis.group.preimages import takes_away
from crdtcast.adapters.redis.recorded.derivation import (
    derived,
    derived_by_entry,
    event_of,
    row_of,
)
from crdtcast.adapters.redis.recorded.record import RecordEntry, ServerRecord
from crdtcast.adapters.redis.store import effects, metadata
from crdtcast.adapters.redis.store.contents import Contents
from crdtcast.adapters.redis.store.databases import db_of
from crdtcast.adapters.redis.store.effects import (
    Effect,
    EffectsEvent,
    EndsData,
    EndsKey,
    Inc,
    KillAll,
    KillSlots,
    One,
    Reg,
)
from crdtcast.adapters.redis.store.hiding import hidden_key
from crdtcast.adapters.redis.store.keyspace import Keyspace
from crdtcast.adapters.redis.store.slot_value import PRESENT
from crdtcast.adapters.redis.types import TYPES
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Tag
from crdtcast.engine import Engine, GroupEngine, ParkedOperation


def ended_by(event: EffectsEvent) -> Iterator[bytes]:
    """Keys that the recorded commands ended, with or without data: their deadlines without data end, too."""
    for effect in event.effects:
        if isinstance(effect, EndsKey):
            yield effect.key


class Derived(NamedTuple):
    """What the next commit has to do for a record. tag: None if it has no effects, or has to be parked."""

    record: ServerRecord
    tag: Tag | None
    payload: bytes
    event: EffectsEvent
    by_entry: Sequence[Sequence[Effect]] = ()
    """The effects of each entry of the record."""
    hidden: tuple[bytes, ...] = ()
    """Where the hidden values of its keys are that it has ended: they are not needed any more."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """The message that it stores, if any."""
        if self.tag is None:
            return ()
        return (Message(self.tag.dot, self.tag.context, self.payload),)

    @property
    def sent(self) -> tuple[tuple[Tag, bytes, EffectsEvent], ...]:
        """The same in the form of `Commit.sent`."""
        return () if self.tag is None else ((self.tag, self.payload, self.event),)


def message_of(record: ServerRecord) -> Message | None:
    """The one message of a record; None if it has no effects."""
    event = derived(record)
    if not event.effects:
        return None
    return Message(record.dot, record.context, effects.encode(*event))


class ParkedRecord(NamedTuple):
    """The message of a record that its incarnation can no longer send.

    taken: what its writes removed or overwrote, by place of the effect; None if the record does not say.
    """

    operation: ParkedOperation
    taken: Mapping[int, Contents | None]

    @classmethod
    def of(cls, record: ServerRecord) -> ParkedRecord | None:
        """From a record; None if that has no effects."""
        message = message_of(record)
        if message is None:
            return None
        taken = _taken(record, derived_by_entry(record), None)
        return cls(ParkedOperation(message.dot, 0, message.payload), dict(taken))


class RecordedWork:
    """What one gateway has recorded but not stored yet."""

    def __init__(self) -> None:
        self.pending: Derived | None = None
        """Derived, while the record is still in the server."""
        self.parked: ParkedRecord | None = None
        """Of an incarnation that had ended by the time of the answer: it cannot send."""

    def resume(
        self, engine: Engine | GroupEngine, keyspace: Keyspace, record: ServerRecord | None
    ) -> None:
        """Continue from what the server holds. A former process may have sent the message of its record already."""
        self.pending = self.parked = None
        if record is not None and _sends_nothing(engine):
            self.parked = ParkedRecord.of(record)
        elif record is not None:
            engine.reserve(record.context)
            self.answered(engine, keyspace, record)
        applied: list[Effect] = [] if self.pending is None else self.pending.event.effects
        for effect in applied:
            if not isinstance(effect, KillAll):
                keyspace.forget(effect.key)  # the server may have dropped it since

    def answered(
        self, engine: Engine | GroupEngine, keyspace: Keyspace, record: ServerRecord | None
    ) -> None:
        """The server has executed the commands of a reserved message. record: None if nothing was written."""
        if record is None:
            engine.give_back()
            return
        by_entry = derived_by_entry(record)
        event = event_of(record, by_entry)
        if not event.effects:
            engine.give_back()
            self.pending = Derived(record, None, b"", event)
            return
        payload = effects.encode(*event)
        if _sends_nothing(engine):
            engine.give_back()
            self.parked = ParkedRecord.of(record)
            return
        tag = engine.use(payload)
        place, apply, executed = 0, keyspace.log.apply, keyspace.executed
        for entry, found in zip(record.entries, by_entry, strict=True):
            for effect in found:
                apply(effect, tag, event.timestamp, place)
                place += 1
                executed(effect)
                if type(effect) is Inc:
                    keyspace.counted(effect, entry.reply if entry.before is None else entry.before)
        hidden: tuple[bytes, ...] = ()
        if keyspace.hidden:
            hidden = tuple(
                hidden_key(type_, effect.key)
                for effect in event.effects
                if isinstance(effect, EndsData)
                for type_ in keyspace.hidden.pop(effect.key, ())
            )
        self.pending = Derived(record, tag, payload, event, by_entry, hidden)

    @property
    def count(self) -> int:
        """Number of messages that the server has as a record only: 0 or 1."""
        pending = self.pending
        return 0 if pending is None or pending.tag is None else 1

    def take(self) -> Derived | None:
        """Take what is pending; the next commit, which begins now, must store it."""
        pending, self.pending = self.pending, None
        return pending


def _sends_nothing(engine: Engine | GroupEngine) -> bool:
    """Whether its incarnation has ended, or ends as soon as others know."""
    return isinstance(engine, GroupEngine) and not engine.standing.can_send


def store(pending: Derived, keyspace: Keyspace, plan: Plan) -> None:
    """The first step of a commit for a record: replace it by its message, and end what the record has ended."""
    plan.metadata(Expect.INTEGER, b"DEL", metadata.RECORD)
    if pending.hidden:
        plan.metadata(Expect.INTEGER, b"DEL", *pending.hidden)
    for key in ended_by(pending.event):
        keyspace.ended(key)
    aside = keyspace.aside
    if aside is None or pending.tag is None:
        return
    for place, contents in _taken(pending.record, pending.by_entry, pending.hidden):
        aside.executed(pending.tag.dot, place, contents, plan)


def _taken(
    record: ServerRecord,
    by_entry: Iterable[Iterable[Effect]],
    hidden: Collection[bytes] | None,
) -> Iterator[tuple[int, Contents | None]]:
    """Places of the effects that may have removed something, with what they removed; None if the record does not say.

    by_entry: the effects of each entry.
    hidden: where the hidden values are that it has ended; None if that is not known.
    """
    place, flushed = 0, set[int | None]()
    for entry, found in zip(record.entries, by_entry, strict=True):
        gone: set[bytes] | None = None
        for effect in found:
            if type(effect) is One:
                place += 1
                continue
            gone = set(entry.fresh) if gone is None else gone
            if isinstance(effect, KillAll):
                flushed.add(effect.db)
            if takes_away(effect):
                is_empty = bool(flushed) and not flushed.isdisjoint((None, db_of(effect.key)))
                is_known = is_empty or effect.key in gone
                yield place, {} if is_known else _taken_by(effect, entry, hidden)
            if isinstance(effect, EndsData):
                gone.add(effect.key)
            place += 1


def _taken_by(
    effect: EndsData | KillSlots | Reg,
    entry: RecordEntry,
    hidden: Collection[bytes] | None,
) -> Contents | None:
    row, _ = row_of(entry)
    if row.took is not None:
        is_whole = not isinstance(effect, KillSlots | Reg)
        if is_whole and (hidden is None or any(hidden_key(t, effect.key) in hidden for t in TYPES)):
            return None
        return row.took(entry.words, entry.reply, entry.before)
    if not isinstance(effect, KillSlots) or TYPES[effect.type].valued:
        return None
    if isinstance(entry.reply, int) and entry.reply != len(effect.slots):
        return None
    return {effect.type: dict.fromkeys(effect.slots, PRESENT)}
