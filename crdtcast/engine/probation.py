"""What a member that starts from a disk does not do before it has asked the others: its disk may have been set back.

Others may have messages and records of this incarnation that its disk has lost. What it says under numbers that it has
used before, or votes where it has voted before, would contradict them; so it asks first (`DigestKind.ASK`). A peer that
has more of it says so in the answer, or before that, and the incarnation is over.

It cannot wait for those who are away: after `LISTEN` ticks it goes on without them.
"""

from collections.abc import Collection, Set

from crdtcast.engine.peer import BACKOFF_MAX

LISTEN = 8
"""Ticks from the first link on for which a member that has started from a disk waits for the answers of all others."""


class Probation:
    """Of one member. sent: how many messages of its own its disk has. is_over: whether it does everything by now."""

    def __init__(self, sent: int) -> None:
        self.sent = sent
        self.is_over: bool = False
        self._answered: set[str] = set()
        self._until: int | None = None
        self._ask_at = 0
        self._delay = LISTEN

    @property
    def has_begun(self) -> bool:
        """Whether there was a link."""
        return self._until is not None

    def linked(self, tick: int) -> None:
        """There is a link: who is there is about to be heard."""
        if self._until is None:
            self._until = tick + LISTEN
            self._ask_at = tick + LISTEN

    def answered(self, member: str) -> None:
        """It has compared what it has of this member with what that has itself."""
        self._answered.add(member)

    def unasked(self, others: Collection[str]) -> Set[str]:
        """Those of them who may still have more of this member."""
        return set(others) - self._answered

    def look(self, tick: int, others: Collection[str]) -> Set[str]:
        """Whether it is over. Who is to be asked now."""
        unasked = self.unasked(others)
        if not unasked or (self._until is not None and tick >= self._until):
            self.is_over = True
        if not unasked or tick < self._ask_at:
            return set()
        self._ask_at = tick + self._delay
        self._delay = min(2 * self._delay, BACKOFF_MAX)
        return unasked
