"""Delivered messages until they are stable: any member repairs any other from them, and tags get their pasts here."""

from collections import deque
from collections.abc import Collection
from typing import NamedTuple

from crdtcast.messages import Message
from crdtcast.tags import Tag, Vector

MESSAGE_OVERHEAD = 64
"""Bytes counted for a stored message beside its payload; a round number, for warnings, not for accounting."""

FORGET_AT_ONCE = 500


class Stored(NamedTuple):
    """One delivered message, its place in the local order of delivery, and the tick at which it was delivered."""

    sequence: int
    born: int
    message: Message
    tag: Tag


_stored = tuple.__new__  # a third of the cost of Stored(…), and this is once per message


class Store:
    """Messages that are delivered here and not reported stable, by origin and counter, and in delivery order."""

    __slots__ = ("_order", "by_origin", "bytes", "first", "sequence", "size")

    def __init__(self) -> None:
        self.by_origin: dict[str, dict[int, Stored]] = {}
        self.first: dict[str, int] = {}
        """The lowest counter of each: a dictionary finds its first key slowly when many before it were removed."""
        self._order: deque[Stored] = deque()
        self.sequence = 0
        self.size = 0
        self.bytes = 0

    def add(self, message: Message, tag: Tag, tick: int) -> Stored:
        """Keep a message that was delivered (or sent) just now."""
        self.sequence = sequence = self.sequence + 1
        stored: Stored = _stored(Stored, (sequence, tick, message, tag))
        origin, counter = message.dot
        by_counter = self.by_origin.get(origin)
        if by_counter is None:
            self.by_origin[origin] = {counter: stored}
            self.first[origin] = counter
        else:
            by_counter[counter] = stored
        self._order.append(stored)
        self.size += 1
        self.bytes += len(message.payload) + MESSAGE_OVERHEAD
        return stored

    def get(self, origin: str, counter: int) -> Stored | None:
        """The stored message of that dot, if it is delivered here and not reported stable."""
        by_counter = self.by_origin.get(origin)
        return None if by_counter is None else by_counter.get(counter)

    def remove(self, reported: Collection[Stored]) -> None:
        """Forget messages that have been reported stable."""
        by_origin, first = self.by_origin, self.first
        payloads = 0
        for _, _, message, _ in reported:
            origin, counter = message.dot
            by_counter = by_origin[origin]
            del by_counter[counter]
            first[origin] = counter + 1
            if not by_counter:
                del by_origin[origin]
                del first[origin]
            payloads += len(message.payload)
        self.size -= len(reported)
        self.bytes -= payloads + MESSAGE_OVERHEAD * len(reported)

    def forget(self, origin: str) -> None:
        """An origin was dropped, all of it was stable: `stable` says so no more."""
        self._order = deque(stored for stored in self._order if stored.message.dot.origin != origin)

    def oldest(self, stable: Vector) -> Stored | None:
        """The one delivered first among those that `stable` does not cover, or an earlier one.

        Earlier, when so much has become stable at once that forgetting all of it now would take too long.
        """
        order = self._order
        budget = FORGET_AT_ONCE
        while order:
            stored = order[0]
            origin, counter = stored[2].dot
            if stable.get(origin, 0) < counter or not budget:
                return stored
            order.popleft()
            budget -= 1
        return None

    def in_order(self) -> list[Stored]:
        """Everything stored, in delivery order."""
        return sorted(s for by_counter in self.by_origin.values() for s in by_counter.values())
