"""Engines of the vector family with one rule put back as printed, or left out. What each is for: docs/baselines.md."""

from typing import Any

from benchmarks.baselines.cbcast import (
    Acknowledgement,
    CbcastEngine,
    CbcastMessage,
    StabilityNotice,
)
from benchmarks.baselines.delay_queue import DelayQueue, advance
from benchmarks.baselines.ordering import DelayQueueEngine
from benchmarks.baselines.stable_map import StableMap
from benchmarks.baselines.twolevel import TwoLevelEngine, TwoLevelMessage
from benchmarks.baselines.vectors import VectorEngine, VectorMessage
from crdtcast.causality.messages import Transmit
from crdtcast.causality.tags import Dot, Tag

# Vectors (thesis, Algorithms 2, 3, 6 and 7)


class _SwappedQueue(DelayQueue[Any]):
    def release(self, ordered: list[int]) -> list[tuple[int, Any]]:
        entries, released = self.entries, []
        read = kept = 0
        while True:
            if read >= len(entries):
                if kept >= read:
                    return released
                del entries[kept:]
                read = kept = 0
            elif advance(ordered, entries[read][0], entries[read][1].vector):
                released.append(entries[read])
                read += 1
            else:
                entries[read] = entries[kept]
                kept += 1
                read += 1


class SwappedCompaction(VectorEngine):
    """Algorithm 3, line 38: what stays is moved from where it should go to where it is."""

    queue_type = _SwappedQueue


class ReceivedCounter(VectorEngine):
    """Algorithm 3, lines 13 and 14: R counts messages, so the first to come is taken for the first sent."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._received = [0] * self._size

    def _arrived(self, position: int, message: VectorMessage) -> None:
        if self._received[position] < message.vector[position]:
            self._received[position] += 1
            super()._arrived(position, message)


class _PrintedMatrix:
    """Algorithm 7, `calculateSV`: the own row is in the minimum, Min says where each column's least entry is."""

    def __init__(self, own: int, size: int) -> None:
        self.rows = [(0,) * size] * size
        self.stable = [0] * size
        self.least = [0] * size
        self.own = own
        self.entries = 0

    def row(self, position: int) -> tuple[int, ...]:
        return self.rows[position]

    def adopt(self, position: int, row: tuple[int, ...]) -> list[tuple[int, int, int]]:
        self.rows[position] = row
        rose = []
        for column, place in enumerate(self.least):
            if place == position:
                old = self.stable[column]
                values = [other[column] for other in self.rows]
                self.stable[column] = min(values)
                self.least[column] = values.index(min(values))
                if self.stable[column] > old:
                    rose.append((column, old, self.stable[column]))
        return rose


class OwnRowInMinimum(VectorEngine):
    """Algorithm 7, lines 33, 38 and 74: the own row changes with every delivery, but is looked at only on a send."""

    matrix_type = _PrintedMatrix  # type: ignore[assignment]

    def _own_row(self) -> tuple[int, ...]:
        return tuple(self._delivered)

    def _adopt(self, position: int, row: tuple[int, ...]) -> None:
        self._matrix.rows[self._own] = self._own_row()  # type: ignore[attr-defined]
        super()._adopt(position, row)

    def _note_sent(self, message: VectorMessage, tag: Tag) -> None:
        super()._note_sent(message, tag)
        self._adopt(self._own, self._own_row())


class DirectNotCounted(OwnRowInMinimum):
    """Algorithm 3, line 16, and 7, line 27: a message delivered at once does not advance the middleware's V."""

    def _own_row(self) -> tuple[int, ...]:
        return tuple(self._ordered)

    def _arrived(self, position: int, message: VectorMessage) -> None:
        if message.vector[position] <= self._ordered[position] or message.dot in self._queue.dots:
            return
        if advance(self._ordered, position, message.vector):
            self._ordered[position] -= 1
            self._ready.append((position, message))
            self._ready.extend(self._queue.release(self._ordered))
        else:
            self._queue.add(position, message)


class _LastOnly(StableMap):
    def release(self, rose: Any) -> None:
        super().release([(position, new - 1, new) for position, _, new in rose])


class OneStep(VectorEngine):
    """Algorithm 7, line 41, as the example in the text reads it: of a jump only the last dot is stable."""

    map_type = _LastOnly


class OnlyRemoteRemembered(VectorEngine):
    """Algorithm 7, lines 34 to 37: own messages are not put into SMap."""

    def _note_sent(self, message: VectorMessage, tag: Tag) -> None:
        self._untold = False


class _Restricted(StableMap):
    def release(self, rose: Any) -> None:
        before = dict(self._waiting)
        super().release(rose)
        self._waiting = {dot: before[dot] for dot in before.keys() - self._waiting.keys()}


class MapRestricted(VectorEngine):
    """Algorithm 7, line 71: SMap is restricted to what has become stable, where it should lose that."""

    map_type = _Restricted


class OnlyMessages(VectorEngine):
    """5.1.1: vectors travel with messages alone, so a member that only listens acknowledges nothing."""

    def tick(self) -> None:
        pass


class EagerVectors(VectorEngine):
    """A vector counts at once, although messages that its sender sent before are still on their way."""

    def _receive_control(self, position: int, message: Any) -> None:
        super()._receive_control(position, message)
        self._adopt(position, tuple(map(min, message.vector, self._delivered)))

    def _adopt(self, position: int, row: tuple[int, ...]) -> None:
        super()._adopt(position, tuple(map(max, row, self._matrix.row(position))))


# Two-level


class InternalTags(TwoLevelEngine):
    """3.6: the middleware's vector is given to the application as the tag."""

    def _application_vector(self, message: TwoLevelMessage) -> tuple[int, ...]:
        return message.vector


class MiddlewareStability(TwoLevelEngine):
    """Stability from the middleware's vectors, which acknowledge what the application has not seen."""

    def _note_delivered(self, position: int, message: TwoLevelMessage, tag: Tag) -> None:
        super()._note_delivered(position, message, tag)
        self._adopt(position, message.vector)

    def _adopt(self, position: int, row: tuple[int, ...]) -> None:
        super()._adopt(position, tuple(map(max, row, self._matrix.row(position))))


# CBCAST


class NeverDequeued(CbcastEngine):
    """Algorithm 1: what is enqueued is never looked at again."""

    def _arrived(self, position: int, message: CbcastMessage) -> None:
        if advance(self._ordered, position, message.vector):
            self._ready.append((position, message))
        elif message.vector[position] > self._ordered[position]:
            self._queue.add(position, message)


class DuplicatesQueued(CbcastEngine):
    """Algorithm 1, lines 10 to 14: whatever is not the next message is enqueued, a second copy too."""

    def _arrived(self, position: int, message: CbcastMessage) -> None:
        if advance(self._ordered, position, message.vector):
            self._ready.append((position, message))
            self._ready.extend(self._queue.release(self._ordered))
        elif message.dot not in self._queue.dots:
            self._queue.add(position, message)


class InternalTimestamps(CbcastEngine):
    """A timestamp covers what the middleware has ordered, though its application has not taken it."""

    def _stamp(self, dot: Dot, payload: bytes) -> CbcastMessage:
        return CbcastMessage(dot, tuple(self._ordered), self._own_stable, payload)


class ReceptionAcknowledged(CbcastEngine):
    """Message stability of the paper: a message is acknowledged when it is received, not when it is delivered."""

    def _arrived(self, position: int, message: CbcastMessage) -> None:
        super()._arrived(position, message)
        for origin, counter in enumerate(self._ordered):
            if counter > self._told[origin] and origin != self._own:
                self._told[origin] = counter
                acknowledgement = Acknowledgement(counter, self._delivered[self._own])
                self._outbox.append(Transmit(self._positions.members[origin], acknowledgement))


class EagerAcknowledgements(CbcastEngine):
    """An acknowledgement counts at once, although messages that its sender sent before are still on their way."""

    def _take_acknowledgement(self, position: int, acknowledgement: Acknowledgement) -> None:
        self._acknowledge(position, acknowledgement.counter)


class NoticeWithoutVector(CbcastEngine):
    """The paper's stability message, the number alone: it counts as soon as the message it names is delivered."""

    def _take_notice(self, position: int, notice: StabilityNotice) -> None:
        if notice.stable <= self._delivered[position]:
            self._announce(position, notice.stable)
        else:
            super()._take_notice(position, notice)


class OnlyTheSendersOwn(CbcastEngine):
    """A notice concerns the messages of its sender alone, so one can be stable before what it depends on."""

    def _announce(self, position: int, counter: int) -> None:
        old = self._stable[position]
        if counter > old:
            self._stable[position] = counter
            self._unstable.release([(position, old, counter)])


DEFECTS: dict[str, type[DelayQueueEngine[Any]]] = {
    "dq_swap": SwappedCompaction,
    "R_fifo": ReceivedCounter,
    "own_row": OwnRowInMinimum,
    "no_v_inc": DirectNotCounted,
    "one_step": OneStep,
    "smap_remote_only": OnlyRemoteRemembered,
    "map_restricted": MapRestricted,
    "only_messages": OnlyMessages,
    "eager_vectors": EagerVectors,
    "internal_tags": InternalTags,
    "middleware_stability": MiddlewareStability,
    "never_dequeued": NeverDequeued,
    "duplicates_queued": DuplicatesQueued,
    "internal_timestamps": InternalTimestamps,
    "reception_acknowledged": ReceptionAcknowledged,
    "eager_acknowledgements": EagerAcknowledgements,
    "notice_without_vector": NoticeWithoutVector,
    "senders_own_only": OnlyTheSendersOwn,
}
"""By the flag that trace files name them with."""
