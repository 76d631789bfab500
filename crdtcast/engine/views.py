"""Views: who has a vote, epoch by epoch; what members note while an epoch is decided, and what they send each other.
Plain values.

A view is an epoch, its voters, the format level of the group, and a name: the hash of the name before it and of the
change that made it. One decision leads from each view to the next (`engine.consensus`).
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgpack

from crdtcast.engine.operations import Cut, How


class Ballot(NamedTuple):
    """Greater ones win. proposer: an incarnation id, so that no two members have the same ballot."""

    number: int
    proposer: str


NO_BALLOT = Ballot(0, "")


class ViewChange(NamedTuple):
    """What one epoch decides.

    cuts: where those end that go; and again, where those end that went before and have not ended everywhere; by
        incarnation, sorted.
    out: those of them that go now. votes: learners that get a vote. level: the format level from then on.
    """

    cuts: tuple[tuple[str, Cut], ...] = ()
    out: tuple[str, ...] = ()
    votes: tuple[str, ...] = ()
    level: int | None = None

    def forces_out(self, member: str) -> bool:
        """Whether that member goes by force. It is not asked then: the operator decides which side goes on."""
        return any(who == member and cut.how is How.FORCED for who, cut in self.cuts)


class Word(NamedTuple):
    """The voters that a ballot does without, by an operator's word.

    replaced: they never come back; a majority is counted without them. forced: whatever becomes of them.
    """

    replaced: tuple[str, ...] = ()
    forced: tuple[str, ...] = ()


NO_WORD = Word()


class Proposal(NamedTuple):
    """What a member asks promises for; and, in `change`, what it asks to accept when it has them.

    victims: the members to remove. leaves: whether the proposer itself is one of them, since it leaves.
    level: see `ViewChange`.
    """

    ballot: Ballot
    victims: tuple[str, ...] = ()
    level: int | None = None
    leaves: bool = False
    word: Word = NO_WORD
    change: ViewChange | None = None

    @property
    def needs_all(self) -> bool:
        """Whether all who go on have to promise, not only a quorum."""
        return bool(self.victims) or self.level is not None


class Promise(NamedTuple):
    """What a member reports with its promise: it takes nothing of the victims beyond that any more.

    delivered: how much of each victim, and of each member that went and has not ended at it. members: all that it
    knows, except those that went.
    """

    ballot: Ballot
    delivered: Mapping[str, int] = {}
    members: tuple[str, ...] = ()


class Accepted(NamedTuple):
    """What a voter has accepted last. word: that of the proposal, which says what a quorum is."""

    ballot: Ballot
    change: ViewChange
    word: Word = NO_WORD


@dataclass(frozen=True, slots=True)
class Record:
    """What one member has noted last of its epoch. It is durable before another member hears of it; any passes it on.

    serial: how often it has noted anything. epoch, name: of its view. sent: how many messages it had sent when it came
    into that view. promised: the greatest ballot that it has promised, or accepted something of.
    """

    member: str
    serial: int
    epoch: int
    name: str
    sent: int = 0
    promised: Ballot = NO_BALLOT
    promise: Promise | None = None
    accepted: Accepted | None = None
    proposal: Proposal | None = None


@dataclass(frozen=True, slots=True)
class Decided:
    """`change` has ended the epoch of the view that is called `name`. forced: by less than a quorum."""

    epoch: int
    name: str
    change: ViewChange
    forced: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """voters: incarnations. level: the format level that may be used."""

    epoch: int
    name: str
    voters: frozenset[str]
    level: int

    @classmethod
    def first(cls, founders: Iterable[str], level: int) -> "View":
        """The view of a new group: all founders have a vote."""
        everybody = sorted(founders)
        return cls(0, _name("", everybody), frozenset(everybody), level)

    def after(self, change: ViewChange) -> "View":
        """The view after this change."""
        return View(
            self.epoch + 1,
            _name(self.name, packed_change(change)),
            (self.voters | set(change.votes)) - set(change.out),
            max(self.level, change.level or 0),
        )

    def is_quorum(self, who: Collection[str], word: Word = NO_WORD) -> bool:
        """Whether these are enough to decide.

        A majority of the voters, victims included. The vote of one that is replaced is not needed: half of an even
        number is enough then, none of them replaced. By force: all voters except the victims, however few.
        """
        given, voters = self.voters & set(who), self.voters
        if word.forced:
            return voters - set(word.forced) <= given
        replaced = voters & set(word.replaced)
        if replaced and not given & replaced:
            return len(given) >= (len(voters) + 1) // 2
        return 2 * len(given) > len(voters)


def packed_change(change: ViewChange) -> list[object]:
    """The change as a list for msgpack."""
    cuts = [[who, cut.counter, int(cut.how)] for who, cut in change.cuts]
    return [cuts, list(change.out), list(change.votes), change.level]


def _name(before: str, what: object) -> str:
    return hashlib.sha256(msgpack.packb([before, what])).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Wants:
    """What a member has to bring about, for its operator or itself. Durable.

    victims: member to evict -> whether by force. leaves: it leaves itself. level: the format level to raise to.
    """

    victims: Mapping[str, bool] = field(default_factory=dict)
    leaves: bool = False
    level: int | None = None

    def without(self, gone: Iterable[str], level: int) -> "Wants":
        """What is left of it when those have gone and that level is in force."""
        gone = set(gone)
        victims = {who: force for who, force in self.victims.items() if who not in gone}
        wanted = self.level if self.level is not None and self.level > level else None
        if victims == self.victims and wanted == self.level:
            return self
        return replace(self, victims=victims, level=wanted)

    def __bool__(self) -> bool:
        return bool(self.victims or self.leaves or self.level is not None)


NO_WANTS = Wants()
NO_VIEW = View(0, "", frozenset(), 1)
"""The view of a state without a group."""


class Asked(NamedTuple):
    """A member asks, for the `number`-th time, whether the others are there. answered: those that have answered."""

    asker: str
    number: int
    answered: frozenset[str]


class Views(NamedTuple):
    """What a member has noted of its view, and what it knows that others have; see `engine.view_exchange`.

    epoch, name: of its view. has: the serial of the newest record that it has of each member. records, decided, asks:
    what the receiver may not have.
    """

    epoch: int
    name: str
    has: Mapping[str, int]
    records: tuple[Record, ...] = ()
    decided: tuple[Decided, ...] = ()
    asks: tuple[Asked, ...] = ()
