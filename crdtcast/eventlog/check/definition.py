"""Checks what applications did against the definition of causal delivery.

Events come in an order that keeps the order of each log, and puts sending before delivery
(`crdtcast.eventlog.check.merge`). The check uses nothing of the engine: no digests, rows or vectors from the wire.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from crdtcast.causality.member_id import name_of
from crdtcast.causality.tags import Dot
from crdtcast.eventlog.check.beginnings import Beginnings
from crdtcast.eventlog.check.knowledge import LoggedMember, LoggedMessage, Messages, missing
from crdtcast.eventlog.check.membership import Roll
from crdtcast.eventlog.check.segments import SegmentedLog
from crdtcast.eventlog.check.stability import Notices
from crdtcast.eventlog.check.values import Values
from crdtcast.eventlog.check.violations import LogPlace, Problem, Violation, listed
from crdtcast.eventlog.format import Event, EventKind

_KEPT = 100
_COLLECT_EVERY = 4096
_ACTS = frozenset({EventKind.SEND, EventKind.DELIVER, EventKind.STABLE})


class CheckedWait(NamedTuple):
    """An event has to wait until `member` has `dot`."""

    member: str
    dot: Dot


class Definition:
    """One group. `take` its events, report the end of each log by `exhausted`, then `finish`.

    Violations are in the order of the events, up to a limit; `counts` has the number of all.

    :param group: its name in violations; by default the group's.
    :param live: logs are still being written: what a log lacks so far is no violation.
    """

    def __init__(
        self, logs: Iterable[SegmentedLog], *, group: str = "", live: bool = False
    ) -> None:
        logs = list(logs)
        newest: dict[str, str] = {}
        for log in logs:
            newest[log.replica] = max(newest.get(log.replica, ""), log.incarnation)
        self.members: dict[str, LoggedMember] = {
            log.incarnation: LoggedMember(log, current=newest[log.replica] == log.incarnation)
            for log in logs
        }
        self.messages: Messages = Messages()
        self.roll: Roll = Roll(self.members, self._report)
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter()
        self._live = live
        self._values = Values()
        self._group = group or logs[0].group
        self._beginnings = Beginnings(
            self.members,
            self.messages,
            self.roll,
            self._report,
            unlogged=self._known_or_unlogged,
            may_lack=self._may_be_unlogged,
        )
        self._notices = Notices(self.members, self.messages, self.roll, self._report, live=live)
        self._future = set(self.members.values())
        self._rules: dict[str, Callable[[LoggedMember, Event, LogPlace], None]] = {
            EventKind.SEND: self._sent,
            EventKind.DELIVER: self._delivered,
            EventKind.STABLE: self._told_stable,
            EventKind.START: self._started,
            EventKind.STOP: self._stopped,
            EventKind.GC: self._claimed,
            EventKind.STATE: self._valued,
            EventKind.JOIN: self.roll.joined,
            EventKind.VIEW: self.roll.views.decided,
            EventKind.LEFT: self.roll.left,
            EventKind.EVICT: self.roll.evicted,
        }
        self._since_collection = 0

    # --- the order of events --------------------------------------------------------------------

    def awaits(self, incarnation: str, event: Event) -> CheckedWait | None:
        """What must be read before this event, the next of its log; None if nothing."""
        kind = event.kind
        if kind == EventKind.DELIVER:
            assert event.origin is not None and event.counter is not None
            return self._until_sent(incarnation, event.origin, event.counter)
        if kind == EventKind.STABLE:
            me, dot = self.members[incarnation], event.dot
            message = self.messages.get(*dot)
            if message is not None and me.vector.get(dot.origin, 0) >= dot.counter:
                for member in self._notices.lacking(me, dot, message):
                    if not member.exhausted:
                        return CheckedWait(member.incarnation, dot)
        elif kind == EventKind.START:
            for origin, counter in (event.vector or {}).items():
                if (wait := self._until_sent(incarnation, origin, counter)) is not None:
                    return wait
        return None

    def is_next(self, incarnation: str, event: Event) -> bool:
        """Whether a delivery is the next one of its origin at that member."""
        if event.kind != EventKind.DELIVER:
            return True
        vector = self.members[incarnation].vector
        return event.dot.counter == vector.get(event.dot.origin, 0) + 1

    def _until_sent(self, incarnation: str, origin: str, counter: int) -> CheckedWait | None:
        sender = self.members.get(origin)
        if (
            sender is None
            or sender.exhausted
            or origin == incarnation
            or sender.vector.get(origin, 0) >= counter
        ):
            return None
        return CheckedWait(origin, Dot(origin, counter))

    def take(self, incarnation: str, event: Event, segment: int, line: int) -> None:
        """Check one event."""
        rule = self._rules.get(event.kind)
        if rule is None:
            return
        member = self.members[incarnation]
        if not member.begun and event.kind != EventKind.START:
            self._begin(member)
        place = LogPlace(incarnation, segment, line, event.ts, event.kind)
        if event.kind in _ACTS:
            self.roll.views.acts(member, place)
            member.last = event.dot
        else:
            member.last = None
        member.end = place
        rule(member, event, place)
        self._since_collection += 1
        if self._since_collection >= max(_COLLECT_EVERY, self.messages.held):
            self._since_collection = 0
            self.messages.drop_below(self._floors())

    def _floors(self) -> dict[str, int]:
        going_on = [member for member in self.members.values() if not member.exhausted]
        stable = [
            (m, m.stable if m.begun else m.start_stable, m.excused if m.begun else {})
            for m in going_on
        ]
        return {
            origin: min(
                (
                    max(told.get(origin, 0), excused.get(origin, 0), self.roll.past(member, origin))
                    for member, told, excused in stable
                ),
                default=0,
            )
            for origin in {origin for _, told, _ in stable for origin in told}
        }

    # --- messages -------------------------------------------------------------------------------

    def _sent(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        dot = event.dot
        origin, counter = dot
        if origin != me.incarnation:
            self._report(
                Problem.FOREIGN,
                place,
                f"{me.incarnation} logs {dot} as sent, but {origin} is another member",
                dot,
                peers=(origin,) if origin in self.members else (),
            )
            self._apply(me, dot, self._known_or_unlogged(dot))
            return
        sent = me.vector.get(origin, 0)
        if counter <= sent:
            self._report(Problem.DUPLICATE, place, f"{dot} is sent a second time", dot)
            return
        if counter > sent + 1:
            skipped = Dot(origin, sent + 1)
            text = f"{origin} sends {dot}, but has not sent {skipped}"
            self._report(Problem.CAUSAL, place, text, dot, (skipped,))
        if me.left:
            self._report(Problem.AFTER_END, place, f"{origin} sends {dot} after its end", dot)
        if event.deps is not None:
            self._check_tag(me, dot, event.deps, place)
        message = self.messages.get(origin, counter) or LoggedMessage(None)
        message.truth = dict(me.context)
        me.vector[origin] = counter
        me.context = {origin: counter}
        me.claim = None
        message.before[origin] = counter
        self._add(dot, message)
        self.counts["messages"] += 1
        if event.reissues is not None:
            self.roll.reissued(me, dot, event.reissues, place)

    def _add(self, dot: Dot, message: LoggedMessage) -> None:
        self.messages.add(*dot, message)
        for member in self._future:
            if member.base.get(dot.origin, 0) >= dot.counter:
                message.before[member.incarnation] = 0

    def _known_or_unlogged(self, dot: Dot) -> LoggedMessage:
        message = self.messages.get(*dot)
        if message is None:
            message = LoggedMessage(None)
            self._add(dot, message)
        return message

    def _check_tag(self, me: LoggedMember, dot: Dot, deps: Iterable[Dot], place: LogPlace) -> None:
        told = dict(deps)
        if told == me.context:
            return
        invented = [dep for dep in missing(me.vector, deps) if not self.roll.has(me, *dep)]
        if invented:
            text = f"{dot} names {listed(invented)}, which its sender had not delivered"
            self._report(Problem.TAG, place, text, dot, tuple(invented))
        elif not any(self._is_unlogged(dep) for dep in deps):
            # The counter of this message already implies the sender's previous one.
            omitted = [
                dep
                for dep in missing(told, me.context.items())
                if dep.origin != me.incarnation and not self._is_unlogged(dep)
            ]
            if omitted:
                text = f"{dot} leaves out {listed(omitted)}, which its sender had delivered"
                self._report(Problem.TAG, place, text, dot, tuple(omitted))

    def _is_unlogged(self, dot: Dot) -> bool:
        message = self.messages.get(*dot)
        return message is not None and message.truth is None

    def _delivered(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        dot = event.dot
        origin, counter = dot
        have = me.vector.get(origin, 0)
        self.counts["deliveries"] += 1
        if counter <= have or self.roll.has(me, origin, counter):
            text = f"{me.incarnation} delivers {dot} a second time"
            self._report(Problem.DUPLICATE, place, text, dot, peers=(me.incarnation,))
            return
        message = self.messages.get(origin, counter)
        if message is None:
            if not self._may_be_unlogged(origin):
                self._report(Problem.GHOST, place, self._ghost(me, dot), dot, peers=(origin,))
            message = self._known_or_unlogged(dot)
        if counter != have + 1:
            before = Dot(origin, have + 1)
            text = f"{me.incarnation} delivers {dot}, but has not delivered {before}"
            self._report(Problem.CAUSAL, place, text, dot, (before,))
        elif message.truth:
            self._check_past(me, dot, message.truth, place)
        if counter <= me.barred.get(origin, 0):
            text = (
                f"{me.incarnation} delivers {dot} after a concurrent message was reported stable "
                "there"
            )
            self._report(Problem.UNSAFE_STABLE, place, text, dot)
        self.roll.check_delivery(me, dot, place)
        self._apply(me, dot, message)
        if me.promised:
            self._notices.delivered(me, dot)

    def _may_be_unlogged(self, origin: str) -> bool:
        sender = self.members.get(origin)
        return sender is None or (self._live and not sender.stopped)

    def _ghost(self, me: LoggedMember, dot: Dot) -> str:
        sender = self.members.get(dot.origin)
        assert sender is not None
        if not sender.exhausted:
            return f"{me.incarnation} delivers {dot} before it is sent"
        last = sender.vector.get(dot.origin, 0)
        return (
            f"{me.incarnation} delivers {dot}, which was never sent: the log of {dot.origin} ends "
            f"after its message {last}"
        )

    def _check_past(
        self, me: LoggedMember, dot: Dot, truth: dict[str, int], place: LogPlace
    ) -> None:
        vector = me.vector
        for origin, counter in truth.items():
            if vector.get(origin, 0) < counter and not self.roll.has(me, origin, counter):
                lacking = tuple(missing(vector, truth.items()))
                text = (
                    f"{me.incarnation} delivers {dot}, but has not delivered {listed(lacking)}, "
                    f"which {dot.origin} had delivered before sending it"
                )
                self._report(Problem.CAUSAL, place, text, dot, lacking, (me.incarnation,))
                return

    def _apply(self, me: LoggedMember, dot: Dot, message: LoggedMessage) -> None:
        context = me.context
        for origin, counter in (message.truth or {}).items():
            if context.get(origin, counter + 1) <= counter:
                del context[origin]
        context[dot.origin] = counter = max(dot.counter, context.get(dot.origin, 0))
        me.vector[dot.origin] = max(counter, me.vector.get(dot.origin, 0))
        message.before.setdefault(me.incarnation, me.vector.get(me.incarnation, 0))
        me.claim = None

    def _told_stable(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        self.counts["stable"] += 1
        self._notices.told(me, event.dot, place)

    # --- beginnings and ends --------------------------------------------------------------------

    def _begin(self, me: LoggedMember) -> None:
        me.begun = True
        self._future.discard(me)

    def _started(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        self._beginnings.started(me, event, place)
        self._begin(me)
        self.roll.started(me, event, place)

    def _claimed(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        if event.entries == 0:
            me.claim = place

    def _stopped(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        self._claimed(me, event, place)
        me.stopped = True

    def exhausted(self, incarnation: str) -> None:
        """The log of this incarnation has no more events."""
        me = self.members[incarnation]
        if not me.begun:
            self._begin(me)
        me.exhausted = True
        self._notices.exhausted(me)
        if me.claim is not None:
            left = [
                Dot(origin, max(me.stable.get(origin, 0), me.excused.get(origin, 0)) + 1)
                for origin, counter in sorted(me.vector.items())
                if not me.is_told_stable(origin, counter)
            ]
            if left:
                text = (
                    f"{incarnation} logs that nothing is left to become stable, but "
                    f"{listed(left)} was never reported stable"
                )
                self._report(
                    Problem.STALL, me.claim, text, left[0], tuple(left[1:]), (incarnation,)
                )

    # --- values, and the log itself -------------------------------------------------------------

    def _valued(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        self.counts["values"] += 1
        if event.object is not None and event.digest is not None:
            self._values.told(event.object, event.vector or {}, event.digest, place)

    def hole(self, incarnation: str, event: Event, segment: int, line: int, last: int) -> None:
        """Report that `seq` does not follow on `last`."""
        place = LogPlace(incarnation, segment, line, event.ts, event.kind)
        if event.seq > last + 1:
            text = f"the log of {incarnation} lacks its events {last + 1} to {event.seq - 1}"
        else:
            text = f"the log of {incarnation} has event {event.seq} after event {last}"
        self._report(Problem.LOG, place, text)

    def finish(self) -> list[Violation]:
        """Check what needs all logs; then return all violations kept."""
        self.roll.finish(
            [m.incarnation for m in self.members.values() if self._live and not m.stopped]
        )
        for parted in self._values.parted():
            names = sorted({name_of(place.incarnation) for place in parted.others})
            text = (
                f"{parted.place.incarnation} has another value of {parted.object!r} than "
                f"{', '.join(names)} after the same operations"
            )
            self._report(
                Problem.DIVERGED,
                parted.place,
                text,
                peers=tuple(dict.fromkeys(place.incarnation for place in parted.others)),
                object=parted.object,
            )
        self.counts["unstable"] = sum(
            max(0, counter - max(member.stable.get(origin, 0), member.excused.get(origin, 0)))
            for member in self.members.values()
            if self.roll.is_living(member)
            for origin, counter in member.vector.items()
        )
        return self.violations

    def absent(self) -> set[str]:
        """Names of members without a log."""
        origins = {origin for member in self.members.values() for origin in member.vector}
        names = {name_of(origin) for origin in origins - set(self.members)} | self.roll.names
        return names - {member.log.replica for member in self.members.values()}

    def _report(
        self,
        problem: Problem,
        place: LogPlace,
        sentence: str,
        dot: Dot | None = None,
        others: tuple[Dot, ...] = (),
        peers: tuple[str, ...] = (),
        object: str = "",
    ) -> None:
        self.counts["violations"] += 1
        if len(self.violations) < _KEPT:
            self.violations.append(
                Violation(problem, self._group, place, sentence, dot, others, peers, object)
            )
