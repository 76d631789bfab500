"""Membership as each log reports it: joins, the ends of members, and operations that a member sends again after its
return.

A joiner does not name ids whose end was swept before: it counts as having all their messages (`Roll.has`).
"""

from collections.abc import Iterable, Mapping

from crdtcast.causality.member_id import base_of, joined_by, name_of
from crdtcast.causality.tags import Dot, Vector, covers
from crdtcast.eventlog.check.knowledge import LoggedMember
from crdtcast.eventlog.check.views import LoggedViews
from crdtcast.eventlog.check.violations import LogPlace, Problem, Report
from crdtcast.eventlog.format import Event, listed_members


class Roll:
    """The membership of one group. `ended`: incarnation -> counter of its last message that counts; until `finish`, as
    far as the logs report so far."""

    def __init__(self, members: Mapping[str, LoggedMember], report: Report) -> None:
        self.ended: dict[str, int] = {}
        self.names: set[str] = set()
        """Names of all members that a START lists."""
        self.views: LoggedViews = LoggedViews(members, report)
        self._members = members
        self._report = report
        self._ends: dict[str, dict[str, int]] = {}  # incarnation -> reporter -> messages
        self._joins: dict[str, Dot] = {}
        self._tellers: dict[str, list[tuple[LoggedMember, LogPlace]]] = {}
        self._listed: set[str] = set()  # in the START of another member
        self._expected = {let_in: one for one in members if (let_in := joined_by(one)) is not None}
        self._reissued: dict[Dot, list[tuple[Dot, LogPlace]]] = {}
        self._first_dot: dict[Dot, Dot] = {}
        self.counts: dict[str, int] = {"joins": 0, "leaves": 0, "evictions": 0, "reissues": 0}

    # --- what a member counts as having ---------------------------------------------------------

    def has(self, member: LoggedMember, origin: str, counter: int) -> bool:
        """Whether `member` has this message although its vector never named the origin, because that had ended and was
        swept before `member` joined."""
        return counter <= self.past(member, origin)

    def past(self, member: LoggedMember, origin: str) -> int:
        """How many messages `member` has of an origin that was swept before it joined; 0 for any other origin."""
        if (
            origin not in self.ended
            or origin in member.named
            or member.incarnation not in self._joins
        ):
            return 0
        first = origin
        while (join := self._joins.get(first)) is not None and not covers(member.base, join):
            if join.origin in member.named:
                return 0  # it joined later than `member`
            first = join.origin
        return self.ended[origin] if first in self.ended else 0

    def is_over(self, origin: str, vector: Vector) -> bool:
        """Whether a vector may omit this origin, because it has ended."""
        return origin in self.ended and origin not in vector

    def is_living(self, member: LoggedMember) -> bool:
        """Whether its state counts at the end. It does not if it has left or is evicted, if it has delivered messages
        beyond the cut of an evicted member, or if its own join is beyond such a cut."""
        join = self._joins.get(member.incarnation)
        if not member.current or member.left or member.incarnation in self.ended:
            return False
        if join is not None and join.counter > self.ended.get(join.origin, join.counter):
            return False
        return all(member.vector.get(one, 0) <= cut for one, cut in self.ended.items())

    # --- events ---------------------------------------------------------------------------------

    def started(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        """Check a START. It lists ids if the group's members can change, names if they are fixed."""
        listed = listed_members(event)
        self.names.update(one.partition(".")[0] for one in listed)
        ids = {one for one in listed if name_of(one)}
        if ids:
            for who in sorted((me.members or set()) - ids - {me.incarnation}):
                self._silently_gone(me, who, event, place)
            me.members = {*ids, me.incarnation}
            me.known |= me.members
            self._listed.update(ids - {me.incarnation})
            self.views.started(me, event, place)
            if me.incarnation not in me.cuts:
                me.left = me.over = False  # it may have lost the news of its own end in a crash

    def _silently_gone(self, me: LoggedMember, who: str, event: Event, place: LogPlace) -> None:
        """A START lists it no more. Only a START of a later view may stand for the missing lines."""
        if me.view is not None and event.epoch == me.view.epoch:
            text = f"{me.incarnation} starts again without {who}, but does not log its end"
            self._report(Problem.MEMBERSHIP, place, text, peers=(me.incarnation,))
        me.ended.setdefault(who, me.vector.get(who, 0))

    def joined(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        """Check a JOIN line."""
        dot, joiner = event.dot, event.member
        if joiner is None:
            return
        expected = self._expected.setdefault((base_of(dot.origin), dot.counter), joiner)
        if joined_by(joiner) != (base_of(dot.origin), dot.counter):
            text = f"{me.incarnation} logs that {joiner} joins by {dot}, which contradicts its id"
            self._report(Problem.MEMBERSHIP, place, text, dot)
        elif expected != joiner:
            text = f"{me.incarnation} logs that {joiner} joins by {dot}, but {expected} joins by it"
            self._report(Problem.MEMBERSHIP, place, text, dot, peers=(expected,))
        elif not covers(me.vector, dot):
            text = f"{joiner} joins by {dot}, which {me.incarnation} has not delivered"
            self._report(Problem.MEMBERSHIP, place, text, dot, peers=(me.incarnation,))
        elif joiner in me.known:
            text = f"{me.incarnation} logs a second time that {joiner} joins"
            self._report(Problem.MEMBERSHIP, place, text, dot, peers=(me.incarnation,))
        else:
            self._tellers.setdefault(joiner, []).append((me, place))
        self._joins.setdefault(joiner, dot)
        if dot.origin == me.incarnation:
            self.counts["joins"] += 1
        me.known.add(joiner)
        if me.members is not None:
            me.members.add(joiner)
        newcomer = self._members.get(joiner)
        if newcomer is None or newcomer is me:
            return
        if not covers(newcomer.base, dot):
            text = f"{joiner} starts without {dot}, by which it joins"
            self._report(Problem.MEMBERSHIP, place, text, dot, peers=(joiner,))
        lacking = [
            Dot(origin, newcomer.base.get(origin, 0) + 1)
            for origin, counter in me.stable.items()
            if newcomer.base.get(origin, 0) < counter and not self.has(newcomer, origin, counter)
        ]
        if lacking:
            text = (
                f"{joiner} starts without {lacking[0]}, which is stable at {me.incarnation}: its "
                "messages before delivering that are concurrent with it"
            )
            self._report(
                Problem.UNSAFE_STABLE, place, text, lacking[0], tuple(lacking[1:]), (joiner,)
            )

    def left(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        """Check a LEFT line."""
        self._ended(me, event, place, "left", "left with")

    def evicted(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        """Check an EVICT line."""
        how = "forced" if event.is_forced else "evicted"
        self._ended(me, event, place, how, "was evicted with")

    def _ended(self, me: LoggedMember, event: Event, place: LogPlace, how: str, words: str) -> None:
        """A VIEW says where a member ends, and everything up to there is delivered. What an incarnation that is no
        longer a member says of its own end may be hearsay.
        """
        dot = event.dot
        who, counter = dot
        text = f"{who} {words} {counter} messages at {me.incarnation}"
        cut = me.cuts.pop(who, None)
        if who == me.incarnation:
            me.left = True
            me.over |= how != "left"
            if cut is not None:
                me.ended[who] = cut.counter
            if how == "left" and cut is None:
                text += ", but no VIEW there removes it"
                self._report(Problem.MEMBERSHIP, place, text, dot)
            return
        self.ended[who] = max(counter, self.ended.get(who, 0))
        told = self._ends.setdefault(who, {})
        if not told:
            self.counts["leaves" if how == "left" else "evictions"] += 1
        told[me.incarnation] = counter
        wrong = ""
        if cut is None:
            wrong = "which had ended before" if who in me.ended else "but no VIEW there removes it"
        elif (counter, how) != (cut.counter, cut.how):
            wrong = f"but its VIEW says: {cut.how} with {cut.counter}"
        elif me.vector.get(who, 0) != counter and not self.has(me, who, counter):
            wrong = f"which has delivered {me.vector.get(who, 0)}"
        if wrong:
            self._report(
                Problem.MEMBERSHIP, place, f"{text}, {wrong}", dot, peers=(me.incarnation,)
            )
        me.ended[who] = counter
        if me.members is not None:
            me.members.discard(who)

    def check_delivery(self, me: LoggedMember, dot: Dot, place: LogPlace) -> None:
        """Check that `dot`, which `me` delivers, is not beyond the end of its origin."""
        cut = me.cuts.get(dot.origin)
        last = me.ended.get(dot.origin) if cut is None else cut.counter
        if last is not None and dot.counter > last:
            text = (
                f"{me.incarnation} delivers {dot}, but only {last} messages of {dot.origin} count "
                "there"
            )
            self._report(Problem.AFTER_END, place, text, dot, peers=(me.incarnation,))

    # --- operations sent again ------------------------------------------------------------------

    def reissued(self, me: LoggedMember, dot: Dot, old: Dot, place: LogPlace) -> None:
        """`me` sends the operation of `old` again, as `dot`."""
        self.counts["reissues"] += 1
        first = self._first_dot.get(old, old)
        self._first_dot[dot] = first
        earlier = [first, *(new for new, _ in self._reissued.get(first, []))]
        there = [one for one in earlier if covers(me.vector, one)]
        if name_of(old.origin) != name_of(me.incarnation):
            text = f"{dot} sends {old} again, which another member than {me.log.replica} sent"
            self._report(Problem.REISSUE, place, text, dot, (old,))
        elif there:
            text = f"{dot} sends {old} again, but {me.incarnation} already has it as {there[0]}"
            self._report(Problem.REISSUE, place, text, dot, tuple(there), (me.incarnation,))
        self._reissued.setdefault(first, []).append((dot, place))

    # --- at the end -----------------------------------------------------------------------------

    def finish(self, open_ends: Iterable[str] = ()) -> None:
        """All logs are read: check that they agree, and that no operation counts twice. open_ends: incarnations whose
        logs may be incomplete.
        """
        open_ends = set(open_ends)
        untouched = [
            member.incarnation
            for member in self._members.values()
            if member.current and not member.left and member.incarnation not in self._ends
        ]
        self.ended = {
            who: max(counter for by, counter in told.items() if by in untouched or not untouched)
            for who, told in self._ends.items()
            if not untouched or any(by in untouched for by in told)
        }
        self.views.finish(open_ends)
        self._check_joins(open_ends)
        living = [member for member in self._members.values() if self.is_living(member)]
        for first, again in self._reissued.items():
            dots = [(first, again[-1][1]), *again]
            count = [
                (dot, place)
                for dot, place in dots
                if any(covers(m.vector, dot) or self.has(m, *dot) for m in living)
            ]
            if len(count) > 1:
                dot, place = count[-1]
                text = f"{dot} sends {first} again, but {count[0][0]} counts as well"
                self._report(Problem.REISSUE, place, text, dot, (count[0][0],))
        self._check_rest([m for m in living if m.members is not None and m.claim is not None])

    def _check_joins(self, open_ends: set[str]) -> None:
        """Check that each log that has delivered a join operation says whom it admits."""
        for joiner, dot in self._joins.items():
            tellers = self._tellers.get(joiner, [])
            lack = [
                member
                for member in self._members.values()
                if covers(member.vector, dot)
                and not covers(member.given, dot)
                and joiner not in member.known
                and member.incarnation not in open_ends
                and member.last != dot
            ]
            if lack and not (joiner in self._members or joiner in self._listed) and tellers:
                me, place = tellers[0]
                text = (
                    f"{me.incarnation} logs that {joiner} joins by {dot}, but "
                    f"{lack[0].incarnation}, which has delivered {dot}, does not"
                )
                self._report(Problem.MEMBERSHIP, place, text, dot, peers=(lack[0].incarnation,))
            elif tellers:
                for member in lack:
                    text = (
                        f"{member.incarnation} has delivered {dot}, but does not log that "
                        f"{joiner} joins by it, as {tellers[0][0].incarnation} does"
                    )
                    place = member.end or tellers[0][1]
                    self._report(Problem.MEMBERSHIP, place, text, dot, peers=(member.incarnation,))

    def _check_rest(self, quiet: list[LoggedMember]) -> None:
        """Check that at rest all members in one view have the same members."""
        for member in quiet[1:]:
            first = next(m for m in quiet if m.view == member.view)
            if member.members != first.members:
                assert member.members is not None and first.members is not None
                differ = ", ".join(sorted(member.members ^ first.members))
                assert member.claim is not None
                text = (
                    f"at the end, {member.incarnation} and {first.incarnation} differ on the "
                    f"members: {differ}"
                )
                self._report(Problem.MEMBERSHIP, member.claim, text, peers=(first.incarnation,))
