"""Stability from its definition (Younes, dissertation 2023, chapter 3).

When a member is notified that x is stable, every member that it knows has delivered x, and it has delivered all that
each of them had sent before delivering x. So no message concurrent with x can come any more. Notices come once, and in
causal order.
"""

from collections.abc import Iterable, Iterator, Mapping

from crdtcast.causality.tags import Dot
from crdtcast.eventlog.check.knowledge import LoggedMember, LoggedMessage, Messages, missing
from crdtcast.eventlog.check.membership import Roll
from crdtcast.eventlog.check.violations import LogPlace, Problem, Report, listed


class Notices:
    """Checks the stability notices of one group.

    :param live: a log that does not end in a clean stop may be incomplete.
    """

    def __init__(
        self,
        members: Mapping[str, LoggedMember],
        messages: Messages,
        roll: Roll,
        report: Report,
        *,
        live: bool,
    ) -> None:
        self._members = members
        self._messages = messages
        self._roll = roll
        self._report = report
        self._live = live
        self._superseded = [member for member in members.values() if not member.current]

    def told(self, me: LoggedMember, dot: Dot, place: LogPlace) -> None:
        """`me` is notified that this message is stable."""
        origin, counter = dot
        if me.vector.get(origin, 0) < counter and not self._roll.has(me, origin, counter):
            text = f"{me.incarnation} reports {dot} stable, but has not delivered it"
            self._report(Problem.STABLE_UNDELIVERED, place, text, dot, peers=(me.incarnation,))
            return
        told = me.stable.get(origin, 0)
        if counter <= told and dot not in me.skipped:
            text = f"{me.incarnation} reports {dot} stable a second time"
            self._report(Problem.STABLE_TWICE, place, text, dot)
            return
        message = self._messages.get(origin, counter)
        self._check_order(me, dot, message, place)
        if message is not None:
            self._check_safe(me, dot, message, place)
        me.skipped.discard(dot)
        if counter > told:
            me.stable[origin] = counter
            first = max(told, me.excused.get(origin, 0)) + 1
            me.skipped.update(Dot(origin, skipped) for skipped in range(first, counter))

    def _check_order(
        self, me: LoggedMember, dot: Dot, message: LoggedMessage | None, place: LogPlace
    ) -> None:
        origin, counter = dot
        late = [] if me.is_told_stable(origin, counter - 1) else [Dot(origin, counter - 1)]
        if message is not None and message.truth:
            late += [
                dep
                for dep in missing(me.stable, message.truth.items())
                if not me.is_told_stable(*dep) and not self._roll.has(me, *dep)
            ]
        if late:
            if late[0].origin == origin:
                late[0] = Dot(origin, me.stable.get(origin, 0) + 1)
            text = (
                f"{me.incarnation} reports {dot} stable, but not {listed(late)}, which it depends "
                "on"
            )
            self._report(
                Problem.STABLE_ORDER,
                place,
                text,
                dot,
                tuple(dict.fromkeys(late)),
                (me.incarnation,),
            )

    def _check_safe(
        self, me: LoggedMember, dot: Dot, message: LoggedMessage, place: LogPlace
    ) -> None:
        vector = me.vector
        for incarnation, sent in message.before.items():
            if sent > vector.get(incarnation, 0) and self._is_to_come(me, incarnation):
                self._early(me, dot, incarnation, vector.get(incarnation, 0), place)
                break
        for member in self._superseded:
            # A message that an ended incarnation has sent, and no member has, cannot come any more.
            if member is not me:
                before = message.before.get(member.incarnation, float("inf"))
                if before > me.barred.get(member.incarnation, 0) and member.exhausted:
                    me.barred[member.incarnation] = before
        for member in self.lacking(me, dot, message):
            if not member.exhausted:
                have = vector.get(member.incarnation, 0)
                member.promised.append((me, place, dot, have))
            elif self._owes(member, dot):
                self._never_delivered(me, member, dot, place)

    def _owes(self, member: LoggedMember, dot: Dot) -> bool:
        """Whether a log that ended without this message should have it."""
        open_end = self._live and not member.stopped
        return member.current and not open_end and not self._roll.has(member, *dot)

    def _is_to_come(self, me: LoggedMember, incarnation: str) -> bool:
        """Whether all that this member has sent will reach `me`, because it has not ended at `me`."""
        if me.members is not None and incarnation not in me.members:
            return False
        return self._members[incarnation].current

    def lacking(self, me: LoggedMember, dot: Dot, message: LoggedMessage) -> Iterator[LoggedMember]:
        """Members, as `me` knows them, that have not delivered this message yet."""
        before = message.before
        if len(before) == len(self._members):
            return
        for member in self._members_of(me):
            if (
                member.incarnation not in before
                and member is not me
                and not self._roll.has(member, *dot)
            ):
                yield member

    def _members_of(self, me: LoggedMember) -> Iterable[LoggedMember]:
        if me.members is None:
            return self._members.values()
        known = self._members
        return [known[incarnation] for incarnation in sorted(me.members) if incarnation in known]

    def delivered(self, me: LoggedMember, dot: Dot) -> None:
        """`me` has now delivered a message that was stable elsewhere before."""
        kept = [promise for promise in me.promised if promise[2] == dot]
        me.promised = [promise for promise in me.promised if promise[2] != dot]
        sent = me.vector.get(me.incarnation, 0)
        for other, place, _, have in kept:
            if sent > have and me.current:
                self._early(other, dot, me.incarnation, have, place)

    def exhausted(self, me: LoggedMember) -> None:
        """The log of `me` has ended: check messages that were stable elsewhere and that it has not delivered."""
        for other, place, dot, _ in me.promised:
            if self._owes(me, dot):
                self._never_delivered(other, me, dot, place)
        me.promised.clear()

    def _early(self, me: LoggedMember, dot: Dot, sender: str, have: int, place: LogPlace) -> None:
        to_come = Dot(sender, have + 1)
        text = (
            f"{me.incarnation} reports {dot} stable, but {to_come} can still arrive: {sender} "
            f"sent it before it delivered {dot}"
        )
        self._report(Problem.UNSAFE_STABLE, place, text, dot, (to_come,), (sender,))

    def _never_delivered(
        self, me: LoggedMember, member: LoggedMember, dot: Dot, place: LogPlace
    ) -> None:
        text = (
            f"{me.incarnation} reports {dot} stable, but the log of {member.incarnation} ends "
            "without it"
        )
        self._report(Problem.UNSAFE_STABLE, place, text, dot, peers=(member.incarnation,))
