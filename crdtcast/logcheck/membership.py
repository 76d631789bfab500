"""Who is a member, as each log tells it: joins, leaves, evictions with their cuts, and operations
that a member sends again after its return.

An id whose end has been swept away is not named by those who join later: they count as having all
of it (`Roll.has`).
"""

from collections.abc import Mapping

from crdtcast.eventfiles import Event, listed_members
from crdtcast.incarnation import name_of
from crdtcast.logcheck.knowledge import Member
from crdtcast.logcheck.violations import Place, Problem, Report
from crdtcast.tags import Dot, Vector, covers


class Roll:
    """The membership of one group. `ended`: incarnation -> the counter of its last message that
    counts; until `finish`, as far as any log tells."""

    def __init__(self, members: Mapping[str, Member], report: Report) -> None:
        self.ended: dict[str, int] = {}
        self.names: set[str] = set()
        """Of all that some START lists."""
        self._members = members
        self._report = report
        self._ends: dict[str, dict[str, tuple[Dot, Place]]] = {}  # who -> as which log tells it
        self._joins: dict[str, Dot] = {}
        self._ended_at: dict[str, dict[str, int]] = {}
        self._evicted_by: dict[str, dict[str, tuple[Dot, Place]]] = {}
        self._forced: set[tuple[str, str]] = set()  # at whom, of whom
        self._gave_up: set[str] = set()
        self._reissued: dict[Dot, list[tuple[Dot, Place]]] = {}
        self._first_dot: dict[Dot, Dot] = {}
        self._raised: dict[Dot, int] = {}  # the level that each raise asks for
        self.counts = {"joins": 0, "leaves": 0, "evictions": 0, "raises": 0, "reissues": 0}

    # --- what a member counts as having ---------------------------------------------------------

    def has(self, member: Member, origin: str, counter: int) -> bool:
        """Whether `member` has this message although its vector never named the origin: that had
        ended, and was forgotten, before `member` joined."""
        return counter <= self.past(member, origin)

    def past(self, member: Member, origin: str) -> int:
        """How many messages of an origin that was past when `member` joined it has; else 0."""
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
        """Whether a vector may leave out this origin: it has ended."""
        return origin in self.ended and origin not in vector

    def is_living(self, member: Member) -> bool:
        """Whether what it has counts in the end. Not so of one that has left or is evicted, that
        has delivered what is beyond an evicted one's cut, or whose own join is beyond it."""
        join = self._joins.get(member.incarnation)
        if not member.current or member.left or member.incarnation in self.ended:
            return False
        if join is not None and join.counter > self.ended.get(join.origin, join.counter):
            return False
        return all(member.vector.get(one, 0) <= cut for one, cut in self.ended.items())

    # --- events ---------------------------------------------------------------------------------

    def started(self, me: Member, event: Event, place: Place) -> None:
        """Members are listed as ids where they come and go, as names where they are fixed."""
        listed = listed_members(event)
        self.names.update(one.partition(".")[0] for one in listed)
        ids = {one for one in listed if name_of(one)}
        if ids:
            me.members = {*ids, me.incarnation}
            if event.level is not None:
                self._set_level(me, event.level, place)

    def joined(self, me: Member, event: Event, place: Place) -> None:
        """A line JOIN."""
        dot, joiner = event.dot, event.member
        if joiner is None:
            return
        if self._joins.setdefault(joiner, dot) != dot:
            text = f"{joiner} joins by {dot}, but elsewhere by {self._joins[joiner]}"
            self._report(Problem.MEMBERSHIP, place, text, dot, (self._joins[joiner],))
        elif not covers(me.vector, dot):
            text = f"{joiner} joins by {dot}, which {me.incarnation} has not delivered"
            self._report(Problem.MEMBERSHIP, place, text, dot, peers=(me.incarnation,))
        if dot.origin == me.incarnation:
            self.counts["joins"] += 1
        if me.members is not None:
            me.members.add(joiner)
        newcomer = self._members.get(joiner)
        if newcomer is None or newcomer is me:
            return
        if not covers(newcomer.base, dot):
            text = f"{joiner} begins without {dot}, by which it joins"
            self._report(Problem.MEMBERSHIP, place, text, dot, peers=(joiner,))
        lacking = [
            Dot(origin, newcomer.base.get(origin, 0) + 1)
            for origin, counter in me.stable.items()
            if newcomer.base.get(origin, 0) < counter and not self.has(newcomer, origin, counter)
        ]
        if lacking:
            text = (
                f"{joiner} begins without {lacking[0]}, which is stable at {me.incarnation}: "
                "what it sends before it has that is concurrent"
            )
            self._report(
                Problem.UNSAFE_STABLE, place, text, lacking[0], tuple(lacking[1:]), (joiner,)
            )

    def left(self, me: Member, event: Event, place: Place) -> None:
        """A line LEAVE. Whether a leaver's own counts, the others say: they may evict it first."""
        if event.dot.origin == me.incarnation:
            me.left = True
            self.counts["leaves"] += 1
        else:
            self._end(me, event.dot, place, "has left with")

    def evicted(self, me: Member, event: Event, place: Place) -> None:
        """A line EVICT. What a victim says of its own end is not what counts, but that it has ended."""
        victim = event.dot.origin
        if victim == me.incarnation:
            self._gave_up.add(victim)
        else:
            by = self._evicted_by.setdefault(victim, {})
            self.counts["evictions"] += not by
            by[me.incarnation] = event.dot, place
            if event.op == "forced":
                self._forced.add((me.incarnation, victim))
            self._end(me, event.dot, place, "is evicted with")

    def _end(self, me: Member, dot: Dot, place: Place, how: str) -> None:
        who, cut = dot
        self.ended[who] = max(cut, self.ended.get(who, 0))
        self._ends.setdefault(who, {})[me.incarnation] = dot, place
        if me.vector.get(who, 0) != cut and not self.has(me, who, cut):
            text = (
                f"{who} {how} {cut} messages at {me.incarnation}, which has delivered "
                f"{me.vector.get(who, 0)}"
            )
            self._report(Problem.MEMBERSHIP, place, text, dot, peers=(me.incarnation,))
        self._ended_at.setdefault(me.incarnation, {})[who] = cut
        if me.members is not None:
            me.members.discard(who)

    def check_delivery(self, me: Member, dot: Dot, place: Place) -> None:
        """`me` delivers `dot`: has its origin ended there?"""
        ended = self._ended_at.get(me.incarnation)
        if ended and dot.counter > ended.get(dot.origin, dot.counter):
            text = (
                f"{me.incarnation} delivers {dot}, but only {ended[dot.origin]} messages of "
                f"{dot.origin} count there, which has ended"
            )
            self._report(Problem.AFTER_END, place, text, dot, peers=(me.incarnation,))

    # --- the format level ------------------------------------------------------------------------

    def asked_to_raise(self, me: Member, event: Event, place: Place) -> None:
        """A line RAISE."""
        dot = event.dot
        self._note_raise(event, place)
        if not covers(me.vector, dot):
            text = f"{dot} raises the format level, but {me.incarnation} has not delivered it"
            self._report(Problem.MEMBERSHIP, place, text, dot, peers=(me.incarnation,))

    def level_in_force(self, me: Member, event: Event, place: Place) -> None:
        """A line LEVEL: all members have its raise then, so it has to be stable there, and no level ever falls."""
        dot, level = event.dot, event.level
        assert level is not None
        self._note_raise(event, place)
        if not covers(me.stable, dot):
            text = (
                f"{me.incarnation} uses format level {level} before {dot}, which raises it, is "
                "stable there: a member may not read it"
            )
            self._report(Problem.MEMBERSHIP, place, text, dot, peers=(me.incarnation,))
        self._set_level(me, level, place)

    def _note_raise(self, event: Event, place: Place) -> None:
        dot, level = event.dot, event.level
        assert level is not None
        if dot not in self._raised:
            self._raised[dot] = level
            self.counts["raises"] += 1
        elif self._raised[dot] != level:
            text = f"{dot} raises the format level to {level}, but elsewhere to {self._raised[dot]}"
            self._report(Problem.MEMBERSHIP, place, text, dot)

    def _set_level(self, me: Member, level: int, place: Place) -> None:
        if me.level is not None and level < me.level:
            text = f"the format level of {me.incarnation} falls from {me.level} to {level}"
            self._report(Problem.MEMBERSHIP, place, text, peers=(me.incarnation,))
        me.level = level

    # --- operations sent again ------------------------------------------------------------------

    def reissued(self, me: Member, dot: Dot, old: Dot, place: Place) -> None:
        """`me` sends `dot` for what was `old`."""
        self.counts["reissues"] += 1
        first = self._first_dot.get(old, old)
        self._first_dot[dot] = first
        earlier = [first, *(new for new, _ in self._reissued.get(first, []))]
        there = [one for one in earlier if covers(me.vector, one)]
        if name_of(old.origin) != name_of(me.incarnation):
            text = f"{dot} sends {old} again, which is not {me.log.replica}'s own"
            self._report(Problem.REISSUE, place, text, dot, (old,))
        elif there:
            text = f"{dot} sends {old} again, but {me.incarnation} has it already as {there[0]}"
            self._report(Problem.REISSUE, place, text, dot, tuple(there), (me.incarnation,))
        self._reissued.setdefault(first, []).append((dot, place))

    # --- at the end -----------------------------------------------------------------------------

    def finish(self) -> None:
        """All logs are read: do they agree, and does any operation count twice?

        What a member says that has ended itself need not agree: it may not have heard all.
        """
        untouched = [
            member.incarnation
            for member in self._members.values()
            if member.current and not member.left and member.incarnation not in self._ends
        ]
        self.ended = {
            who: max(
                dot.counter for by, (dot, _) in told.items() if by in untouched or not untouched
            )
            for who, told in self._ends.items()
            if not untouched or any(by in untouched for by in told)
        }
        living = [member for member in self._members.values() if self.is_living(member)]
        self._check_ends({member.incarnation for member in living})
        self._check_split()
        for first, again in self._reissued.items():
            dots = [(first, again[-1][1]), *again]
            count = [
                (dot, place)
                for dot, place in dots
                if any(covers(m.vector, dot) or self.has(m, *dot) for m in living)
            ]
            if len(count) > 1:
                dot, place = count[-1]
                text = f"{dot} sends {first} again, and {count[0][0]} counts as well"
                self._report(Problem.REISSUE, place, text, dot, (count[0][0],))
        quiet = [m for m in living if m.members is not None and m.claim is not None]
        for member in quiet[1:]:
            if member.members != quiet[0].members:
                assert member.members is not None and quiet[0].members is not None
                differ = ", ".join(sorted(member.members ^ quiet[0].members))
                assert member.claim is not None
                text = (
                    f"at rest, {member.incarnation} and {quiet[0].incarnation} differ on whether "
                    f"these are members: {differ}"
                )
                self._report(Problem.MEMBERSHIP, member.claim, text, peers=(quiet[0].incarnation,))
            elif None not in (levels := {member.level, quiet[0].level}) and len(levels) > 1:
                assert member.claim is not None
                text = (
                    f"at rest, {member.incarnation} uses format level {member.level} and "
                    f"{quiet[0].incarnation} {quiet[0].level}"
                )
                self._report(Problem.MEMBERSHIP, member.claim, text, peers=(quiet[0].incarnation,))

    def _check_ends(self, living: set[str]) -> None:
        for who, told in self._ends.items():
            ends = [(by, dot, place) for by, (dot, place) in told.items() if by in living]
            for by, dot, place in ends[1:]:
                first, agreed, _ = ends[0]
                if dot != agreed:
                    text = (
                        f"{who} has ended with {dot.counter} messages at {by}, with "
                        f"{agreed.counter} at {first}"
                    )
                    self._report(Problem.MEMBERSHIP, place, text, dot, peers=(first,))
                    break

    def _check_split(self) -> None:
        """Do two evict each other, and nobody both of them? Force may do that; one of the two sides
        has to be given up then.
        """
        for victim, by in self._evicted_by.items():
            for other, (dot, place) in by.items():
                evicted_other = self._evicted_by.get(other, {})
                thirds = by.keys() & evicted_other.keys()
                if victim in evicted_other and victim < other and not thirds:
                    forced = self._forced & {(victim, other), (other, victim)}
                    if forced and not (self._goes_on(victim) and self._goes_on(other)):
                        continue
                    text = f"{other} evicts {victim}, and {victim} has evicted it: two groups now"
                    self._report(Problem.MEMBERSHIP, place, text, dot, peers=(victim,))

    def _goes_on(self, incarnation: str) -> bool:
        """Not so of one that has come back as another, or was told that it is evicted."""
        member = self._members[incarnation]
        return member.current and not member.left and incarnation not in self._gave_up
