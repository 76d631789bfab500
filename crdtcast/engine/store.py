"""Delivered messages until they are stable: for repairs of any other member, and for the pasts of tags."""

from collections import deque
from collections.abc import Callable, Collection
from itertools import repeat
from operator import attrgetter
from typing import NamedTuple

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Tag, Vector, make_tuple

MESSAGE_OVERHEAD = 64
"""Bytes counted for a stored message besides its payload; a round number, for warnings, not for accounting."""

KEPT = 1024
"""Bytes in memory for a message besides its payload: tag, context, bits, places in tables."""

FORGET_AT_ONCE = 100
"""Stable messages that leave the order of delivery when the oldest is asked for: each takes 10 us and more where memory
is cold. Most leave it when they are reported.
"""

TRIM = 4096
"""Forgotten places that a run has at its beginning before it frees them."""


class Stored(NamedTuple):
    """One delivered message, its place in the local order of delivery, and the tick at which it was delivered."""

    sequence: int
    born: int
    message: Message
    tag: Tag


DOT_OF: Callable[[Stored], Dot] = attrgetter("message.dot")
_PAYLOAD_OF: Callable[[Stored], bytes] = attrgetter("message.payload")


class Run(list[Stored | None]):
    """The stored messages of one origin: their counters have no gaps, so a list holds them, from counter `base` on.

    A silent member can cause so many that a dictionary of them takes tens of milliseconds whenever it has to grow.
    Those before `first` are forgotten.
    """

    __slots__ = ("base", "first")

    def __init__(self, stored: Stored) -> None:
        super().__init__((stored,))
        self.base: int = stored.message.dot.counter
        self.first: int = self.base

    @property
    def last(self) -> int:
        """The highest counter."""
        return self.base + len(self) - 1

    def at(self, counter: int) -> Stored:
        """The message with this counter, which must be stored."""
        stored = self[counter - self.base]
        assert stored is not None
        return stored

    def get(self, counter: int) -> Stored | None:
        """The message with this counter, if it is stored."""
        return self[counter - self.base] if self.first <= counter <= self.last else None


class Store:
    """Messages that are delivered and not reported stable, by origin and counter, and in delivery order."""

    __slots__ = ("_order", "by_origin", "bytes", "sequence", "size")

    def __init__(self) -> None:
        self.by_origin: dict[str, Run] = {}
        self._order: deque[Stored] = deque()
        self.sequence: int = 0
        self.size: int = 0
        self.bytes: int = 0

    @property
    def spilled_bytes(self) -> int:
        """Of payloads that are on disk."""
        return 0

    @property
    def held_bytes(self) -> int:
        """Payloads, in memory and on disk, and roughly what is kept of each message in memory."""
        return self.bytes + KEPT * self.size

    def note(self, decided: object) -> bool:
        """Note a decision, in order with what is added and removed. Returns whether this store reports it."""
        return False

    def add(self, message: Message, tag: Tag, tick: int) -> Stored:
        """Keep a message that was delivered (or sent) just now."""
        self.sequence = sequence = self.sequence + 1
        stored: Stored = make_tuple(Stored, (sequence, tick, message, tag))
        origin = message.dot.origin
        run = self.by_origin.get(origin)
        if run is None:
            self.by_origin[origin] = Run(stored)
        else:
            run.append(stored)
        self._order.append(stored)
        self.size += 1
        self.bytes += len(message.payload) + MESSAGE_OVERHEAD
        return stored

    def get(self, origin: str, counter: int) -> Stored | None:
        """The stored message of that dot, if it is delivered and not reported stable."""
        run = self.by_origin.get(origin)
        return None if run is None else run.get(counter)

    def remove(self, reported: Collection[Stored]) -> None:
        """Forget messages that have been reported stable: the first ones of each origin."""
        by_origin = self.by_origin
        last = dict(map(DOT_OF, reported))
        for origin, counter in last.items():
            run = by_origin[origin]
            forgotten = counter + 1 - run.base
            if forgotten == len(run):
                del by_origin[origin]
            elif forgotten > TRIM:
                del run[:forgotten]
                run.base = run.first = counter + 1
            else:
                known = run.first - run.base
                run[known:forgotten] = repeat(None, forgotten - known)
                run.first = counter + 1
        payloads = sum(map(len, map(_PAYLOAD_OF, reported)))
        order = self._order
        for _ in range(2 * len(reported)):
            if not order:
                break
            origin, counter = order[0][2].dot
            kept = by_origin.get(origin)
            if kept is not None and counter >= kept.first:
                break
            order.popleft()
        self.size -= len(reported)
        self.bytes -= payloads + MESSAGE_OVERHEAD * len(reported)

    def forget(self, origin: str) -> None:
        """An origin was dropped: all of it was stable, but `stable` no longer says so."""
        self._order = deque(stored for stored in self._order if stored.message.dot.origin != origin)

    def oldest(self, stable: Vector) -> Stored | None:
        """The message delivered first of those that `stable` does not cover, or an earlier one.

        An earlier one if so much has become stable at once that forgetting all of it now would take too long.
        """
        order, get = self._order, stable.get
        for _ in range(FORGET_AT_ONCE):
            if not order:
                return None
            stored = order[0]
            origin, counter = stored[2].dot
            if get(origin, 0) < counter:
                return stored
            order.popleft()
        return order[0] if order else None

    def in_order(self) -> list[Stored]:
        """Everything stored, in delivery order."""
        return sorted(s for run in self.by_origin.values() for s in run if s is not None)
