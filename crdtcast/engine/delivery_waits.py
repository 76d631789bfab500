"""Waits for three notions: delivered by k members, stable over k members, stable. This file knows
no links.

- *Delivered by k*: k members, this one included, have taken the message, as far as this one knows.
  It is in k memories then; concurrent messages may still come from any of them.
- *Quorum-stable over k*: from k members, this one included, this member can no longer deliver a
  message concurrent with it: stability, evaluated over those k. The others may not even have it.
- *Stable*: the same over all members. Only then is the message in the past of all that this member
  will ever deliver. So only then may metadata that tells it from concurrent ones be dropped.

Each follows from the next one, for the same k.
"""

import enum
import heapq
from collections.abc import Callable

import trio

from crdtcast.causality.tags import MAX_COUNTER, Tag
from crdtcast.engine import Fate, GroupEngine, known_deliveries
from crdtcast.engine.checks import check_tag
from crdtcast.engine.core import Core
from crdtcast.exceptions import LocalProtocolError
from crdtcast.short_repr import shown


class Notion(enum.Enum):
    """What a call waits for."""

    DELIVERED = "delivered"
    QUORUM_STABLE = "quorum-stable"
    STABLE = "stable"


class _Waiter:
    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: Exception | None = None


_Kind = tuple[Notion, int, str]


class Waits:
    """Open waits, by notion, number of members and origin.

    engine: returns the present one. Call `check` whenever it may have made progress. A check looks at
    the members once for each kind of wait, however many tags are waited for.
    """

    def __init__(self, engine: Callable[[], Core]) -> None:
        self._engine = engine
        self._waiting: dict[_Kind, list[tuple[int, int, _Waiter]]] = {}
        self._lost: dict[str, tuple[int, Exception]] = {}
        self._serial = 0
        self._over: Exception | None = None

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def wait(self, tag: Tag, notion: Notion, count: int = 0) -> None:
        """Return when the notion holds for `tag`.

        Raises LocalProtocolError if `count` is below 1, or above the number of members, or if `tag` is none.
        """
        check_tag(tag)
        await trio.lowlevel.checkpoint()
        engine = self._engine()
        if notion is not Notion.STABLE:
            members = known_deliveries.size(engine)
            if not isinstance(count, int) or not 1 <= count <= members:
                raise LocalProtocolError(
                    f"cannot wait for {shown(count)} members: the group has {members}: choose a count "
                    f"from 1 to {members}"
                )
        kind = notion, count, tag.dot.origin
        beyond, error = self._lost.get(tag.dot.origin, (tag.dot.counter, None))
        if error is not None and tag.dot.counter > beyond:
            raise error
        if self._reached(engine, kind) >= tag.dot.counter:
            return
        if self._over is not None:
            raise self._over
        waiter = _Waiter()
        self._serial += 1
        heapq.heappush(self._waiting.setdefault(kind, []), (tag.dot.counter, self._serial, waiter))
        try:
            await waiter.done.wait()
        finally:
            if not waiter.done.is_set():
                self._forget(kind, waiter)
        if waiter.error is not None:
            raise waiter.error

    def _forget(self, kind: _Kind, waiter: _Waiter) -> None:
        left = [entry for entry in self._waiting[kind] if entry[2] is not waiter]
        heapq.heapify(left)
        if left:
            self._waiting[kind] = left
        else:
            del self._waiting[kind]

    def check(self) -> None:
        """End the waits whose notion holds now."""
        if not self._waiting:
            return
        engine = self._engine()
        for kind, heap in list(self._waiting.items()):
            reached = self._reached(engine, kind)
            while heap and heap[0][0] <= reached:
                heapq.heappop(heap)[2].done.set()
            if not heap:
                del self._waiting[kind]

    def fail(self, origin: str, beyond: int, error: Exception) -> None:
        """`origin` has ended: nothing of it with a counter above `beyond` will ever be delivered."""
        self._lost[origin] = beyond, error
        for kind, heap in list(self._waiting.items()):
            if kind[2] != origin:
                continue
            for counter, _, waiter in heap:
                if counter > beyond:
                    waiter.error = error
                    waiter.done.set()
            left = [entry for entry in heap if not entry[2].done.is_set()]
            heapq.heapify(left)
            if left:
                self._waiting[kind] = left
            else:
                del self._waiting[kind]

    def end(self, error: Exception) -> None:
        """Nothing makes progress any more: open waits, and later ones that would have to wait, raise `error`."""
        self.check()
        self._over = error
        for heap in self._waiting.values():
            for _, _, waiter in heap:
                waiter.error = error
                waiter.done.set()
        self._waiting.clear()

    @staticmethod
    def _reached(engine: Core, kind: _Kind) -> int:
        """The highest counter of the origin for which the notion holds."""
        notion, count, origin = kind
        if origin not in engine.vector and isinstance(engine, GroupEngine):
            fate = engine.fate(origin)
            if fate is not Fate.MEMBER:  # it has ended, and was dropped when all was stable
                return fate if isinstance(fate, int) else MAX_COUNTER
        everywhere = known_deliveries.stable(engine).get(origin, 0)
        if notion is Notion.STABLE:
            return everywhere
        levels = (
            known_deliveries.delivered if notion is Notion.DELIVERED else known_deliveries.settled
        )
        counters = levels(engine, origin)
        reached = counters[count - 1] if count <= len(counters) else 0
        # Others may acknowledge what this member has not delivered, but nothing follows for it.
        return max(everywhere, min(reached, engine.vector.get(origin, 0)))
