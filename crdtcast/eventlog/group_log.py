"""The event log of one member of a group with changing members: it passes what a `GroupEngine` did to an `EventLog`, in
the application's order. For runtimes and simulations.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from crdtcast.causality.member_id import base_of, joined_by, joined_id
from crdtcast.causality.messages import Delivery, Message
from crdtcast.causality.tags import Dot, Tag, covers
from crdtcast.engine import Cut, GroupEngine, How, Standing
from crdtcast.engine.operations import Join, decode
from crdtcast.engine.views import Decided, View
from crdtcast.eventlog.format import LoggedCut, LoggedView
from crdtcast.eventlog.writer import EventLog

_DOT: Callable[[Message], Dot] = attrgetter("dot")
_KIND: Callable[[Message], int] = attrgetter("kind")


class GroupLog:
    """Logs a member in one of two ways; a log keeps to the way it began with.

    If the engine is only as far as the log: call `polled` for each delivery, `sent` for each own message, `stable` for
    each batch of notices, and `issued` after any other call that may send membership operations or decide something.
    Pass the tags that `GroupEngine.take_issued` has returned since: an operation of the engine itself gets a SEND line,
    too, and its effects follow that line.

    If the engine may be ahead of the log: call `happened` for each message and `decided` for each decision, in the
    order in which they came. Joins and ends follow from these alone.

    A log that continues may be behind its engine until `start`: first call `catch_up` or `so_far`, then `happened` for
    what it lacks.
    """

    def __init__(self, engine: GroupEngine, log: EventLog) -> None:
        self._engine = engine
        self._log = log
        self._members = set(log.members)
        self._view = None if log.view is None else _view(log.view)
        self._cuts = {who: Cut(cut.counter, How[cut.how.upper()]) for who, cut in log.cuts.items()}
        self._ended: set[str] = set()  # their ends are logged, and may be stated again
        if log.view is not None and engine.me not in self._members:
            self._ended.add(engine.me)
        self._over = False

    def start(self, own: int | None = None) -> None:
        """The engine was founded, has joined, or continues after a restart.

        own: how many messages this incarnation had sent by then, if the engine sent some itself as soon as it was made.
        """
        engine = self._engine
        vector = engine.vector if own is None else {**engine.vector, engine.me: own}
        self._view, self._members = engine.view, set(engine.members)
        self._cuts = dict(engine.cut_short())
        self._ended = set(engine.ended)
        self._over = False
        engine.take_decisions()  # the view already includes them
        self._log.start(
            vector,
            engine.members,
            engine.stable,
            view=_logged(engine.view),
            cuts=_logged_cuts(sorted(self._cuts.items())),
        )

    # The engine is as far as the log

    def polled(self, delivery: Delivery, issued: Iterable[Tag] = ()) -> None:
        """`poll` has returned this delivery."""
        self._decisions()
        self._log.deliver(delivery.tag.dot)
        self._operation(delivery.kind, delivery.payload, delivery.tag.dot)
        self.issued(issued)

    def sent(
        self,
        tag: Tag,
        object_ops: Sequence[tuple[str | bytes, object]] | None = None,
        *,
        reissues: Dot | None = None,
    ) -> None:
        """The application has sent a message; see `EventLog.send`."""
        self._decisions()
        self._log.send(tag, object_ops, reissues=reissues)

    def stable(self, tags: Iterable[Tag]) -> None:
        """`poll_stable` has returned these tags."""
        self._decisions()
        dots = [tag.dot for tag in tags]
        if dots:
            self._log.stable_all(dots)

    def issued(self, tags: Iterable[Tag]) -> None:
        """The engine has sent these membership operations, if any, and its members may have changed."""
        self._decisions()
        for tag in tags:
            self._log.send(tag)
        if not self._over:
            self._joins()
            self._end_where_due()
            self.is_over()

    def _decisions(self) -> None:
        decisions = self._engine.take_decisions()
        if decisions:
            self.decided(decisions)

    # The engine may be ahead of the log

    def catch_up(self) -> None:
        """Log the joins and ends that follow from the log so far: the process before may not have come to that."""
        self._joins()
        self._end_where_due()

    def so_far(self) -> None:
        """`catch_up`, and log the decisions that the engine still has: their exact places are not known any more."""
        self.catch_up()
        self.decided(self._engine.outline().decided)

    def happened(self, message: Message, *, reissues: Dot | None = None) -> None:
        """The message was delivered, or sent by this member; see `EventLog.send`."""
        dot = message.dot
        if dot[0] == self._engine.me:
            self._log.send(Tag(dot, message.context), reissues=reissues)
        else:
            self._log.deliver(dot)
        if message.kind or self._cuts:  # else neither somebody joins, nor somebody ends
            self._operation(message.kind, message.payload, dot)

    def delivered_all(self, messages: Sequence[Message]) -> None:
        """`happened` with each of these messages of other members, in order."""
        if self._cuts or any(map(_KIND, messages)):
            for message in messages:
                self.happened(message)
        elif messages:
            self._log.deliver_all(list(map(_DOT, messages)))

    def sent_too(self, tag: Tag, reissues: Dot | None) -> None:
        """`happened` with a message of this member that does not change the membership."""
        self._log.send(tag, reissues=reissues)
        if self._cuts:
            self._end_where_due()

    @property
    def has_news(self) -> bool:
        """Whether `issued` without tags may have something to log behind `happened`: the group has decided something,
        or something hinders this member, as its end does.
        """
        return self._engine.has_decisions or not self._engine.is_plain

    def _operation(self, kind: int, payload: bytes, dot: Dot) -> None:
        """Log the effect on the members of the message in the line before."""
        operation = decode(kind, payload) if kind else None
        if isinstance(operation, Join):
            joined = joined_id(operation.base, *dot)
            if joined not in self._members and not self._over:
                self._joined(joined, dot, sorted(operation.replaces))
        self._end_where_due()

    def decided(self, decisions: Iterable[Decided]) -> None:
        """The group has decided these, in order. Decisions that are logged already are skipped."""
        for each in decisions:
            view = self._view
            if view is None or (each.epoch, each.name) != (view.epoch, view.name):
                continue
            change = each.change
            self._view = view.after(change)
            self._log.decided(
                _logged(self._view),
                each.name,
                cuts=_logged_cuts(change.cuts),
                out=change.out,
                votes=change.votes,
                level=change.level,
                forced=each.forced,
            )
            cuts = dict(change.cuts)
            self._ended &= self._engine.ended.keys() | self._engine.members.keys()
            self._cuts.update((who, cut) for who, cut in cuts.items() if who not in self._ended)
            if self._engine.me in change.out and not self._over:
                # A leaving member goes on until enough others know; any other removed member does nothing any more.
                self._over = not self._engine.wants.leaves
                self._end(self._engine.me, cuts[self._engine.me])
            self._end_where_due()

    def is_over(self) -> None:
        """Log the end of this incarnation if it was notified that it is evicted."""
        engine = self._engine
        if not self._over and engine.standing is Standing.EVICTED:
            self._over = True
            if engine.me in self._ended:
                return
            cut = self._log.vector.get(engine.me, 0) if engine.cut is None else engine.cut
            self._log.evicted(engine.me, cut)

    # Joins and ends

    def _joins(self) -> None:
        engine, told = self._engine, self._log.vector
        if engine.are_members(self._members):
            return
        members = engine.members
        for joined in sorted(members.keys() - self._members - self._ended):
            join = self._join_of(joined)
            if join is None or not covers(told, join):
                continue
            replaced = engine.state().replaced.items()
            self._joined(joined, join, sorted(base for base, by in replaced if by == joined))

    def _joined(self, member: str, join: Dot, replaces: Sequence[str]) -> None:
        self._log.joined(member, join, replaces=replaces)
        self._members.add(member)

    def _join_of(self, incarnation: str) -> Dot | None:
        let_in = joined_by(incarnation)
        if let_in is None:
            return None
        base, counter = let_in
        contacts = (
            one for one in (*self._engine.vector, *self._engine.ended) if base_of(one) == base
        )
        contact = next(contacts, None)
        return None if contact is None else Dot(contact, counter)

    def _end_where_due(self) -> None:
        if not self._cuts or self._over:
            return
        told = self._log.vector
        for incarnation, cut in sorted(self._cuts.items()):
            is_due = incarnation in self._members and told.get(incarnation, 0) == cut.counter
            if is_due and incarnation != self._engine.me:
                self._end(incarnation, cut)

    def _end(self, incarnation: str, cut: Cut) -> None:
        if cut.how is How.LEFT:
            self._log.left(Dot(incarnation, cut.counter))
        else:
            self._log.evicted(incarnation, cut.counter, forced=cut.how is How.FORCED)
        self._cuts.pop(incarnation, None)
        self._ended.add(incarnation)
        self._members.discard(incarnation)


def _view(logged: LoggedView) -> View:
    return View(logged.epoch, logged.name, frozenset(logged.voters), logged.level)


def _logged(view: View) -> LoggedView:
    return LoggedView(view.epoch, view.name, tuple(sorted(view.voters)), view.level)


def _logged_cuts(cuts: Iterable[tuple[str, Cut]]) -> list[LoggedCut]:
    return [LoggedCut(who, cut.counter, cut.how.name.lower()) for who, cut in cuts]
