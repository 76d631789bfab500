"""Views as each log reports them: a chain in which each view follows from the one before by one decision.

Members that applied different decisions to one view are two groups. Only an operator can cause that, by force, and then
one of the two sides must surrender.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from crdtcast.causality.member_id import base_of, joined_by
from crdtcast.eventlog.check.knowledge import LoggedMember
from crdtcast.eventlog.check.violations import LogPlace, Problem, Report
from crdtcast.eventlog.format import Event, LoggedCut, LoggedView, view_after


@dataclass(slots=True)
class _Decision:
    """A decision that ended a view. by: the members that log it; place: the first line that does."""

    event: Event
    place: LogPlace
    forced: bool
    by: list[str] = field(default_factory=list)


class LoggedViews:
    """Checks the VIEW lines of one group, and the views in which its members begin."""

    def __init__(self, members: Mapping[str, LoggedMember], report: Report) -> None:
        self.counts: dict[str, int] = {"views": 0, "raises": 0}
        self._members = members
        self._report = report
        self._decisions: dict[str, dict[str, _Decision]] = {}
        """By the name of the view that ended, then of the view after it."""
        self._made: dict[str, tuple[str, str]] = {}
        """The view before each one, and the first member that logs so."""
        self._known: dict[str, tuple[LoggedView, str]] = {}
        """Views by name, with the first member that logs them."""
        self._begun: list[tuple[LoggedMember, LoggedView, tuple[LoggedCut, ...], LogPlace]] = []
        self._named: list[tuple[LoggedMember, str, str, LogPlace]] = []

    # START

    def started(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        """`me` begins or continues in a view. It may lack lines about the views before."""
        view = event.logged_view
        if view is None:
            return
        if (before := me.view) is not None:
            problem = None
            if view.epoch < before.epoch:
                problem, words = Problem.ROLLED_BACK, "which is older than"
            elif view.epoch == before.epoch and view.name != before.name:
                problem, words = Problem.VIEW, "which differs from"
            if problem is not None:
                text = (
                    f"{me.incarnation} starts again in {_said(view)}, {words} its {_said(before)}"
                )
                self._report(problem, place, text, peers=(me.incarnation,))
            if view.level < before.level:
                text = f"the format level of {me.incarnation} falls from {before.level} to {view.level}"
                self._report(Problem.VIEW, place, text, peers=(me.incarnation,))
        self._begun.append((me, view, event.cuts or (), place))
        self._enter(me, view, place)
        me.cuts = {cut.origin: cut for cut in event.cuts or ()}

    def _enter(self, me: LoggedMember, view: LoggedView, place: LogPlace) -> None:
        me.view = view
        known, first = self._known.setdefault(view.name, (view, me.incarnation))
        if known != view:
            text = (
                f"{_said(view)} has the voters {_listed(view.voters)} and format level {view.level} at "
                f"{me.incarnation}, but at {first} it is {_said(known)} with {_listed(known.voters)} and "
                f"{known.level}"
            )
            self._report(Problem.VIEW, place, text, peers=(first,))

    # VIEW

    def decided(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        """Check a VIEW line."""
        assert event.epoch is not None and event.view is not None and event.before is not None
        before = me.view or LoggedView(event.epoch - 1, event.before, (), 1)
        if (event.epoch, event.before) != (before.epoch + 1, before.name):
            text = (
                f"{me.incarnation} is in {_said(before)}, but logs that view {event.view} of "
                f"epoch {event.epoch} follows view {event.before}"
            )
            self._report(Problem.VIEW, place, text, peers=(me.incarnation,))
        if event.sent is not None and event.sent != (sent := me.vector.get(me.incarnation, 0)):
            text = (
                f"{me.incarnation} logs that it had sent {event.sent} messages by epoch "
                f"{event.epoch}, but its log has {sent}"
            )
            self._report(Problem.VIEW, place, text, peers=(me.incarnation,))
        self._check_agreed(me, event, place)
        self._check_out(me, event, place)
        self._check_votes(me, before, event, place)
        self._check_cuts(me, event, place)
        self._enter(me, view_after(before, event), place)
        me.cuts |= {cut.origin: cut for cut in event.cuts or () if cut.origin not in me.ended}
        if (cut := me.cuts.get(me.incarnation)) is not None:
            me.left = True
            me.over |= cut.how != "left"

    def _check_agreed(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        assert event.before is not None and event.view is not None
        rivals = self._decisions.setdefault(event.before, {})
        same = rivals.get(event.view)
        if same is None:
            self.counts["views"] += not rivals
            self.counts["raises"] += not rivals and event.level is not None
            same = rivals[event.view] = _Decision(event, place, event.is_forced)
            there, other_log = self._made.setdefault(event.view, (event.before, me.incarnation))
            if there != event.before:
                text = (
                    f"{me.incarnation} and {other_log} differ on the view before view "
                    f"{event.view} of epoch {event.epoch}: {event.before} here, {there} there"
                )
                self._report(Problem.VIEW, place, text, peers=(other_log,))
            for other in rivals.values():
                if other is not same and not (other.forced or same.forced):
                    text = (
                        f"{me.incarnation} and {other.by[0]} differ on epoch {event.epoch}: view "
                        f"{event.view} here, {other.event.view} there, and neither is forced"
                    )
                    self._report(Problem.VIEW, place, text, peers=(other.by[0],))
        elif differ := _difference(same.event, event):
            text = (
                f"{me.incarnation} and {same.by[0]} differ on the change that makes view "
                f"{event.view} of epoch {event.epoch}: {differ}"
            )
            self._report(Problem.VIEW, place, text, peers=(same.by[0],))
        same.by.append(me.incarnation)

    def _check_out(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        cuts = {cut.origin for cut in event.cuts or ()}
        for who in event.out or ():
            self._named.append((me, who, "removes", place))
            if who not in cuts:
                text = (
                    f"epoch {event.epoch} removes {who} at {me.incarnation}, but gives no end for "
                    "it"
                )
                self._report(Problem.VIEW, place, text)
            if who in me.cuts or who in me.ended:
                text = (
                    f"epoch {event.epoch} removes {who} at {me.incarnation}, which had ended before"
                )
                self._report(Problem.VIEW, place, text)

    def _check_votes(
        self, me: LoggedMember, before: LoggedView, event: Event, place: LogPlace
    ) -> None:
        voters = set(before.voters)
        for who in event.votes or ():
            self._named.append((me, who, "gives a vote to", place))
            if who in voters:
                wrong = "which already has one"
            elif who in me.cuts or who in me.ended or who in (event.out or ()):
                wrong = "which has ended"
            else:
                voters.add(who)
                continue
            text = f"epoch {event.epoch} gives a vote to {who} at {me.incarnation}, {wrong}"
            self._report(Problem.VIEW, place, text, peers=(me.incarnation,))

    def _check_cuts(self, me: LoggedMember, event: Event, place: LogPlace) -> None:
        for cut in event.cuts or ():
            who, counter, how = cut
            known, ended = me.cuts.get(who), me.ended.get(who)
            wrong = ""
            if ended is not None and ended != counter:
                wrong = f"it ended there with {ended}"
            elif known is not None and (counter > known.counter or how != known.how):
                wrong = f"it was {known.how} with {known.counter}"
            elif (
                known is None
                and ended is None
                and who in (me.members or ())
                and who not in (event.out or ())
            ):
                wrong = "it goes on"
            if wrong:
                text = (
                    f"epoch {event.epoch} says at {me.incarnation} that {who} is {how} with "
                    f"{counter} messages, but {wrong}"
                )
                self._report(Problem.VIEW, place, text, cut.dot, peers=(me.incarnation,))
            elif who != me.incarnation and me.vector.get(who, 0) > counter:
                me.beyond = cut

    # What must follow a decision

    def acts(self, me: LoggedMember, place: LogPlace) -> None:
        """`me` sends, delivers or is notified of stability: so it continues, and must have logged the members that
        ended.
        """
        if me.over:
            return
        if (cut := me.beyond) is not None:
            me.beyond = None
            text = (
                f"{me.incarnation} goes on, but has delivered {me.vector.get(cut.origin, 0)} "
                f"messages of {cut.origin}, of which only {cut.counter} count"
            )
            self._report(Problem.AFTER_END, place, text, cut.dot, peers=(me.incarnation,))
        for who, cut in list(me.cuts.items()):
            is_due = me.members is not None and who in me.members and who != me.incarnation
            if is_due and me.vector.get(who, 0) == cut.counter:
                del me.cuts[who]
                text = (
                    f"{me.incarnation} has delivered all {cut.counter} messages that count of "
                    f"{who}, which is {cut.how}, but does not log its end"
                )
                self._report(Problem.MEMBERSHIP, place, text, cut.dot, peers=(me.incarnation,))

    # At the end

    def finish(self, open_ends: Iterable[str]) -> None:
        """All logs are read. open_ends: incarnations whose logs may be incomplete."""
        open_ends = set(open_ends)
        everybody = set(self._members).union(*(member.known for member in self._members.values()))
        for me, who, what, place in self._named:
            if who in me.known or me.incarnation in open_ends:
                continue
            if who not in everybody or not _may_join_later(me, who):
                text = (
                    f"{me.incarnation} logs that a view {what} {who}, which it never logs as a "
                    "member"
                )
                self._report(Problem.VIEW, place, text, peers=(me.incarnation,))
        self._check_beginnings()
        self._check_sides()

    def _check_beginnings(self) -> None:
        decided: dict[int, set[str]] = {}
        parted = [
            d for rivals in self._decisions.values() if len(rivals) > 1 for d in rivals.values()
        ]
        two_groups_since = min((d.event.epoch or 0 for d in parted), default=float("inf"))
        for before, decision in self._all():
            epoch = decision.event.epoch or 0
            decided.setdefault(epoch, set()).add(decision.event.view or "")
            decided.setdefault(epoch - 1, set()).add(before)
        begun: dict[int, tuple[str, str]] = {}
        for me, view, cuts, place in self._begun:
            names = decided.get(view.epoch, set())
            first, other = begun.setdefault(view.epoch, (view.name, me.incarnation))
            if view.epoch >= two_groups_since:
                continue
            if (names and view.name not in names) or (not names and view.name != first):
                there = (
                    f"view {first} at {other}" if not names else f"view {', '.join(sorted(names))}"
                )
                text = f"{me.incarnation} starts in {_said(view)}, but elsewhere this is {there}"
                self._report(Problem.VIEW, place, text, peers=(other,))
                continue
            for cut in cuts:
                stated = self._stated(view.name, cut.origin)
                if stated is not None and stated != cut:
                    text = (
                        f"{me.incarnation} starts with {cut.origin}, {cut.how} with {cut.counter} "
                        f"messages, but its view says: {stated.how} with {stated.counter}"
                    )
                    self._report(Problem.VIEW, place, text, cut.dot)

    def _all(self) -> Iterable[tuple[str, _Decision]]:
        return [(before, d) for before, rivals in self._decisions.items() for d in rivals.values()]

    def _stated(self, name: str, who: str) -> LoggedCut | None:
        """The cut of a removed incarnation, by the decisions up to this view; None if no log has it."""
        made = {d.event.view: (before, d.event) for before, d in self._all()}
        while (step := made.pop(name, None)) is not None:
            name, event = step
            for cut in event.cuts or ():
                if cut.origin == who:
                    return cut
        return None

    def _check_sides(self) -> None:
        for rivals in self._decisions.values():
            sides = [(d, [x for x in d.by if self._goes_on(x)]) for d in rivals.values()]
            sides = [(decision, on) for decision, on in sides if on]
            if len(sides) > 1 and any(decision.forced for decision, _ in sides):
                (_, ones), (decision, others) = sides[:2]
                text = (
                    f"{ones[0]} and {others[0]} have been two groups since epoch "
                    f"{decision.event.epoch}, by force, and both go on"
                )
                self._report(Problem.VIEW, decision.place, text, peers=(ones[0],))

    def _goes_on(self, incarnation: str) -> bool:
        """Whether it has no newer incarnation, has not left, and was not removed."""
        member = self._members[incarnation]
        return member.current and not member.left


def _may_join_later(me: LoggedMember, who: str) -> bool:
    """Whether the log of `me` ends before the message by which this incarnation joins."""
    let_in = joined_by(who)
    if let_in is None:
        return False
    contact, counter = let_in
    return all(n < counter for origin, n in me.vector.items() if base_of(origin) == contact)


def _said(view: LoggedView) -> str:
    return f"view {view.name} of epoch {view.epoch}"


def _listed(who: Iterable[str]) -> str:
    return "{" + ", ".join(who) + "}"


def _difference(one: Event, other: Event) -> str:
    """The part of a decision in which two lines differ, and how."""
    for name in ("epoch", "out", "cuts", "votes", "level"):
        first, second = getattr(one, name) or (), getattr(other, name) or ()
        if first != second:
            return f"{name} {_shown(second)} and {_shown(first)}"
    return ""


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        words = [f"{c.dot} {c.how}" if isinstance(c, LoggedCut) else str(c) for c in value]
        return _listed(words)
    return str(value)
