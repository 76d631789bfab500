"""When a leaver may go: everybody it must wait for has acknowledged everything that it has delivered.

Not only its own messages: what it alone still could hand over would be lost. Not until its leave is stable, either:
those who have delivered that do not wait for the leaver any more, so it might never learn of it.
"""

from collections.abc import Callable, Collection

from crdtcast.engine.peer import BACKOFF_MAX, HOLD_MIN
from crdtcast.messages import Digest
from crdtcast.tags import Vector

TAKES_FOR = 20
"""Ticks after which a leaver takes no more messages, so that the others can catch up with it."""


class Farewell:
    """The acknowledgements that a leaver has got. `alone`: it was the only member, and waits for nobody."""

    def __init__(self, me: str, alone: bool, tick: int) -> None:
        self._me = me
        self._alone = alone
        self.takes_until = tick + TAKES_FOR
        self.ask_at = tick
        self._ask_delay = HOLD_MIN
        self._heard: dict[str, Digest] = {}
        self._ended: set[str] = set()  # as digests have told
        self._told_by: set[str] = set()

    def heard(self, sender: str, digest: Digest, members: Collection[str]) -> None:
        """A digest of anybody, newest first or not: what it covers stays covered."""
        self._heard[sender] = digest
        # Who says that it leaves itself still has to take over: another leaver may be all that has it otherwise.
        gone = [x for x in digest.ended if x in members and x != sender]
        if gone:
            self._ended.update(gone)
            self._told_by.add(sender)

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
        """Nobody is waited for, and somebody has everything, unless nobody else was there."""
        if self.waiting_for(members, lacking):
            return False
        return self._alone or any(self._has_all(k, lacking) for k in self._heard)
