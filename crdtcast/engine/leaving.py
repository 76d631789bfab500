"""When a leaver may go: everybody it must wait for has acknowledged everything that it has delivered.

Not only its own messages: what it alone still could hand over would be lost. Not until its leave is stable, either:
those who have delivered that do not wait for the leaver any more, so it might never learn of it.
"""

from collections.abc import Callable, Collection, Mapping, Set
from typing import TypeAlias

from crdtcast.engine.peer import BACKOFF_MAX, HOLD_MIN
from crdtcast.incarnation import base_of, joined_by
from crdtcast.messages import Digest, DigestKind
from crdtcast.tags import Vector

SILENCE = 2 * BACKOFF_MAX
"""Ticks without an answer after which a leaver that has outlasted all others is taken to be alone."""

TAKES_FOR = 20
"""Ticks after which a leaver takes no more messages, so that the others can catch up with it."""

MOST_NAMED = 10_000
"""Ids that are remembered of what others have told of members, and of each of them of the ended: soon made up."""

Lacking: TypeAlias = Callable[[Vector], Collection[str]]
"""Of which origins more is delivered here than this vector covers."""


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
        self._going_on: dict[str, Digest] = {}  # the newest of each in which it does not leave
        self._complete: dict[str, Digest] = {}  # the newest of each that tells all who have ended
        self._told: dict[str, set[str]] = {}  # who has told that whom has ended, itself aside
        self._leaving: set[str] = set()  # as they say of themselves
        self._named_at: dict[str, int] = {}  # how much they had sent when they first named this one
        self.named: set[str] = set()
        """Members and the ended, as complete digests have named them."""

    def heard(self, sender: str, digest: Digest, tick: int) -> None:
        """A digest of anybody, newest first or not: what it covers stays covered."""
        self._heard[sender] = digest
        self._heard_at[sender] = tick
        if sender in digest.ended:
            self._leaving.add(sender)
        else:
            self._going_on[sender] = digest
        if sender in digest.ended or digest.kind is DigestKind.REPLY:
            self._complete[sender] = digest
            if len(self.named) < MOST_NAMED:
                self.named.update(digest.vector)
        if self._me in digest.vector:
            self._named_at.setdefault(sender, digest.vector.get(sender, 0))
        told = self._told.setdefault(sender, set())
        if len(told) < MOST_NAMED:
            told.update(x for x in digest.ended if x != sender)

    def is_known_to(self, sender: str) -> bool:
        """Whether it has named this incarnation as a member, or was let in by somebody who had before."""
        for _ in range(len(self._heard) + 1):  # ids that somebody made up may go round in circles
            if sender in self._named_at:
                return True
            join = joined_by(sender)
            contact = next((k for k in self._heard if join and base_of(k) == join[0]), None)
            if join is None or contact is None:
                return False
            if contact in self._named_at:
                return self._named_at[contact] < join[1]
            sender = contact
        return False

    def asked(self, tick: int) -> None:
        """Everybody has been asked; the next time is later and later."""
        self.ask_at = tick + self._ask_delay
        self._ask_delay = min(2 * self._ask_delay, BACKOFF_MAX)

    def waiting_for(self, members: Collection[str], lacking: Lacking) -> list[str]:
        """Who has still to acknowledge: the members but those that are told to have ended, and whoever told so."""
        return self._missing(self._heard, members, lacking)

    def _missing(
        self, digests: Mapping[str, Digest], members: Collection[str], lacking: Lacking
    ) -> list[str]:
        told_by = {k for k, told in self._told.items() if not told.isdisjoint(members)}
        waiting = {*members, *told_by}.difference((self._me,), *self._told.values())
        return sorted(k for k in waiting if not self._has_all(digests.get(k), lacking))

    def _has_all(self, digest: Digest | None, lacking: Lacking) -> bool:
        return digest is not None and all(
            x in digest.ended and x != self._me for x in lacking(digest.vector)
        )

    def is_done(
        self, members: Set[str], victims: Collection[str], unmet: Set[str], lacking: Lacking
    ) -> bool:
        """Nobody is waited for, and a member that goes on, no victim, has everything. If there is none, others will do;
        but then all that those know, the `unmet` here, too, must be among them, or have ended.

        What a leaver has delivered after its leave is not safe there: none of its messages comes after that, so it
        vouches for nothing of it; and what a victim has may be cut off with it.
        """
        if self.waiting_for(members, lacking):
            return False
        for k, digest in self._going_on.items():
            if k not in victims and self._has_all(digest, lacking):
                return True
        return not self._missing(self._complete, members | unmet, lacking) and any(
            self._has_all(digest, lacking) for digest in self._complete.values()
        )

    def is_last(self, lacking: Lacking, tick: int) -> bool:
        """Whether it may go if nobody goes on. Those who are still there leave, too, and need to know its leave."""
        there = [k for k, heard_at in self._heard_at.items() if tick - heard_at <= SILENCE]
        if there:
            return all(self._has_all(self._heard[k], lacking) for k in there)
        return self._alone or tick - self._began > SILENCE

    def takes(self, members: Set[str], tick: int) -> bool:
        """Whether it still takes messages: for a while; and if nobody goes on, who would send any more."""
        return tick <= self._takes_until or members <= self._leaving.union(*self._told.values())
