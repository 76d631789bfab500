"""A member that starts from a disk first asks the others, and only listens: its disk may have been set back.

Others may have messages and records of this incarnation that its disk has lost. If it used message numbers again, or
voted where it has voted before, it would contradict them. So it asks first (`DigestKind.ASK`). A peer that has more of
it says so in the answer, or before that, and the incarnation is over.

It cannot wait for members that are away: after `LISTEN` ticks it goes on without them.
"""

from collections.abc import Callable, Set

from crdtcast.causality.messages import Message
from crdtcast.engine.peer import BACKOFF_MAX

LISTEN = 8
"""Ticks from the first link on for which a member that has started from a disk waits for the answers of all others."""


class Probation:
    """Of one member. sent: how many own messages it has. others: returns the present other members. resumed: whether it
    has started from a disk; without that there is no probation.
    """

    def __init__(
        self, me: str, sent: int, others: Callable[[], Set[str]], *, resumed: bool
    ) -> None:
        self._me = me
        self._sent = sent
        self._others = others
        self._resumed = resumed
        self._is_over = not resumed
        self._answered: set[str] = set()
        self._tick = 0
        self._until: int | None = None
        self._ask_at = 0
        self._delay = LISTEN

    @property
    def is_on(self) -> bool:
        """Whether this member only listens."""
        return not self._is_over and bool(self._others())

    @property
    def is_listening(self) -> bool:
        """The same, and a peer may be heard soon: there was a link, or this member has only just started."""
        return self.is_on and (self._tick < LISTEN or self._until is not None)

    @property
    def is_unsure(self) -> bool:
        """Whether not all others have said that they have no more of this member than it has itself."""
        return self._resumed and bool(self._others() - self._answered)

    def asks(self, member: str) -> bool:
        """Whether the first digest on a link is a question."""
        return self._resumed and member not in self._answered

    def linked(self) -> None:
        """There is a link: members that are there are about to be heard."""
        if self._until is None:
            self._until = self._ask_at = self._tick + LISTEN

    def answered(self, member: str) -> None:
        """A member has compared what it has of this one with what this one has itself."""
        self._answered.add(member)

    def look(self, tick: int) -> Set[str]:
        """End the probation if that is due. Returns the members to ask now."""
        self._tick = tick
        if not self._resumed:
            return frozenset()
        unasked = self._others() - self._answered
        if not unasked or (self._until is not None and tick >= self._until):
            self._is_over = True
        if not unasked or tick < self._ask_at:
            return frozenset()
        self._ask_at = tick + self._delay
        self._delay = min(2 * self._delay, BACKOFF_MAX)
        return unasked

    def holds_back(self, content: object) -> bool:
        """Whether this is a new message of this member, whose number may have been used before."""
        if not isinstance(content, Message) or content.dot.origin != self._me:
            return False
        return content.dot.counter > self._sent
