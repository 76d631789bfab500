"""The event log of one member of a group whose members come and go: what a `GroupEngine` did, told
to an `EventLog` in the application's order. For runtimes, and for simulations of them.
"""

from collections.abc import Iterable, Sequence

from crdtcast.engine import Cut, GroupEngine, How
from crdtcast.engine.operations import Join, Settled, Sweep, decode
from crdtcast.eventlog import EventLog
from crdtcast.incarnation import base_of, joined_by, joined_id
from crdtcast.messages import Delivery, Message
from crdtcast.tags import Dot, Tag, Vector, covers


class GroupLog:
    """Call `polled` for each delivery, `sent` for each own message, `stable` for each batch of
    notices, and `issued` after any other call that may send membership operations.

    Each takes the tags that `GroupEngine.take_issued` has returned since: an operation of the
    engine's own has its SEND line, too, and what it changes follows it.

    told: the members of which a log that goes on has told, if the engine may be ahead of it.
    """

    def __init__(
        self, engine: GroupEngine, log: EventLog, told: Iterable[str] | None = None
    ) -> None:
        self._engine = engine
        self._log = log
        self._members = set(engine.members if told is None else told)
        self._ended = set(engine.ended).difference(told or ())
        self._raised = set(log.raised)
        self._level = log.level or 0

    def start(self, own: int | None = None) -> None:
        """The engine was founded, has joined, or goes on after a restart. own: how many messages this
        incarnation had sent by then, if the engine has sent some itself as soon as it was made.
        """
        engine = self._engine
        vector = engine.vector if own is None else {**engine.vector, engine.me: own}
        level = engine.level
        self._log.start(vector, engine.members, engine.stable, level)
        self.started_at(level)

    def started_at(self, level: int) -> None:
        """A START line has told that this format level is in force."""
        self._level = level
        self._views()

    def polled(self, delivery: Delivery, issued: Iterable[Tag] = ()) -> None:
        """`poll` has returned this."""
        self._log.deliver(delivery.tag.dot)
        self.issued(issued)

    def sent(
        self,
        tag: Tag,
        object_ops: Sequence[tuple[str | bytes, object]] | None = None,
        *,
        reissues: Dot | None = None,
    ) -> None:
        """The application has sent a message; see `EventLog.send`."""
        self._log.send(tag, object_ops, reissues=reissues)

    def stable(self, tags: Iterable[Tag]) -> None:
        """`poll_stable` has returned these."""
        for tag in tags:
            self._log.stable(tag.dot)
        self._views()

    def issued(self, tags: Iterable[Tag]) -> None:
        """The engine has sent these membership operations, if any, and may know other members now."""
        for tag in tags:
            self._log.send(tag)
        self._joins()
        self._ends()
        self._views()

    def operation(self, message: Message) -> None:
        """The line of this membership operation was written just now, and the engine may be far ahead: by now it may
        have forgotten whom that let in, or whose end it told.
        """
        match decode(message.kind, message.payload):
            case Join(base, replaces):
                joined = joined_id(base, *message.dot)
                if joined not in self._members:
                    self._log.joined(joined, message.dot, replaces=sorted(replaces))
                    self._members.add(joined)
            case Sweep(ended):
                self._told_to_have_ended(ended)
            case Settled(incarnation, counter):
                self._told_to_have_ended([(incarnation, Cut(counter, How.EVICTED))])

    def _told_to_have_ended(self, ended: Iterable[tuple[str, Cut]]) -> None:
        """So it has, unless there is more of it here: then it is this member that was cut off."""
        for incarnation, cut in ended:
            here = self._log.vector.get(incarnation, 0)
            if incarnation in self._members and here == cut.counter:
                self._end(incarnation, self._engine.ended.get(incarnation, cut))

    def so_far(self) -> None:
        """The engine is ahead of the log: tell of the joins whose operations are told already."""
        self._joins(self._log.vector)

    def cut_off(self) -> None:
        """The engine is ahead of the log, and something is about to be told stable. Those who are evicted do not count
        for that, so they are told of before, if all that counts of them is told already.
        """
        self._told_to_have_ended(sorted(self._engine.tombs.items()))

    def _views(self) -> None:
        """What was decided since."""

    def _joins(self, told: Vector | None = None) -> None:
        engine = self._engine
        members = engine.members
        for joined in sorted(members.keys() - self._members):
            join = self._join_of(joined)
            if join is not None:
                if told is not None and not covers(told, join):
                    continue
                replaced = engine.state().replaced.items()
                replaces = sorted(base for base, by in replaced if by == joined)
                self._log.joined(joined, join, replaces=replaces)
            self._members.add(joined)
        self._members &= members.keys()

    def _ends(self) -> None:
        ended = self._engine.ended
        for incarnation in sorted(ended.keys() - self._ended):
            self._end(incarnation, ended[incarnation])
        self._ended = set(ended)

    def _end(self, incarnation: str, cut: Cut) -> None:
        if cut.how is How.LEFT:
            self._log.left(Dot(incarnation, cut.counter))
        else:
            self._log.evicted(incarnation, cut.counter, forced=cut.how is How.FORCED)
        self._ended.add(incarnation)
        self._members.discard(incarnation)

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
