"""An event log whose lines wait until their commit is synced: before that the server may lose the commit, and no other
member has its messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from crdtcast.causality.tags import Dot, Tag, Vector, merge_into
from crdtcast.eventlog.format import LoggedCut, LoggedView
from crdtcast.eventlog.writer import EventLog


class HeldLog(EventLog):
    """An event log with lines on hold. number: of the commit that is about to be sent, or was sent last."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.number = 0
        self.written: int = -1
        """The lines of the commits up to this one are written. At first none: even those from before the first commit
        wait until what was read from the server is synced.
        """
        self._buffered_up_to = -1
        self._held: deque[tuple[int, Callable[[], None] | Tag]] = deque()
        """A tag: of a message sent."""
        self._known = dict(super().vector)
        self._known_stable = dict(super().told_stable)

    def synced(self, number: int) -> None:
        """The commits up to this one are synced: the next `flush` writes their lines."""
        held = self._held
        while held and held[0][0] <= number:
            _, line = held.popleft()
            if type(line) is Tag:
                EventLog.send(self, line)
            else:
                line()  # type: ignore[operator]  # mypy does not see what `type` says
        if number > self._buffered_up_to:
            self._buffered_up_to = number
        if not (self._buffered or self._sent):
            self.written = self._buffered_up_to

    def flush(self) -> None:
        super().flush()
        self.written = self._buffered_up_to

    @property
    def waits(self) -> bool:
        """Whether some lines may not be written yet."""
        return bool(self._held)

    @property
    def vector(self) -> Vector:
        """Includes lines that wait."""
        return self._known

    @property
    def told_stable(self) -> Vector:
        """Includes lines that wait."""
        return self._known_stable

    def _hold(self, line: Callable[[], None]) -> None:
        self._held.append((self.number, line))

    def start(
        self,
        vector: Vector,
        members: Iterable[str],
        stable: Vector | None = None,
        level: int | None = None,
        *,
        view: LoggedView | None = None,
        cuts: Iterable[LoggedCut] = (),
    ) -> None:
        kept, kept_stable = dict(vector), dict(stable or {})
        self._known |= kept
        merge_into(self._known_stable, kept_stable)
        start = partial(super().start, view=view, cuts=tuple(cuts))
        self._hold(partial(start, kept, sorted(members), kept_stable, level))

    def send(
        self,
        tag: Tag,
        object_ops: Sequence[tuple[str | bytes, object]] | None = None,
        *,
        reissues: Dot | None = None,
    ) -> None:
        origin, counter = tag.dot
        self._known[origin] = counter
        if object_ops or reissues is not None:
            self._hold(partial(EventLog.send, self, tag, object_ops, reissues=reissues))
        else:
            self._held.append((self.number, tag))

    def deliver(self, dot: Dot) -> None:
        self._known[dot.origin] = dot.counter
        self._hold(partial(super().deliver, dot))

    def stable(self, dot: Dot) -> None:
        self._known_stable[dot.origin] = dot.counter
        self._hold(partial(super().stable, dot))

    def deliver_all(self, dots: Sequence[Dot]) -> None:
        self._known.update(dots)
        self._hold(partial(super().deliver_all, dots))

    def stable_all(self, dots: Sequence[Dot]) -> None:
        self._known_stable.update(dots)
        self._hold(partial(super().stable_all, dots))

    def joined(self, member: str, dot: Dot, *, replaces: Iterable[str] = ()) -> None:
        self._hold(partial(super().joined, member, dot, replaces=list(replaces)))

    def left(self, dot: Dot) -> None:
        self._hold(partial(super().left, dot))

    def evicted(self, incarnation: str, cut: int, *, forced: bool = False) -> None:
        self._hold(partial(super().evicted, incarnation, cut, forced=forced))

    def decided(self, view: LoggedView, before: str, **change: Any) -> None:
        self._hold(partial(super().decided, view, before, **change))

    def state(self, object: str | bytes, vector: Vector, digest: str) -> None:
        self._hold(partial(super().state, object, dict(vector), digest))

    def gc(self, bytes_before: int, bytes_after: int, entries: int) -> None:
        self._hold(partial(super().gc, bytes_before, bytes_after, entries))
