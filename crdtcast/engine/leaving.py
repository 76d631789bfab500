"""When a leaver may go: everybody it must wait for has acknowledged everything that it has delivered.

Not only its own messages: what it alone still could hand over would be lost. Not until its leave is stable, either:
those who have delivered that do not wait for the leaver any more, so it might never learn of it.
"""

from collections.abc import Callable, Collection, Set

from crdtcast.engine.peer import BACKOFF_MAX, HOLD_MIN
from crdtcast.messages import Digest
from crdtcast.tags import Vector

SILENCE = 2 * BACKOFF_MAX
"""Ticks without an answer after which a leaver that has outlasted all others is taken to be alone."""

TAKES_FOR = 20
"""Ticks after which a leaver takes no more messages, so that the others can catch up with it."""


class Farewell:
    """The acknowledgements that a leaver has got. `alone`: it was the only member, and waits for nobody."""

    def __init__(self, me: str, alone: bool, tick: int) -> None:
        self._me = me
        self._alone = alone
        self._takes_until = tick + TAKES_FOR
        self.ask_at = tick
        self._ask_delay = HOLD_MIN
        self._began = tick
        self._heard: dict[str, Digest] = {}
        self._heard_at: dict[str, int] = {}
        self._ended: set[str] = set()  # as digests have told
        self._told_by: set[str] = set()
        self._leaving: set[str] = set()  # as they say of themselves

    def heard(self, sender: str, digest: Digest, members: Collection[str], tick: int) -> None:
        """A digest of anybody, newest first or not: what it covers stays covered."""
        self._heard[sender] = digest
        self._heard_at[sender] = tick
        # Who says that it leaves itself still has to take over: another leaver may be all that has it otherwise.
        self._leaving.update(x for x in digest.ended if x == sender)
        gone = [x for x in digest.ended if x in members and x != sender]
        if gone:
            self._ended.update(gone)
            self._told_by.add(sender)

    def is_known_to(self, sender: str, leave: int) -> bool:
        """Whether it has told that it has delivered the leave, the message of that number."""
        digest = self._heard.get(sender)
        return digest is not None and digest.vector.get(self._me, 0) >= leave

    def asked(self, tick: int) -> None:
        """Everybody has been asked; the next time is later and later."""
        self.ask_at = tick + self._ask_delay
        self._ask_delay = min(2 * self._ask_delay, BACKOFF_MAX)

    def waiting_for(
        self, members: Collection[str], lacking: Callable[[Vector], Collection[str]]
    ) -> list[str]:
        """Who has still to acknowledge: the members but those that are told to have ended, and whoever told so."""
        waiting = {*members, *self._told_by} - self._ended - {self._me}
        return sorted(k for k in waiting if not self._has_all(k, lacking))

    def _has_all(self, sender: str, lacking: Callable[[Vector], Collection[str]]) -> bool:
        digest = self._heard.get(sender)
        return digest is not None and all(
            x in digest.ended and x != self._me for x in lacking(digest.vector)
        )

    def is_done(
        self, members: Collection[str], lacking: Callable[[Vector], Collection[str]]
    ) -> bool:
        """Nobody is waited for, and somebody has everything."""
        return not self.waiting_for(members, lacking) and any(
            self._has_all(k, lacking) for k in self._heard
        )

    def is_last(self, lacking: Callable[[Vector], Collection[str]], tick: int) -> bool:
        """Whether it may go if nobody goes on. Those who are still there leave, too, and need to know its leave."""
        there = [k for k, heard_at in self._heard_at.items() if tick - heard_at <= SILENCE]
        if there:
            return all(self._has_all(k, lacking) for k in there)
        return self._alone or tick - self._began > SILENCE

    def takes(self, members: Set[str], tick: int) -> bool:
        """Whether it still takes messages: for a while; and if nobody goes on, who would send any more."""
        return tick <= self._takes_until or members <= self._ended | self._leaving
