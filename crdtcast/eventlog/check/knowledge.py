"""What the checker keeps: each log's application as far as it has been read, and every message that
somebody may still have business with.

No message carries its past. `LoggedMessage.truth` is its reduced context *by definition*: the maximal
messages its sender had sent or delivered, from the sender's own log. As long as everybody delivers
causally, truths generate the pasts. `LoggedMessage.before` says the rest: a message lies in the past of
the n-th message of member k if and only if `before[k] < n`.

A message is dropped once every log that goes on has told it stable, but the last such one of each
origin. So memory is what is in flight and one vector a log, however long the logs are.
"""

from collections.abc import Iterable, Iterator, Mapping

from crdtcast.causality.tags import Dot, Vector
from crdtcast.eventlog.check.segments import SegmentedLog
from crdtcast.eventlog.check.violations import LogPlace
from crdtcast.eventlog.format import Event, LoggedCut, LoggedView, listed_members


class LoggedMessage:
    """One message. `truth`: origin -> counter of its reduced context; None if no log tells of its
    sending. `before`: how many messages each incarnation had sent when it delivered this one; its
    sender counts the message itself."""

    __slots__ = ("before", "truth")

    def __init__(self, truth: dict[str, int] | None) -> None:
        self.truth: dict[str, int] | None = truth
        self.before: dict[str, int] = {}


class LoggedMember:
    """One incarnation: what its application has sent, delivered and been told, up to the line read
    last."""

    __slots__ = (
        "barred",
        "base",
        "begun",
        "beyond",
        "claim",
        "context",
        "current",
        "cuts",
        "end",
        "ended",
        "excused",
        "exhausted",
        "given",
        "incarnation",
        "known",
        "last",
        "left",
        "log",
        "members",
        "named",
        "over",
        "promised",
        "skipped",
        "stable",
        "start_stable",
        "stopped",
        "vector",
        "view",
    )

    def __init__(self, log: SegmentedLog, *, current: bool) -> None:
        start = log.start
        self.log: SegmentedLog = log
        self.incarnation: str = log.incarnation
        self.current: bool = current
        """Whether no newer incarnation of its name has a log."""
        self.base: Vector = (start and start.vector) or {}
        self.start_stable: Vector = self.base if start is None else told_stable(start, self.base)
        self.named: set[str] = {*self.base, *listed_members(start)}
        """Origins that its beginning knew; a vector in a log leaves zeros out."""
        self.view: LoggedView | None = None
        """The view that it is in, if members come and go."""
        self.cuts: dict[str, LoggedCut] = {}
        """Of those who went and have not ended there, or never were members there."""
        self.ended: dict[str, int] = {}
        """How many messages count of those who have ended there."""
        self.beyond: LoggedCut | None = None
        """One whose messages it has delivered beyond this: so it may not go on."""
        self.known: set[str] = set()
        """All that ever were members there."""
        self.given: dict[str, int] = {}
        """What it began with, or began again with, without a line for each."""
        self.last: Dot | None = None
        """The message of its last line, if that is of one."""
        self.end: LogPlace | None = None
        """Its last line."""
        self.members: set[str] | None = None
        """Incarnation ids, or None: everybody who has a log."""
        self.vector: dict[str, int] = {}
        self.context: dict[str, int] = {}
        self.stable: dict[str, int] = {}
        self.excused: Vector = {}
        """What may have been told stable before the log's beginning, which does not say."""
        self.barred: dict[str, float] = {}
        """Origin -> counter up to which no message may come any more: it would be concurrent with
        one that was told stable."""
        self.promised: list[tuple[LoggedMember, LogPlace, Dot, int]] = []
        """Notices at others that lie before the delivery here: who, where, of what, and how many
        messages of this member were delivered there."""
        self.skipped: set[Dot] = set()
        """What was not told stable before a later one of its origin was."""
        self.claim: LogPlace | None = None
        """The line that says that everything is stable, if nothing was delivered since."""
        self.begun: bool = False
        self.exhausted: bool = False
        self.stopped: bool = False
        self.left: bool = False
        self.over: bool = False
        """Whether it sends nothing any more; whether that is since it was evicted, so that nothing of it counts."""

    def is_told_stable(self, origin: str, counter: int) -> bool:
        """Whether this message was told stable here, or may have been before the log begins."""
        return self.stable.get(origin, 0) >= counter or self.excused.get(origin, 0) >= counter


def told_stable(start: Event, unknown: Vector) -> Vector:
    """What had been told stable before this START; `unknown` if it does not say."""
    return unknown if start.deps is None else dict(start.deps)


class Messages:
    """The messages of all origins that are not dropped."""

    def __init__(self) -> None:
        self._by_origin: dict[str, dict[int, LoggedMessage]] = {}
        self._low: dict[str, int] = {}
        self.held: int = 0
        self.peak: int = 0

    def get(self, origin: str, counter: int) -> LoggedMessage | None:
        messages = self._by_origin.get(origin)
        return None if messages is None else messages.get(counter)

    def low(self, origin: str) -> int:
        """The first counter of this origin that may be held."""
        return self._low.get(origin, 1)

    def add(self, origin: str, counter: int, message: LoggedMessage) -> None:
        messages = self._by_origin.setdefault(origin, {})
        if counter not in messages:
            self.held += 1
            self.peak = max(self.peak, self.held)
        messages[counter] = message

    def drop_below(self, floors: Mapping[str, int]) -> None:
        """Drop of each origin what lies below its floor; the floor itself stays: it may be
        maximal in what a member begins with."""
        for origin, floor in floors.items():
            messages = self._by_origin.get(origin, {})
            for counter in range(self._low.get(origin, 1), floor):
                if messages.pop(counter, None) is not None:
                    self.held -= 1
            self._low[origin] = max(self._low.get(origin, 1), floor)

    def maximal(self, vector: Vector) -> dict[str, int]:
        """The maximal messages of what `vector` covers: a context."""
        context: dict[str, int] = {}
        for origin, counter in vector.items():
            message = self.get(origin, counter)
            if message is not None and not any(
                counter_of_other > message.before.get(other, counter_of_other)
                for other, counter_of_other in vector.items()
                if other != origin
            ):
                context[origin] = counter
        return context

    def gaps(self, vector: Vector) -> Iterator[tuple[Dot, Dot]]:
        """What `vector` lacks though it is in the past of something that it covers: of each origin
        the first such message, and one that is later."""
        for origin in self._by_origin:
            dot = Dot(origin, vector.get(origin, 0) + 1)
            message = self.get(*dot)
            if message is not None:
                for other, counter in vector.items():
                    if message.before.get(other, counter) < counter:
                        yield dot, Dot(other, counter)
                        break


def missing(vector: Vector, dots: Iterable[tuple[str, int]]) -> list[Dot]:
    """Which of these `vector` does not cover."""
    return [Dot(origin, counter) for origin, counter in dots if vector.get(origin, 0) < counter]
