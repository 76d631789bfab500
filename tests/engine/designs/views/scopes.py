"""Small scopes: how many ballots there may be in each epoch, and what else may happen."""

from dataclasses import dataclass
from functools import cached_property

from tests.engine.designs.views.state import X

RULES = (
    "a majority accepts",
    "a promise binds",
    "what was accepted is adopted",
    "the highest ballot counts",
    "a promise freezes",
    "a freeze lasts",
    "all who go on promise",
    "a joiner inherits a freeze",
    "a cut is stated anew",
    "a promise is durable with its data",
    "who was set back is over",
)

_X_OUT, _1_OUT, _BOTH_OUT, _NOBODY = (frozenset[int](out) for out in ((X,), (1,), (X, 1), ()))


@dataclass(frozen=True)
class Scope:
    """ballots: how many of each epoch. others: whether all of them may be for 1 to be out, too, with X or without.
    joins: whether there may be a learner; votes: whether a change may give it a vote. losses: how many disks may be set
    back. without: a rule that is left out, to see that it is missed.
    """

    ballots: tuple[int, ...]
    others: bool = False
    joins: bool = False
    votes: bool = False
    losses: int = 0
    crashes: int = 1
    without: str = ""

    def __post_init__(self) -> None:
        if self.without and self.without not in RULES:
            raise ValueError(f"unknown rule {self.without!r}: choose from {', '.join(RULES)}")

    def __str__(self) -> str:
        parts = ["+".join(map(str, self.ballots))]
        parts += (
            ["others"] * self.others
            + ["join"] * self.joins
            + ["vote"] * self.votes
            + ["back"] * self.losses
        )
        return "-".join(parts)

    @cached_property
    def epochs(self) -> tuple[range, ...]:
        """The ballots of each epoch. Those of an epoch stand in the order of their numbers."""
        ends = [sum(self.ballots[: epoch + 1]) for epoch in range(len(self.ballots))]
        return tuple(range(end - few, end) for end, few in zip(ends, self.ballots, strict=True))

    def wants(self, epoch: int) -> tuple[frozenset[int], ...]:
        """Who may be wanted out."""
        if self.others:
            return _X_OUT, _1_OUT, _BOTH_OUT, _NOBODY
        return (_X_OUT, _1_OUT) if epoch else (_X_OUT, _NOBODY)

    @property
    def is_symmetric(self) -> bool:
        """Whether the same may happen to 0 and 1."""
        return len(self.ballots) == 1 and not self.others


SMALL = (
    Scope((1,), joins=True, losses=1),
    Scope((2,), losses=1),
    Scope((2,), joins=True),
    Scope((1, 1), losses=1),
    Scope((1, 1), joins=True),
    Scope((1, 1, 1)),
)
"""They take a second or two each."""
LARGE = (
    Scope((1, 1), joins=True, losses=1),
    Scope((2,), joins=True, losses=1),
    Scope((3,), joins=True, losses=1),
    Scope((2, 1), joins=True, losses=1),
    Scope((1, 2), joins=True, losses=1),
    Scope((2,), others=True, joins=True, losses=1),
    Scope((3,), others=True),
    Scope((1, 1, 1), others=True, joins=True, losses=1),
    Scope((1, 1), others=True, joins=True, votes=True),
    Scope((1, 2), joins=True, votes=True),
    Scope((1, 1, 1), joins=True, votes=True),
)
