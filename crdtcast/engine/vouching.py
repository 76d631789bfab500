"""Which messages of a victim may still be delivered: those that some survivor has delivered before it turned away.

A message of a victim is *vouched for* if its counter is at most some reported one, or if a message of a member depends
on it (of another victim: one that is vouched for itself; of one whose join is not delivered here yet: one that a
member's message depends on). So all survivors deliver the same of it before it is cut off.
"""

from collections.abc import Callable, Iterable

from crdtcast.engine.membership import Membership
from crdtcast.incarnation import joined_by
from crdtcast.messages import Message
from crdtcast.tags import Vector


class Vouching:
    """Bounds for the victims of open evictions. Loops over what was received, never recursion."""

    def __init__(
        self,
        membership: Membership,
        vector: Vector,
        undelivered: Callable[[], Iterable[Message]],
    ) -> None:
        self._membership = membership
        self._vector = vector
        self._undelivered = undelivered
        self.bound: dict[str, int] = {}
        """Victim -> its last message that is vouched for, as far as is known here."""
        self.held: dict[str, Message] = {}
        """Victim -> its next message, which is deliverable but not vouched for."""
        self._received: dict[str, dict[int, Message]] = {}
        self._through: dict[str, int] = {}  # who is no member yet -> what is vouched for of it
        for victim in membership.evictions:
            self._received[victim] = {}
        self._begin()

    def _begin(self) -> None:
        """Bounds from what has been reported and delivered only."""
        self._through.clear()
        for victim, reports in self._membership.evictions.items():
            self.bound[victim] = max(self._vector.get(victim, 0), *reports.values(), 0)

    def open(self, victim: str) -> None:
        """An eviction has begun. What the victim's messages have vouched for, those that do not count any more, is
        vouched for no longer: others may never have received them.
        """
        self._received[victim] = {}
        self.begin_anew()

    def begin_anew(self) -> None:
        """Somebody's messages do not count any more."""
        self._begin()
        received = [m for messages in self._received.values() for m in messages.values()]
        self.consider([*received, *self._undelivered()])

    def close(self, victim: str) -> None:
        """It has ended."""
        del self.bound[victim]
        del self._received[victim]
        self.held.pop(victim, None)
        if not self.bound:
            self._through.clear()

    def report(self, victim: str, counter: int) -> None:
        """A member says that it has delivered so much."""
        self.consider(self._raise(victim, counter))

    def consider_all(self) -> None:
        """Somebody's messages count now that did not before."""
        self.consider(self._undelivered())

    def consider(self, messages: Iterable[Message]) -> None:
        """Learn from messages that were received, and are not delivered yet."""
        work = list(messages)
        for message in work:
            received = self._received.get(message.dot.origin)
            if received is not None:
                received[message.dot.counter] = message
        while work:
            message = work.pop()
            if self._counts(message):
                for origin, counter in message.context:
                    if origin in self.bound:
                        work += self._raise(origin, counter)
                    elif origin not in self._vector:
                        work += self._pass_through(origin, counter)

    def _raise(self, victim: str, counter: int) -> list[Message]:
        """Raise a bound; what is vouched for with that, as far as it is here."""
        old = self.bound[victim]
        if counter <= old:
            return []
        self.bound[victim] = counter
        # What was received, never the numbers in between: somebody has named them.
        return [m for n, m in sorted(self._received[victim].items()) if old < n <= counter]

    def _pass_through(self, incarnation: str, counter: int) -> list[Message]:
        """What depends on a future member vouches for its join, and for what it depends on itself."""
        join = joined_by(incarnation)
        if join is None or counter <= self._through.get(incarnation, 0):
            return []
        self._through[incarnation] = counter
        found = [
            message
            for message in self._undelivered()
            if message.dot.origin == incarnation and message.dot.counter <= counter
        ]
        contact = self._membership.incarnation(join[0])
        if contact in self.bound:
            found += self._raise(contact, join[1])
        return found

    def _counts(self, message: Message) -> bool:
        """Whether what it depends on will be delivered, since it will be itself."""
        origin, counter = message.dot
        bound = self.bound.get(origin)
        if bound is not None:
            return counter <= bound
        if origin in self._membership.members:
            return True
        cut = self._membership.ended.get(origin)
        return counter <= (self._through.get(origin, 0) if cut is None else cut.counter)

    def delivered(self, victim: str, counter: int) -> None:
        """It is delivered: nothing more to learn from it."""
        self._received[victim].pop(counter, None)

    def released(self) -> list[Message]:
        """Take those held messages that are vouched for now."""
        bound = self.bound
        ready = [m for m in self.held.values() if m.dot.counter <= bound[m.dot.origin]]
        for message in ready:
            del self.held[message.dot.origin]
        return ready
