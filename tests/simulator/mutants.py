"""Group engines and founding rounds with one rule dropped each, and groups whose runtimes break one rule each.

Each docstring states the rule. A campaign that does not catch its mutants is too weak.
"""

from collections.abc import Collection, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

from crdtcast.causality.messages import Digest, DigestKind, Ended, Message
from crdtcast.causality.tags import Dot, Vector
from crdtcast.engine.consensus import Consensus
from crdtcast.engine.founding import Announcement, FoundingRound
from crdtcast.engine.group import GroupEngine
from crdtcast.engine.group_knowledge import GroupKnowledge
from crdtcast.engine.level import PROGRAM, Span
from crdtcast.engine.membership import Fate, GroupState, Membership
from crdtcast.engine.operations import Cut, Join, OperationKind
from crdtcast.engine.peer import Peer
from crdtcast.engine.probation import Probation
from crdtcast.engine.proposer import Proposer
from crdtcast.engine.reissue import Parked, ParkedOperation
from crdtcast.engine.removed_rows import SweptRows
from crdtcast.engine.view_exchange import Exchange
from crdtcast.engine.views import Proposal, Record, ViewChange, Views, Word
from crdtcast.exceptions import RolledBackError
from crdtcast.simulator.group.machine import Machine
from crdtcast.simulator.group.world import GroupWorld
from tests.simulator.trusting_engines import TRUSTING


class _EagerRows(SweptRows):
    def delivered_what_it_had_sent(self, peer: Peer, vector: Vector) -> bool:
        return True


class EagerAdoption(GroupEngine):
    """Late adoption: a digest counts only after its receiver has delivered all that its sender had sent before it."""

    stability_type: ClassVar[type[SweptRows]] = _EagerRows


class NoAsking(GroupEngine):
    """Members ask others whose rows hold stability back; otherwise one lost last digest leaves a message unstable."""

    def _ask(self) -> None:
        self._evaluate()


class NoContext(GroupEngine):
    """Messages name what they depend on."""

    def _take_context(self) -> tuple[Dot, ...]:
        super()._take_context()
        return ()


class SelfishRepair(GroupEngine):
    """Any member sends a missing message again, also one of another origin."""

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

    membership_type: ClassVar[type[Membership]] = _ReplacedCount


class _AsMembers(Membership):
    def is_past(self, incarnation: str) -> bool:
        own = self.cuts.pop(self.me, None)
        past = super().is_past(incarnation)
        if own is not None:
            self.cuts[self.me] = own
        return past


class LeaversTellEnds(GroupEngine):
    """A leaver does not take joiners with an unknown contact for ended: no member has waited for the leaver."""

    membership_type: ClassVar[type[Membership]] = _AsMembers


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
    """A row that covers the sweep of x has all of x, also if it does not name x."""

    stability_type: ClassVar[type[SweptRows]] = _IncompleteRows


class NoTombs(GroupEngine):
    """The cut of an evicted incarnation is kept until its successor has settled."""

    def _forget(self) -> None:
        super()._forget()
        for incarnation in list(self._membership.tombs):
            if incarnation not in self._membership.ended:
                del self._membership.tombs[incarnation]


class LightDigests(GroupEngine):
    """Digests count the messages of members that their vectors no longer name, so that old digests are recognised."""

    def _digest(self, kind: DigestKind) -> Digest:
        return replace(super()._digest(kind), dropped=0)


class _NobodyIsPast(Membership):
    def is_past(self, incarnation: str) -> bool:
        return False


class TakesGhosts(GroupEngine):
    """A forgotten incarnation is notified that it has ended, and its messages are ignored."""

    membership_type: ClassVar[type[Membership]] = _NobodyIsPast


class Undecided(GroupEngine):
    """Nothing of an old incarnation is sent again before the group has decided how much of it counts."""

    def fate(self, incarnation: str) -> int | Fate:
        fate = super().fate(incarnation)
        return self.vector.get(incarnation, 0) if fate is Fate.MEMBER else fate


class NewRowsBlank(GroupEngine):
    """A joiner's row is what its contact had delivered. (This only saves time: its first digest says more.)"""

    def _apply_join(self, join: Join, dot: Dot) -> None:
        super()._apply_join(join, dot)
        for peer in self._peers.values():
            if peer.incarnation.startswith(join.base + "+"):
                peer.forget_row()


class AnyProgram(GroupEngine):
    """A contact admits only programs that read what the group uses, or is about to use."""

    def check_reader(self, who: str, reads: Span) -> None:
        pass


class GoesBack(GroupEngine):
    """An older program refuses the state of a member that has agreed to read more."""

    def _check_program(self, me: str, state: GroupState, reads: Span) -> None:
        pass


class _Unfrozen(Membership):
    def limit(self, incarnation: str) -> int | None:
        cut = self.cuts.get(incarnation)
        return None if cut is None else cut.counter


class NoFreezing(GroupEngine):
    """A member that promises takes no more messages of the victims; otherwise it may have more of them than the cut."""

    membership_type: ClassVar[type[Membership]] = _Unfrozen


class _Thawing(Consensus):
    def _promise(self) -> bool:
        before = self.own.promised
        done = super()._promise()
        proposal = self.open_proposal()
        if done and before != self.own.promised and proposal is not None and not proposal.needs_all:
            self.knowledge.membership.frozen.clear()
            self.knowledge.limits.update()
        return done


class ThawsByBallot(GroupEngine):
    """Only the decision of its epoch ends a freeze: a later ballot may have to adopt an earlier change."""

    consensus_type: ClassVar[type[Consensus]] = _Thawing


class _Forgetful(Consensus):
    def _value(self, proposal: Proposal) -> ViewChange | None:
        known = self.records
        self.records = {who: replace(record, accepted=None) for who, record in known.items()}
        value = super()._value(proposal)
        self.records = known
        return value


class AdoptsNothing(GroupEngine):
    """Later ballots adopt what a voter has accepted."""

    consensus_type: ClassVar[type[Consensus]] = _Forgetful


class _AnyFew(Consensus):
    def _is_quorum(self, who: Collection[str], word: Word) -> bool:
        return bool(self.view.voters & set(who)) or not self.view.voters


class NoMajority(GroupEngine):
    """A majority of the voters decides."""

    consensus_type: ClassVar[type[Consensus]] = _AnyFew


class _Known(Consensus):
    def _going_on(
        self, proposal: Proposal, promises: Mapping[str, Record]
    ) -> tuple[set[str], set[str]]:
        on = set(self.knowledge.membership.going_on()) - set(proposal.victims)
        return on, on - promises.keys()


class OwnMembersOnly(GroupEngine):
    """All remaining members promise, also those that only others know."""

    consensus_type: ClassVar[type[Consensus]] = _Known


class _Voters(Consensus):
    def _going_on(
        self, proposal: Proposal, promises: Mapping[str, Record]
    ) -> tuple[set[str], set[str]]:
        on, missing = super()._going_on(proposal, promises)
        return on - missing, set()


class AQuorumIsEnough(GroupEngine):
    """A cut needs the promise of all remaining members; a majority of the voters is not enough."""

    consensus_type: ClassVar[type[Consensus]] = _Voters


class FreshJoiners(GroupEngine):
    """A joiner is bound by the freeze of its contact."""

    def __init__(self, me: str, state: GroupState, reads: Span = PROGRAM) -> None:
        super().__init__(me, replace(state, frozen={}) if state.record is None else state, reads)


class _FirstCut(Consensus):
    def _cuts(
        self, proposal: Proposal, on: Collection[str], promises: Mapping[str, Record]
    ) -> tuple[tuple[str, Cut], ...]:
        cuts = super()._cuts(proposal, on, promises)
        return tuple((who, cut) for who, cut in cuts if who in proposal.victims)


class FirstCutStays(GroupEngine):
    """A cut is stated again until every member has delivered all within it, since those that have it may leave."""

    consensus_type: ClassVar[type[Consensus]] = _FirstCut


class RowsGoAtOnce(GroupEngine):
    """The last row of a removed member counts until all of its messages within the cut are delivered."""

    def _decided(self, change: ViewChange) -> None:
        super()._decided(change)
        for incarnation in self._membership.cuts:
            self._peers.pop(incarnation, None)
        self._evaluate_now = True


class _NoVotes(Consensus):
    def may_vote(self, learner: str) -> bool:
        return False


class NobodyVotes(GroupEngine):
    """A member that has joined gets a vote."""

    consensus_type: ClassVar[type[Consensus]] = _NoVotes


class _NoHeirs(Consensus):
    def _votes(self, on: Collection[str], gone: Collection[str]) -> tuple[str, ...]:
        voters = self.view.voters
        return tuple(
            x for x in sorted(on) if x not in voters and x not in gone and self.may_vote(x)
        )


class LeavesNoVote(GroupEngine):
    """The last voter that leaves passes its vote to the others."""

    consensus_type: ClassVar[type[Consensus]] = _NoHeirs


class _NobodyLacks(GroupKnowledge):
    def untold(self, gone: Set[str], voters: Set[str]) -> Set[str]:
        return set()


class LeavesUntold(GroupEngine):
    """A leaver stops only after others have all that it has."""

    knowledge_type: ClassVar[type[GroupKnowledge]] = _NobodyLacks


class _AllKnow(Exchange):
    def untold(self) -> Set[str]:
        return set()


class GoesUnheard(GroupEngine):
    """A member that leaves or is evicted stays until a majority knows, since its vote may have been decisive."""

    exchange_type: ClassVar[type[Exchange]] = _AllKnow


class _Careless(Consensus):
    def prune(self) -> None:
        self.decided.clear()


class TellsNoDecision(GroupEngine):
    """A member keeps the decision that ended an epoch until all know it."""

    consensus_type: ClassVar[type[Consensus]] = _Careless


class _Unasked(Proposer):
    def _ready(self, terms: Proposal, tick: int) -> Proposal | None:
        return terms


class FreezesUnasked(GroupEngine):
    """A proposer asks first: it freezes nothing while a required member is away."""

    proposer_type: ClassVar[type[Proposer]] = _Unasked


class _Rash(Proposer):
    def _look_at_open(self, tick: int) -> None:
        return


class WaitsForEver(GroupEngine):
    """A ballot that makes no progress is ended by a ballot without victims."""

    proposer_type: ClassVar[type[Proposer]] = _Rash


class BelievesItsDisk(GroupEngine):
    """Proof that its disk has lost messages ends an incarnation: it sends nothing and never votes again."""

    def receive(self, sender: str, message: Message | Digest | Ended | Views) -> None:
        with suppress(RolledBackError):
            super().receive(sender, message)

    def renounce(self) -> None:
        pass


class _Acquitted(Probation):
    is_on = is_listening = is_unsure = False

    def look(self, tick: int) -> Set[str]:
        return set()


class SpeaksUnheard(GroupEngine):
    """A member that starts from a disk first asks the others for newer messages of itself, and sends nothing before."""

    probation_type: ClassVar[type[Probation]] = _Acquitted


class KeepsWhatWasTold(GroupEngine):
    """A member that lacks what it has acknowledged is notified, since no other member keeps those messages."""

    def proof_of_loss(self, member: str, vector: Vector) -> Message | Digest | None:
        return self._own_message(member, vector.get(member, 0))


MUTANTS: dict[str, type[GroupEngine]] = {
    mutant.__name__: mutant
    for mutant in (
        EagerAdoption,
        NoAsking,
        NoContext,
        SelfishRepair,
        ReplacedCount,
        LeaversTellEnds,
        NoFreezing,
        ThawsByBallot,
        AdoptsNothing,
        NoMajority,
        OwnMembersOnly,
        AQuorumIsEnough,
        FreshJoiners,
        FirstCutStays,
        RowsGoAtOnce,
        NobodyVotes,
        LeavesNoVote,
        LeavesUntold,
        GoesUnheard,
        TellsNoDecision,
        FreezesUnasked,
        WaitsForEver,
        DropsUnswept,
        IncompleteRows,
        NoTombs,
        LightDigests,
        TakesGhosts,
        Undecided,
        NewRowsBlank,
        AnyProgram,
        GoesBack,
        BelievesItsDisk,
        SpeaksUnheard,
        KeepsWhatWasTold,
        *TRUSTING.values(),
    )
}


class SendsUnsynced(GroupWorld):
    """A message leaves only after the state that records it is saved (write-ahead)."""

    def after(self, machine: Machine) -> None:
        super().after(machine)
        released, machine.held = machine.held, []
        for to, content in released:
            self._transmit(machine, to, content)


class DifferenceOfStore(GroupWorld):
    """What a joiner's copy lacks comes from the state: stable messages are in no message store."""

    def difference(self, host: Machine, vector: Vector) -> dict[bytes, Dot]:
        stored = {
            message.dot
            for message in host.running.state().unstable
            if message.kind == OperationKind.APPLICATION
        }
        beyond = super().difference(host, vector)
        return {payload: dot for payload, dot in beyond.items() if dot in stored}


class SendsAllAgain(GroupWorld):
    """A member does not send again those operations of its former incarnation that the group has."""

    def to_send_again(self, machine: Machine, parked: Parked) -> tuple[ParkedOperation, ...]:
        return tuple(o for o in parked.operations if o.dot not in parked.copies)


class NotesUnsaved(GroupWorld):
    """An operation that is sent again is first saved with its new dot, so that a crash sends nothing twice."""

    def _sync(self, machine: Machine) -> bool:
        parked = machine.parked
        if parked is not None:
            machine.parked = replace(parked, copies={})
        done = super()._sync(machine)
        machine.parked = parked
        return done


class SendsTheSameAgain(GroupWorld):
    """Three-way comparison: a removal sent again removes what it meant then, not what was written since."""

    def instead_of(self, payload: bytes) -> bytes:
        return payload


class CopiesToAny(GroupWorld):
    """Only a program that can read a copy gets one, even before it asks to join."""

    def may_copy(self, host: Machine, machine: Machine) -> bool:
        return True


class TakesLowerIds(FoundingRound):
    """The ids of each name only rise: a founder that has confirmed a greater one never confirms a lower one again."""

    def heard(self, name: str, said: Announcement) -> None:
        if self._founders.get(name) != said.founders[name]:
            self._founders[name] = said.founders[name]
            self._confirms = None
        super().heard(name, said)


class KeepsItsId(FoundingRound):
    """A founder that hears of a greater id of its own name takes a fresh one above it."""

    def _renew(self, name: str, known: str) -> None:
        pass


class CountsAnyConfirmation(FoundingRound):
    """All confirmations are for one set of ids."""

    def missing(self) -> list[str]:
        return [n for n in self.names if n != self.name and not self._confirms_any(n)]

    def _confirms_any(self, name: str) -> bool:
        return name in self._heard and self._heard[name].confirms


class ForgetsWhatItConfirmed(FoundingRound):
    """A founder that hears of a group that it has confirmed is a member of it."""

    def heard_of_group(self, group_id: str) -> None:
        self._confirmed.clear()
        super().heard_of_group(group_id)


class BeginsUnconfirmed(FoundingRound):
    """A group begins only with the confirmations of all founders."""

    def missing(self) -> list[str]:
        return [name for name in self.names if name != self.name and name not in self._heard]


FOUNDING_MUTANTS: dict[str, type[FoundingRound]] = {
    mutant.__name__: mutant
    for mutant in (
        TakesLowerIds,
        KeepsItsId,
        CountsAnyConfirmation,
        ForgetsWhatItConfirmed,
        BeginsUnconfirmed,
    )
}


WORLD_MUTANTS: dict[str, type[GroupWorld]] = {
    mutant.__name__: mutant
    for mutant in (
        SendsUnsynced,
        DifferenceOfStore,
        SendsAllAgain,
        NotesUnsaved,
        SendsTheSameAgain,
        CopiesToAny,
    )
}


def engine_name(mutant: str) -> str:
    """What `--engine` and schedules call a mutant."""
    found = {**MUTANTS, **FOUNDING_MUTANTS, **WORLD_MUTANTS}[mutant]
    return f"{found.__module__}:{mutant}"
