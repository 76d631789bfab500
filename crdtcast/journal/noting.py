"""An engine that notes what happens to it, in order, for a journal; and what it notes at one instant."""

from collections.abc import Collection
from dataclasses import replace
from typing import ClassVar

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import PROGRAM, GroupState, Parked, Span
from crdtcast.engine.store import Store, Stored
from crdtcast.engine.views import Change
from crdtcast.journal.saved import Batch, Happened, Life
from crdtcast.journal.spill import Spill, SpillingEngine, SpillingStore


class NotingStore(SpillingStore):
    """Notes what comes in (delivered or sent) and what goes (reported stable). Its engine adds what is decided."""

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


class NotingEngine(SpillingEngine):
    """A `GroupEngine` with a journal."""

    store_type: ClassVar[type[Store]] = NotingStore

    _store: NotingStore

    def __init__(self, me: str, state: GroupState, reads: Span = PROGRAM) -> None:
        super().__init__(me, state, reads)
        self._store.happened.clear()  # what was restored is in the journal

    def decided(self, change: Change) -> None:
        """See `MembershipChanges`: noted in the order of what happens, in the place of `take_decisions`."""
        super().decided(change)
        self._store.happened.append(self._decisions.pop())

    def take_happened(self) -> list[Happened]:
        """Everything since the last call."""
        happened, self._store.happened = self._store.happened, []
        return happened

    def renounce(self) -> None:
        """This incarnation is over: its journal, or a peer, says that it is not all there."""
        self._evicted = True


class Changes:
    """What is different since the last look at an engine, and at what its member keeps beside it."""

    def __init__(self, engine: NotingEngine, parked: Parked | None, life: Life) -> None:
        engine.take_happened()
        self._engine = engine
        self._context = engine.context
        self._outline = engine.outline()
        self._parked = parked
        self._life = life

    def take(self, parked: Parked | None, life: Life) -> Batch:
        """Everything since the last call."""
        engine = self._engine
        happened = engine.take_happened()
        context = engine.context if happened else self._context
        outline = engine.outline()
        changed = _members(outline) != _members(self._outline)
        all_parked, copies = _difference(self._parked, parked)
        batch = Batch(
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


def _members(outline: GroupState) -> tuple[object, ...]:
    """All of it but what follows from the messages."""
    rest = replace(outline, counter=0, vector={}, context=(), stable={})
    return rest, outline.vector.keys()


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
