"""What the checker keeps: the state of each log's application so far, and every message that may still be needed.

No message carries its past. `LoggedMessage.truth` is its reduced context *by definition*: the maximal messages that its
sender had sent or delivered, from the sender's own log. As long as all members deliver causally, truths generate the
pasts. `LoggedMessage.before` tells the rest: a message lies in the past of the n-th message of member k if and only if
`before[k] < n`.

A message is dropped once every log that continues has reported it stable, except the last such one of each origin. So
memory holds what is in flight and one vector a log, however long the logs are.
"""

from collections.abc import Iterable, Iterator, Mapping

from crdtcast.causality.tags import Dot, Vector
from crdtcast.eventlog.check.segments import SegmentedLog
from crdtcast.eventlog.check.violations import LogPlace
from crdtcast.eventlog.format import Event, LoggedCut, LoggedView, listed_members


class LoggedMessage:
    """One message.

    truth: origin -> counter of its reduced context; None if its sending is in no log.
    before: how many messages each incarnation had sent when it delivered this one; the sender counts the message
        itself.
    """

    __slots__ = ("before", "truth")

    def __init__(self, truth: dict[str, int] | None) -> None:
        self.truth: dict[str, int] | None = truth
        self.before: dict[str, int] = {}


class LoggedMember:
    """One incarnation: what its application has sent, delivered and been notified of, up to the last line read."""

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
        """Origins that it knew when it began; a vector in a log omits zeros."""
        self.view: LoggedView | None = None
        """Its view, if the group's members can change."""
        self.cuts: dict[str, LoggedCut] = {}
        """Cuts of members that are being removed and have not ended at this member, or were never members there."""
        self.ended: dict[str, int] = {}
        """For each incarnation that has ended there, how many messages count."""
        self.beyond: LoggedCut | None = None
        """A cut beyond which it has delivered messages: so it may not continue."""
        self.known: set[str] = set()
        """All incarnations that ever were members there."""
        self.given: dict[str, int] = {}
        """What it began with, at its first start or a later one, without a line for each message."""
        self.last: Dot | None = None
        """The message of its last line, if that line has one."""
        self.end: LogPlace | None = None
        """Its last line."""
        self.members: set[str] | None = None
        """Incarnation ids; None stands for all members that have a log."""
        self.vector: dict[str, int] = {}
        self.context: dict[str, int] = {}
        self.stable: dict[str, int] = {}
        self.excused: Vector = {}
        """What may have been reported stable before the log begins, if the START does not say."""
        self.barred: dict[str, float] = {}
        """Origin -> counter up to which no message may be delivered any more: it would be concurrent with a stable one.
        """
        self.promised: list[tuple[LoggedMember, LogPlace, Dot, int]] = []
        """Stability notices at other members that lie before the delivery at this one: the member, where, of which
        message, and how many messages of this member were delivered there."""
        self.skipped: set[Dot] = set()
        """Messages that were not reported stable before a later one of their origin."""
        self.claim: LogPlace | None = None
        """The line that says that everything is stable; None if something was delivered since."""
        self.begun: bool = False
        self.exhausted: bool = False
        self.stopped: bool = False
        self.left: bool = False
        self.over: bool = False
        """`left`: it sends nothing any more. `over`: because it was evicted, so its later messages do not count."""

    def is_told_stable(self, origin: str, counter: int) -> bool:
        """Whether this member reported this message stable, or may have done so before its log begins."""
        return self.stable.get(origin, 0) >= counter or self.excused.get(origin, 0) >= counter


def told_stable(start: Event, unknown: Vector) -> Vector:
    """What had been reported stable before this START; `unknown` if it does not say."""
    return unknown if start.deps is None else dict(start.deps)


class Messages:
    """The messages of all origins that were not dropped."""

    def __init__(self) -> None:
        self._by_origin: dict[str, dict[int, LoggedMessage]] = {}
        self._low: dict[str, int] = {}
        self.held: int = 0
        self.peak: int = 0

    def get(self, origin: str, counter: int) -> LoggedMessage | None:
        messages = self._by_origin.get(origin)
        return None if messages is None else messages.get(counter)

    def low(self, origin: str) -> int:
        """The lowest counter of this origin that may be held."""
        return self._low.get(origin, 1)

    def add(self, origin: str, counter: int, message: LoggedMessage) -> None:
        messages = self._by_origin.setdefault(origin, {})
        if counter not in messages:
            self.held += 1
            self.peak = max(self.peak, self.held)
        messages[counter] = message

    def drop_below(self, floors: Mapping[str, int]) -> None:
        """Drop the messages of each origin below its floor. The floor itself stays: it may be maximal in what a member
        begins with."""
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
        """What `vector` lacks although it is in the past of a message that `vector` covers: of each origin the first
        such message, with a later one that it is in the past of."""
        for origin in self._by_origin:
            dot = Dot(origin, vector.get(origin, 0) + 1)
            message = self.get(*dot)
            if message is not None:
                for other, counter in vector.items():
                    if message.before.get(other, counter) < counter:
                        yield dot, Dot(other, counter)
                        break


def missing(vector: Vector, dots: Iterable[tuple[str, int]]) -> list[Dot]:
    """The dots that `vector` does not cover."""
    return [Dot(origin, counter) for origin, counter in dots if vector.get(origin, 0) < counter]
