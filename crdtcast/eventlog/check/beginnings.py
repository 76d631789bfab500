"""Where a log begins or continues: the START of a founder, of a joiner with the vector of its snapshot, of a new
incarnation with what the last one had synced, or of a restart.
"""

from collections.abc import Callable, Mapping

from crdtcast.causality.tags import Dot
from crdtcast.eventlog.check.knowledge import (
    LoggedMember,
    LoggedMessage,
    Messages,
    missing,
    told_stable,
)
from crdtcast.eventlog.check.membership import Roll
from crdtcast.eventlog.check.violations import LogPlace, Problem, Report, listed
from crdtcast.eventlog.format import Event


class Beginnings:
    """Checks the beginnings in the logs of one group.

    :param unlogged: makes a message whose sending is in no log.
    :param may_lack: whether the log of this origin may lack messages that it sent.
    """

    def __init__(
        self,
        members: Mapping[str, LoggedMember],
        messages: Messages,
        roll: Roll,
        report: Report,
        *,
        unlogged: Callable[[Dot], LoggedMessage],
        may_lack: Callable[[str], bool],
    ) -> None:
        self._members = members
        self._messages = messages
        self._roll = roll
        self._report = report
        self._unlogged = unlogged
        self._may_lack = may_lack

    def started(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        """`me` begins, or continues after a restart."""
        vector = {origin: counter for origin, counter in (event.vector or {}).items() if counter}
        if me.begun:
            self._check_goes_on(me, vector, place)
        else:
            if event.deps is None:
                me.excused = dict(vector)
            self._check_base(me, vector, place)
        for origin, counter in told_stable(event, {}).items():
            me.stable[origin] = max(counter, me.stable.get(origin, 0))
        gained = missing(me.vector, vector.items())
        for dot in gained:
            first = max(me.vector.get(dot.origin, 0) + 1, self._messages.low(dot.origin))
            for counter in range(first, dot.counter + 1):
                self._take_over(me, Dot(dot.origin, counter))
            me.vector[dot.origin] = me.given[dot.origin] = dot.counter
        if gained:
            me.context = self._messages.maximal(me.vector)

    def _take_over(self, me: LoggedMember, dot: Dot) -> None:
        message = self._messages.get(*dot)
        if dot.origin == me.incarnation and message is None:
            # Its log lacks the line; the START says that the message was sent.
            message = self._unlogged(dot)
            message.before[me.incarnation] = dot.counter
        elif message is not None:
            message.before.setdefault(me.incarnation, me.vector.get(me.incarnation, 0))

    def _check_goes_on(self, me: LoggedMember, vector: dict[str, int], place: LogPlace) -> None:
        lost = [
            Dot(origin, vector.get(origin, 0) + 1)
            for origin, counter in me.vector.items()
            if vector.get(origin, 0) < counter and not self._roll.is_over(origin, vector)
        ]
        if lost:
            text = (
                f"{me.incarnation} starts again from a state before {listed(lost)}, which it had "
                "delivered"
            )
            self._report(
                Problem.ROLLED_BACK, place, text, lost[0], tuple(lost[1:]), (me.incarnation,)
            )

    def _check_base(self, me: LoggedMember, vector: dict[str, int], place: LogPlace) -> None:
        for origin, counter in vector.items():
            dot = Dot(origin, counter)
            message = self._messages.get(origin, counter)
            sender = self._members.get(origin)
            if message is None:
                if (
                    sender is not None
                    and sender is not me
                    and sender.vector.get(origin, 0) < counter
                    and not self._may_lack(origin)
                ):
                    text = f"{me.incarnation} starts with {dot}, which no log has sent"
                    self._report(Problem.GHOST, place, text, dot, peers=(origin,))
                continue
            message.before.setdefault(me.incarnation, 0)
        for dot, later in self._messages.gaps(vector):
            if not self._roll.has(me, *dot):
                text = (
                    f"{me.incarnation} starts with {later}, but without {dot}, which {later} "
                    "depends on"
                )
                self._report(Problem.CAUSAL, place, text, dot, (later,))
