"""One order of all logs of a group that keeps each log's own order, and sending before delivery.

Streaming and without recursion: only the next event of each log is held. An event that has to wait for another log is
parked under what it waits for. Among the events that may come next, wall clocks decide. They only keep the logs in
step, and may be wrong by any amount.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from crdtcast.causality.tags import Dot
from crdtcast.eventlog.check.definition import CheckedWait, Definition
from crdtcast.eventlog.check.segments import LogLine, SegmentedLog
from crdtcast.eventlog.format import EventKind

_TELL_EVERY = 10_000


class _Cursor:
    """The next line of a log. A log is opened when it is first read."""

    __slots__ = ("_lines", "head", "log", "seq")

    def __init__(self, log: SegmentedLog) -> None:
        self.log = log
        self.head: LogLine | None = None
        self.seq = 0
        self._lines: Iterator[LogLine] | None = None

    def advance(self) -> bool:
        if self._lines is None:
            self._lines = self.log.lines()
        self.head = next(self._lines, None)
        return self.head is not None


class Merge:
    """Feeds the logs of one group to `definition`; `events` counts what was read.

    :param progress: called with `events` now and then.
    """

    def __init__(
        self,
        logs: list[SegmentedLog],
        definition: Definition,
        progress: Callable[[int], object] = lambda events: None,
    ) -> None:
        self.events: int = 0
        self._definition = definition
        self._progress = progress
        self._cursors = [_Cursor(log) for log in logs]
        self._ready = [(log.first.ts, index) for index, log in enumerate(logs)]
        self._ready.sort()
        self._waiting: dict[str, dict[Dot, list[int]]] = {}
        self._waits: dict[int, CheckedWait] = {}

    def run(self) -> None:
        """Read everything.

        :raises UnusableInputError: if a file cannot be read after all.
        """
        while True:
            while self._ready:
                _, index = heappop(self._ready)
                self._follow(index)
            if not self._waits:
                return
            self._release()

    def _follow(self, index: int) -> None:
        """Read a log until it has to wait, or until another log's clock is behind."""
        cursor = self._cursors[index]
        if cursor.head is None and not cursor.advance():
            self._exhausted(cursor)
            return
        definition, name = self._definition, cursor.log.incarnation
        while (head := cursor.head) is not None:
            wait = definition.awaits(name, head.event)
            if wait is not None:
                self._waiting.setdefault(wait.member, {}).setdefault(wait.dot, []).append(index)
                self._waits[index] = wait
                return
            if self._ready and (head.event.ts, index) > self._ready[0]:
                heappush(self._ready, (head.event.ts, index))
                return
            self._take(cursor, head)
        self._exhausted(cursor)

    def _take(self, cursor: _Cursor, head: LogLine) -> None:
        segment, number, event = head
        name = cursor.log.incarnation
        self.events += 1
        if self.events % _TELL_EVERY == 0:
            self._progress(self.events)
        if event.seq != cursor.seq + 1:
            self._definition.hole(name, event, segment, number, cursor.seq)
        cursor.seq = event.seq
        self._definition.take(name, event, segment, number)
        if (waiting := self._waiting.get(name)) and event.kind in (
            EventKind.SEND,
            EventKind.DELIVER,
            EventKind.START,
        ):
            if event.kind == EventKind.START:
                self._wake_all(name)
            else:
                for index in waiting.pop(event.dot, ()):
                    self._wake(index)
        cursor.advance()

    def _exhausted(self, cursor: _Cursor) -> None:
        self._definition.exhausted(cursor.log.incarnation)
        self._wake_all(cursor.log.incarnation)

    def _wake_all(self, name: str) -> None:
        for indices in self._waiting.pop(name, {}).values():
            for index in indices:
                self._wake(index)

    def _wake(self, index: int) -> None:
        del self._waits[index]
        head = self._cursors[index].head
        assert head is not None
        heappush(self._ready, (head.event.ts, index))

    def _release(self) -> None:
        """All logs wait for each other, which never happens in logs of real events. One has to go on.

        A stability notice does no harm: whether it was right is checked later. Otherwise take a delivery that is wrong
        anyway, otherwise the earliest event.
        """
        heads = self._cursors

        def harm(index: int) -> tuple[int, int, int]:
            head = heads[index].head
            assert head is not None
            event = head.event
            if event.kind == EventKind.STABLE:
                rank = 0
            else:
                rank = 2 if self._definition.is_next(heads[index].log.incarnation, event) else 1
            return rank, event.ts, index

        index = min(self._waits, key=harm)
        wait = self._waits.pop(index)
        waiting = self._waiting[wait.member]
        waiting[wait.dot].remove(index)
        cursor = self._cursors[index]
        assert cursor.head is not None
        self._take(cursor, cursor.head)
        if cursor.head is None:
            self._exhausted(cursor)
        else:
            heappush(self._ready, (cursor.head.event.ts, index))
