"""Group engines with one rule of the protocol dropped each. A campaign that does not catch them is too weak."""

from collections.abc import Collection, Mapping, Set
from dataclasses import replace

from crdtcast.engine.core import Core
from crdtcast.engine.group import GroupEngine
from crdtcast.engine.leaving import Farewell, Lacking
from crdtcast.engine.level import PROGRAM, Span
from crdtcast.engine.membership import Fate, GroupState, Membership
from crdtcast.engine.operations import Cut, Join
from crdtcast.engine.peer import Peer
from crdtcast.engine.swept import SweptRows
from crdtcast.messages import Digest, DigestKind, Message
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


class NoVouching(GroupEngine):
    """Of a victim only what is vouched for is delivered, so that all survivors have the same of it."""

    def has_deliverable(self) -> bool:
        return not self._over and Core.has_deliverable(self)

    def _conclude(self) -> None:
        for victim, bound in self._vouching.bound.items():
            self._vouching.bound[victim] = min(bound, self.vector[victim])
        super()._conclude()


class NoFreezing(GroupEngine):
    """From a victim itself nothing is taken any more: neither messages nor rows."""

    def _listens_to(self, sender: str) -> bool:
        return sender in self._peers or super()._listens_to(sender)

    def has_deliverable(self) -> bool:
        for victim in self._vouching.bound:
            self._vouching.bound[victim] = max(
                self._vouching.bound[victim], self.vector[victim] + 1
            )
        return super().has_deliverable()


class _OneAtATime(Membership):
    def least_set(self, victim: str) -> frozenset[str] | None:
        reports = self.evictions[victim]
        everybody = all(member in reports or member == victim for member in self.members)
        return frozenset({victim}) if everybody else None


class OneAtATime(GroupEngine):
    """The least set: two that are dead would wait for each other's report."""

    membership_type = _OneAtATime


class _AllAtOnce(Membership):
    def least_set(self, victim: str) -> frozenset[str] | None:
        chosen = frozenset(self.evictions)
        for reports in self.evictions.values():
            if any(member not in reports for member in self.members if member not in chosen):
                return None
        return chosen


class AllAtOnce(GroupEngine):
    """The least set: with all victims at once the order of arrival would change the majority."""

    membership_type = _AllAtOnce


class _AnyMember(Membership):
    def is_established(self, incarnation: str, stable: Vector) -> bool:
        return True


class JoinersVote(GroupEngine):
    """Survivors count only if their join is stable; both sides of a partition may admit joiners."""

    membership_type = _AnyMember


class _NoMajority(Membership):
    def has_majority(self, victims: Collection[str], stable: Vector) -> bool:
        return True


class NoMajority(GroupEngine):
    """The survivors outnumber the victims."""

    membership_type = _NoMajority


class _OwnReports(Membership):
    def join(self, incarnation: str, join: Join) -> None:
        super().join(incarnation, join)
        for reports in self.evictions.values():
            reports.pop(incarnation, None)


class NothingInherited(GroupEngine):
    """What its contact has reported counts for a joiner, too (a convenience: it reports itself as soon as it starts,
    but one that never starts would have to be evicted as well).
    """

    membership_type = _OwnReports


class _ReplacedCount(Membership):
    def is_replaced(self, incarnation: str) -> bool:
        return False


class ReplacedCount(GroupEngine):
    """A victim that a join replaces does not count against the survivors."""

    membership_type = _ReplacedCount


class AnyContact(GroupEngine):
    """A contact lets others in only when its own join is stable."""

    class _Established(Membership):
        def is_established(self, incarnation: str, stable: Vector) -> bool:
            return incarnation == self.me or super().is_established(incarnation, stable)

    membership_type = _Established


class _OwnOnly(Farewell):
    def _has_all(self, digest: Digest | None, lacking: Lacking) -> bool:
        return digest is not None and self._me not in lacking(digest.vector)


class LeavesWithForeign(GroupEngine):
    """A leaver waits until others have all that it has delivered, not only its own messages."""

    farewell_type = _OwnOnly


class _Stubborn(Farewell):
    def heard(self, sender: str, digest: Digest, tick: int) -> None:
        super().heard(sender, replace(digest, ended={}), tick)


class WaitsForTheEnded(GroupEngine):
    """A leaver does not wait for those who have ended, as digests tell."""

    farewell_type = _Stubborn


class _AnyHands(Farewell):
    def is_done(
        self, members: Set[str], victims: Collection[str], unmet: Set[str], lacking: Lacking
    ) -> bool:
        done = any(self._has_all(digest, lacking) for digest in self._heard.values())
        return done and not self.waiting_for(members, lacking)


class CountsOnLeavers(GroupEngine):
    """A leaver counts on a member that goes on, no victim; or on all others, and on all whom they know."""

    farewell_type = _AnyHands


class _AsMembers(Membership):
    def is_past(self, incarnation: str) -> bool:
        own = self.ended.pop(self.me, None)
        past = super().is_past(incarnation)
        if own is not None:
            self.ended[self.me] = own
        return past


class LeaversTellEnds(GroupEngine):
    """Whose contact a leaver does not know, it does not take for past: nobody has waited for the leaver."""

    membership_type = _AsMembers


class LeavesAtOnce(GroupEngine):
    """A leaver waits for at least one acknowledgement."""

    def _look_at_farewell(self) -> None:
        self._left = True


class BelievesAnyEnd(GroupEngine):
    """A leaver that is told its end without a number may never have been a member for those who tell it."""

    def _leave_counts(self, sender: str, cut: int | None) -> bool:
        return cut is None or super()._leave_counts(sender, cut)


class DropsUnswept(GroupEngine):
    """An incarnation is forgotten only when a sweep of it is stable."""

    def _forget(self) -> None:
        membership = self._membership
        for incarnation in membership.ended:
            membership.swept.setdefault(incarnation, Dot(self.me, 0))
        super()._forget()


class ForgetsDuringEvictions(GroupEngine):
    """Nothing is forgotten while an eviction is open."""

    def _forget(self) -> None:
        evictions, self._membership.evictions = self._membership.evictions, {}
        super()._forget()
        self._membership.evictions = evictions


class SilentSweeps(GroupEngine):
    """A sweep carries the conclusion to those whose majority has left meanwhile."""

    def _conclude_as_told(self, incarnation: str, cut: Cut) -> bool:
        return incarnation in self._membership.ended


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

    def _digest(self, kind: DigestKind, ended: Mapping[str, int | None] | None = None) -> Digest:
        return replace(super()._digest(kind, ended), dropped=0)


class _NobodyIsPast(Membership):
    def is_past(self, incarnation: str) -> bool:
        return False


class TakesGhosts(GroupEngine):
    """What has ended and is forgotten is told so, and nothing is taken from it."""

    membership_type = _NobodyIsPast


class OrphansStay(GroupEngine):
    """Who has delivered more of an incarnation than the group belongs to what was cut off."""

    def _become_evicted(self, cut: int | None) -> None:
        if cut is not None:
            super()._become_evicted(cut)


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


class VictimsSweep(GroupEngine):
    """A member that knows it is a victim issues no sweep."""

    def _sweep(self) -> None:
        own = self._membership.evictions.pop(self.me, None)
        super()._sweep()
        if own is not None:
            self._membership.evictions[self.me] = own


class StartsSilent(GroupEngine):
    """A joiner reports on the evictions that were opened between its join and the state it starts from."""

    def __init__(self, me: str, state: GroupState, reads: Span = PROGRAM) -> None:
        self._silent = True
        super().__init__(me, state, reads)
        self._silent = False

    def _report(self, victim: str) -> None:
        if not self._silent:
            super()._report(victim)


class UsesAtDelivery(GroupEngine):
    """A format level is used when its raise is stable: until then a member may lack it."""

    @property
    def level(self) -> int:
        return self.agreed


class AnyProgram(GroupEngine):
    """A contact lets in only whose program reads what the group uses, or is about to use."""

    def check_reader(self, who: str, reads: Span) -> None:
        pass


class FollowsBlindly(GroupEngine):
    """A member does not acknowledge a raise beyond what its program reads."""

    def _can_follow(self, message: Message) -> bool:
        return True

    def _check_program(self) -> None:
        pass


class GoesBack(GroupEngine):
    """An older program refuses the state of a member that has agreed to read more."""

    def _check_program(self) -> None:
        pass


class _Unnoticed(Membership):
    """`evictions` does not say whether it is oneself that is to be evicted."""

    def concludes(self, victims: Collection[str]) -> bool:
        return True


class VictimsConclude(GroupEngine):
    """A member that knows itself a victim concludes no eviction, unless it is forced."""

    membership_type = _Unnoticed


MUTANTS: dict[str, type[GroupEngine]] = {
    "eager-adoption": EagerAdoption,
    "no-asking": NoAsking,
    "no-context": NoContext,
    "selfish-repair": SelfishRepair,
    "no-vouching": NoVouching,
    "no-freezing": NoFreezing,
    "one-at-a-time": OneAtATime,
    "all-at-once": AllAtOnce,
    "joiners-vote": JoinersVote,
    "no-majority": NoMajority,
    "nothing-inherited": NothingInherited,
    "replaced-count": ReplacedCount,
    "any-contact": AnyContact,
    "leaves-with-foreign": LeavesWithForeign,
    "waits-for-the-ended": WaitsForTheEnded,
    "counts-on-leavers": CountsOnLeavers,
    "leavers-tell-ends": LeaversTellEnds,
    "leaves-at-once": LeavesAtOnce,
    "believes-any-end": BelievesAnyEnd,
    "drops-unswept": DropsUnswept,
    "forgets-during-evictions": ForgetsDuringEvictions,
    "silent-sweeps": SilentSweeps,
    "incomplete-rows": IncompleteRows,
    "no-tombs": NoTombs,
    "light-digests": LightDigests,
    "takes-ghosts": TakesGhosts,
    "orphans-stay": OrphansStay,
    "undecided": Undecided,
    "blank-rows": NewRowsBlank,
    "victims-conclude": VictimsConclude,
    "victims-sweep": VictimsSweep,
    "starts-silent": StartsSilent,
    "uses-at-delivery": UsesAtDelivery,
    "any-program": AnyProgram,
    "follows-blindly": FollowsBlindly,
    "goes-back": GoesBack,
    **TRUSTING,
}
