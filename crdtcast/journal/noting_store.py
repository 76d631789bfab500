"""A store that notes, for a journal, what happens to its engine, in order; and what has changed since the last look."""

from collections.abc import Collection
from dataclasses import replace

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import PROGRAM, GroupEngine, GroupState, Parked, Span
from crdtcast.engine.store import Stored
from crdtcast.engine.views import Decided
from crdtcast.journal.saved import Happened, JournalBatch, Life
from crdtcast.journal.spill import Spill, SpillingStore


class NotingStore(SpillingStore):
    """Notes messages that are delivered or sent, messages that are reported stable, and decisions."""

    __slots__ = ("happened",)

    def __init__(self, spill: Spill | None = None) -> None:
        super().__init__(spill)
        self.happened: list[Happened] = []

    def add(self, message: Message, tag: Tag, tick: int) -> Stored:
        self.happened.append(message)
        return super().add(message, tag, tick)

    def remove(self, reported: Collection[Stored]) -> None:
        self.happened.append(tuple([stored.message.dot for stored in reported]))
        super().remove(reported)

    def note(self, decided: object) -> bool:
        assert isinstance(decided, Decided)
        self.happened.append(decided)
        return True

    def take_happened(self) -> list[Happened]:
        """All notes since the last call."""
        happened, self.happened = self.happened, []
        return happened


def noted(
    me: str, state: GroupState, reads: Span = PROGRAM, spill: Spill | None = None
) -> tuple[GroupEngine, NotingStore]:
    """An engine that continues from a state, and its store, which notes what happens from now on."""
    store = NotingStore(spill)
    engine = GroupEngine(me, state, reads, store)
    store.take_happened()  # what was restored is in the journal, or in the next snapshot
    return engine, store


class Changes:
    """What has changed in an engine, in its store and in its member's other data since the last look."""

    def __init__(
        self, engine: GroupEngine, store: NotingStore, parked: Parked | None, life: Life
    ) -> None:
        store.take_happened()
        self._engine = engine
        self._store = store
        self._context = engine.context
        self._outline = engine.outline()
        self._parked = parked
        self._life = life

    def take(self, parked: Parked | None, life: Life) -> JournalBatch:
        """All changes since the last call."""
        engine = self._engine
        happened = self._store.take_happened()
        context = engine.context if happened else self._context
        before = self._outline
        changed = not engine.still_has(before) or engine.vector.keys() != before.vector.keys()
        outline = engine.outline() if changed else before
        all_parked, copies = _difference(self._parked, parked)
        batch = JournalBatch(
            happened,
            context if context != self._context else None,
            outline if changed else None,
            life if life != self._life else None,
            all_parked,
            copies,
        )
        self._context, self._parked, self._life = context, parked, life
        if changed:
            self._outline = outline
        return batch


def _difference(
    before: Parked | None, now: Parked | None
) -> tuple[tuple[Parked | None] | None, dict[Dot, tuple[Dot, ...]]]:
    if now is before:
        return None, {}
    if now is None or before is None or now.operations is not before.operations:
        return (now,), {}
    if replace(now, copies=before.copies) != before:
        return (now,), {}
    return None, {
        dot: copies for dot, copies in now.copies.items() if before.copies.get(dot) is not copies
    }
