"""Group engines with one rule of the protocol dropped each. A campaign that does not catch them is too weak."""

from dataclasses import replace

from crdtcast.engine.group import GroupEngine
from crdtcast.engine.level import Span
from crdtcast.engine.membership import Fate, Membership
from crdtcast.engine.operations import Join
from crdtcast.engine.peer import Peer
from crdtcast.engine.swept import SweptRows
from crdtcast.messages import Digest, DigestKind
from crdtcast.simulator.trusting_engines import TRUSTING
from crdtcast.tags import Dot, Vector


class _EagerRows(SweptRows):
    def delivered_what_it_had_sent(self, peer: Peer, vector: Vector) -> bool:
        return True


class EagerAdoption(GroupEngine):
    """Late adoption: a digest counts only when all that its sender had sent before is delivered here."""

    stability_type = _EagerRows


class NoAsking(GroupEngine):
    """Asking: one lost last digest leaves a message unstable for ever."""

    def _ask(self) -> None:
        self._evaluate()


class NoContext(GroupEngine):
    """Messages say what they depend on."""

    def _take_context(self) -> tuple[Dot, ...]:
        super()._take_context()
        return ()


class SelfishRepair(GroupEngine):
    """Any member repairs any other, whoever the origin is."""

    def _repair(self, peer: Peer, vector: Vector) -> None:
        everything = self._store.by_origin
        self._store.by_origin = {o: kept for o, kept in everything.items() if o == self.me}
        super()._repair(peer, vector)
        self._store.by_origin = everything


class _ReplacedCount(Membership):
    def is_replaced(self, incarnation: str) -> bool:
        return False


class ReplacedCount(GroupEngine):
    """A victim that a join replaces does not count against the survivors."""

    membership_type = _ReplacedCount


class _AsMembers(Membership):
    def is_past(self, incarnation: str) -> bool:
        own = self.cuts.pop(self.me, None)
        past = super().is_past(incarnation)
        if own is not None:
            self.cuts[self.me] = own
        return past


class LeaversTellEnds(GroupEngine):
    """Whose contact a leaver does not know, it does not take for past: nobody has waited for the leaver."""

    membership_type = _AsMembers


class DropsUnswept(GroupEngine):
    """An incarnation is forgotten only when a sweep of it is stable."""

    def _forget(self) -> None:
        membership = self._membership
        for incarnation in membership.ended:
            membership.swept.setdefault(incarnation, Dot(self.me, 0))
        super()._forget()


class _IncompleteRows(SweptRows):
    def completed(self, vector: Vector) -> Vector:
        return vector


class IncompleteRows(GroupEngine):
    """A row that covers the sweep of x has all of x, named or not."""

    stability_type = _IncompleteRows


class NoTombs(GroupEngine):
    """The cut of an evicted incarnation is kept until its successor has settled."""

    def _forget(self) -> None:
        super()._forget()
        for incarnation in list(self._membership.tombs):
            if incarnation not in self._membership.ended:
                del self._membership.tombs[incarnation]


class LightDigests(GroupEngine):
    """Digests count what their vectors do not name any more, so that old ones are told from new ones."""

    def _digest(self, kind: DigestKind) -> Digest:
        return replace(super()._digest(kind), dropped=0)


class _NobodyIsPast(Membership):
    def is_past(self, incarnation: str) -> bool:
        return False


class TakesGhosts(GroupEngine):
    """What has ended and is forgotten is told so, and nothing is taken from it."""

    membership_type = _NobodyIsPast


class Undecided(GroupEngine):
    """Nothing is sent again before it is decided what the group has of the old incarnation."""

    def fate(self, incarnation: str) -> int | Fate:
        fate = super().fate(incarnation)
        return self.vector.get(incarnation, 0) if fate is Fate.MEMBER else fate


class NewRowsBlank(GroupEngine):
    """A joiner's row is what its contact had delivered (a convenience: its first digest says more)."""

    def _apply_join(self, join: Join, dot: Dot) -> None:
        super()._apply_join(join, dot)
        for peer in self._peers.values():
            if peer.incarnation.startswith(join.base + "+"):
                peer.forget_row()


class AnyProgram(GroupEngine):
    """A contact lets in only whose program reads what the group uses, or is about to use."""

    def check_reader(self, who: str, reads: Span) -> None:
        pass


class GoesBack(GroupEngine):
    """An older program refuses the state of a member that has agreed to read more."""

    def _check_program(self, in_force: int) -> None:
        pass


MUTANTS: dict[str, type[GroupEngine]] = {
    "eager-adoption": EagerAdoption,
    "no-asking": NoAsking,
    "no-context": NoContext,
    "selfish-repair": SelfishRepair,
    "replaced-count": ReplacedCount,
    "leavers-tell-ends": LeaversTellEnds,
    "drops-unswept": DropsUnswept,
    "incomplete-rows": IncompleteRows,
    "no-tombs": NoTombs,
    "light-digests": LightDigests,
    "takes-ghosts": TakesGhosts,
    "undecided": Undecided,
    "blank-rows": NewRowsBlank,
    "any-program": AnyProgram,
    "goes-back": GoesBack,
    **TRUSTING,
}
