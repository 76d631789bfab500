"""Two views of one epoch that no operator has forced: a voter's disk was set back, and it has voted twice.

A decision that ends an epoch of this member's line in another way is a sign of that, or a lie. So the word of one
member stops nobody: it lies, or it is alone on its side, where it hears of two others, and stops itself. If two say it,
this member begins no ballot and promises and accepts nothing more, until those of one side have ended. Data goes on.
"""

from collections.abc import Callable, Iterable, Set

from crdtcast.engine.consensus import Consensus
from crdtcast.engine.views import Decided

ENOUGH = 2
"""Members that have to say so."""


class Forks:
    """Of one member, about what others say themselves. others: who they are now."""

    enough = ENOUGH

    def __init__(self, consensus: Consensus, others: Callable[[], Set[str]]) -> None:
        self._consensus = consensus
        self._others = others
        self._epochs: dict[str, int] = {}

    def note(self, member: str, epoch: int, name: str, decided: Iterable[Decided]) -> int | None:
        """A member says in which view it is, and how it came there. The epoch that has ended otherwise for it, if that
        is news.
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
        """The members that follow another change than this one, and of which epoch: see `Standing.SPLIT`."""
        others = self._others() if self._epochs else ()
        return {who: epoch for who, epoch in self._epochs.items() if who in others}

    @property
    def is_split(self) -> bool:
        """Whether enough of them say so."""
        return len(self.apart) >= self.enough
