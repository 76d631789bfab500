"""Two views of one epoch that no operator has forced: a voter's disk was set back, and it has voted twice.

A decision that ends an epoch otherwise than this member's own decision is a sign of that, or a lie. So the report of
one member stops no other: it lies, or it is alone on its side, hears of two others, and stops itself. If two do,
this member begins no ballot and promises and accepts nothing more, until those of one side have ended. Data goes on.
"""

from collections.abc import Callable, Iterable, Set

from crdtcast.engine.consensus import Consensus
from crdtcast.engine.views import Decided

ENOUGH = 2
"""Members that have to report it."""


class Forks:
    """Of one member: what others report of themselves. others: returns the present ones."""

    enough = ENOUGH

    def __init__(self, consensus: Consensus, others: Callable[[], Set[str]]) -> None:
        self._consensus = consensus
        self._others = others
        self._epochs: dict[str, int] = {}

    def note(self, member: str, epoch: int, name: str, decided: Iterable[Decided]) -> int | None:
        """A member reports its view, and the decisions that led to it. Returns the epoch that has ended otherwise for
        it, if that is news.
        """
        consensus = self._consensus
        if not consensus.contradicts(epoch, name) and epoch <= consensus.view.epoch:
            self._epochs.pop(member, None)
        for each in decided:
            ours = consensus.decided.get(each.epoch)
            if ours is None or ours.name != each.name or ours.change == each.change:
                continue
            if ours.forced or each.forced or member in self._epochs:
                return None
            self._epochs[member] = each.epoch
            return each.epoch
        return None

    @property
    def apart(self) -> dict[str, int]:
        """Member that follows another change than this one -> the epoch of that change: see `Standing.SPLIT`."""
        others = self._others() if self._epochs else ()
        return {who: epoch for who, epoch in self._epochs.items() if who in others}

    @property
    def is_split(self) -> bool:
        """Whether enough members report it."""
        return len(self._epochs) >= self.enough and len(self.apart) >= self.enough
