"""Causal broadcast in a group whose members come and go, while everybody keeps sending.

Join, leave and eviction are ordinary causal messages, so everybody sees them at the same place of causal history. What
each rule is for: docs/protocol.md, *Members that come and go*.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from crdtcast.engine.admission import (
    Admission,
    asked_before,
    check_contact,
    check_copy,
    check_joiner,
    check_reader,
)
from crdtcast.engine.changes import MembershipChanges
from crdtcast.engine.level import PROGRAM, Raised, Span
from crdtcast.engine.membership import Fate, GroupState, Member, Standing
from crdtcast.engine.operations import (
    Cut,
    Evict,
    Join,
    Kind,
    Leave,
    Raise,
    Settled,
    decode,
)
from crdtcast.engine.state import EngineCounters
from crdtcast.exceptions import LocalProtocolError, NotReadyError, OutdatedError
from crdtcast.incarnation import base_of, joined_id, name_of
from crdtcast.tags import Dot, Tag, Vector

__all__ = ["Admission", "GroupEngine"]


class GroupEngine(MembershipChanges):
    """One member of a group with members that come and go.

    me: own incarnation id. state: what a former process of the *same* incarnation has saved (its journal is provably
    intact), or what a joiner was given by its contact. reads: the format levels that this program reads; the group is
    told if that has changed. `found` makes the first engines of a new group.

    The runtime syncs `state()` before the outbox leaves: nothing that a crash can take back may be known outside.

    Raises ConfigurationError for a state in which `me` is no member, OutdatedError for one of a level that is not read.
    """

    def __init__(self, me: str, state: GroupState, reads: Span = PROGRAM) -> None:
        super().__init__(me, state, reads)

    @classmethod
    def found(
        cls,
        me: str,
        founders: Iterable[str],
        witnesses: Iterable[str] = (),
        reads: Span = PROGRAM,
    ) -> "GroupEngine":
        """One of the first members of a new group, all of whom know each other's ids from the start.

        All run programs that read `reads`; its format level is the lowest of these, so that any of them may go back.
        """
        everybody = sorted({me, *founders})
        voters = set(witnesses)
        members = tuple(Member(founder, founder in voters, reads) for founder in everybody)
        vector = dict.fromkeys(everybody, 0)
        engine = cls(me, GroupState(vector=vector, members=members, level=reads.lowest), reads)
        engine.resumed = False
        return engine

    # Who is in the group

    @property
    def members(self) -> dict[str, Member]:
        """All members, this one included until it leaves."""
        return dict(self._membership.members)

    @property
    def established(self) -> frozenset[str]:
        """Members whose join is stable here: everybody knows them."""
        return self._membership.established(self._stability.stable)

    @property
    def unheard(self) -> tuple[str, ...]:
        """Members that were let in and of which nothing has come: they may have died on their way. Not those whose
        join is only not stable, since somebody else is silent.
        """
        established = self.established
        return tuple(
            who
            for who, peer in sorted(self._peers.items())
            if who not in established and not peer.met and not self.vector[who]
        )

    def leave_waits_for(self) -> list[str]:
        """Who has still to acknowledge what this member had when it left; empty before that."""
        if self._farewell is None:
            return []
        return self._farewell.waiting_for(self._membership.members.keys(), self._lacking)

    @property
    def victims(self) -> frozenset[str]:
        """Members that are to be evicted and have not been yet."""
        return frozenset(self._membership.evictions)

    @property
    def evictions_asked(self) -> Mapping[Evict, str]:
        """Who was the first to ask for an eviction, as far as is known here, until the victim is forgotten."""
        return self._asked

    def is_majority_without(self, gone: Collection[str]) -> bool:
        """Whether those who would be left are a majority over `gone` and the victims that there are already."""
        membership = self._membership
        victims = {*membership.evictions, *gone}
        return membership.has_majority(victims, self._stability.stable)

    @property
    def ended(self) -> dict[str, Cut]:
        """Incarnations that have ended and are not forgotten yet."""
        return dict(self._membership.ended)

    @property
    def tombs(self) -> dict[str, Cut]:
        """Evicted incarnations whose successors have not settled, and where they were cut."""
        return dict(self._membership.tombs)

    @property
    def cut(self) -> int | None:
        """If this incarnation was evicted: the number of its messages that count, as far as it was told."""
        return self._cut

    # The format level

    @property
    def level(self) -> int:
        """The format level that may be used here: every member reads it, or never gets what is sent in it."""
        if self._evaluate_now and self._levels.raised:
            self._evaluate()
        return self._levels.in_force(self._stability.stable)

    @property
    def agreed(self) -> int:
        """The greatest level that this member has agreed to read; it may be in force elsewhere already."""
        return self._levels.agreed

    @property
    def raises(self) -> tuple[Raised, ...]:
        """Raises of the level that are delivered here, since the start; those in force included."""
        return self._levels.heard

    @property
    def reads(self) -> Span:
        """The levels that the program of this member reads."""
        return self._levels.reads

    @property
    def outdated(self) -> int | None:
        """A level that was asked for and that this program does not read: it takes no writes until it is replaced."""
        refused = self._inbox.refused
        if not refused:
            return None
        operations = [decode(m.kind, m.payload) for m in refused.values() if m.kind == Kind.RAISE]
        return max((op.level for op in operations if isinstance(op, Raise)), default=None)

    @property
    def raisable(self) -> int:
        """The greatest level that all members have said to read, those that are away included."""
        spans = map(self.span_of, self._membership.members)
        return min((span.highest for span in spans), default=self.reads.highest)

    def span_of(self, member: str) -> Span:
        """The levels that the program of a member reads, as it said last."""
        # What this member's program reads is certain, also before it has been announced.
        return self.reads if member == self.me else self._membership.members[member].reads

    def lacking_level(self, level: int) -> list[str]:
        """The members whose programs do not read that level, as they said last."""
        return sorted(x for x in self._membership.members if level not in self.span_of(x))

    def raise_level(self, level: int) -> Tag:
        """Ask for a higher format level. It may be used at a member once this is stable there.

        Raises LocalProtocolError if not all members read it, or if there is nothing to raise.
        """
        self._refuse_if_ending()
        self._refuse_if_outdated()
        if level <= self._levels.agreed:
            raise LocalProtocolError(f"the group's format level is {self._levels.agreed} already")
        if lacking := self.lacking_level(level):
            said = ", ".join(f"{name_of(x)} (reads {self.span_of(x)})" for x in lacking)
            raise LocalProtocolError(
                f"cannot raise the format level to {level}: not all members read it: upgrade or evict {said}"
            )
        return self._issue(Raise(level))

    def check_reader(self, who: str, reads: Span) -> None:
        """Raise HandshakeError if a program that reads `reads` must not get what this member has to give."""
        check_reader(who, reads, self.level, max(self.agreed, self.outdated or 0))

    def outdated_text(self) -> str:
        """What is wrong with a member that is outdated, and what to do."""
        return (
            f"{self.me} takes no writes: its group is about to use format level {self.outdated}, and this program "
            f"reads {self.reads}: start a program that reads level {self.outdated} here"
        )

    def _refuse_if_outdated(self) -> None:
        if self.outdated is not None:
            raise OutdatedError(self.outdated_text())

    # What members and operators ask for

    def admit(
        self,
        base: str,
        *,
        covered: Vector | None = None,
        copied_from: str | None = None,
        replaces: Iterable[str] = (),
        witness: bool = False,
        reads: Span = PROGRAM,
    ) -> Admission:
        """Let a joiner in; it may send as soon as it has the admission and the application's state of this instant.

        base: what the joiner has chosen of its id; asked again with it, gives a later state and joins nobody twice.
            Another contact is asked with a fresh base, which replaces this one: it may not know of the join yet.
        covered: the vector of the copy of the application's state that the joiner has fetched before, and the member
            that it was copied from; what lies beyond it is what has to travel with the admission.
        replaces: bases or ids of the incarnations that the joiner takes the place of: earlier lives of the same node,
            or one that the operator declares lost. They are evicted with the join, whether or not they are known here.
        reads: the format levels that the joiner's program reads.

        Raises NotReadyError if this member cannot do it yet, and HandshakeError if it must not at all.
        """
        membership = self._membership
        check_contact(membership, over=self._over)
        self._refuse_if_reserved()
        self.check_reader(base, reads)
        known = asked_before(membership, base)
        if known is not None:
            check_copy(membership, self.vector, covered or {}, copied_from)
            return Admission(known, self.state())
        replaced = tuple(sorted({base_of(incarnation) for incarnation in replaces}))
        check_joiner(membership, base, replaced)
        if not membership.is_established(self.me, self._stability.stable):
            raise NotReadyError(f"{self.me} has just joined itself and cannot let others in yet")
        check_copy(membership, self.vector, covered or {}, copied_from)
        for victim in list(membership.members):
            if base_of(victim) in replaced and victim not in membership.evictions:
                # First, so that our report is the joiner's, too.
                self._issue(Evict(victim, force=False))
        tag = self._issue(Join(base, replaced, witness, dict(self.vector), reads))
        return Admission(joined_id(base, self.me, tag.dot.counter), self.state())

    def leave(self) -> Tag:
        """Leave the group: the last message of this incarnation. Go on until `standing` is LEFT (or EVICTED)."""
        return self._issue(Leave(() if self.me in self._membership.evictions else self._unswept()))

    def evict(self, incarnation: str, *, force: bool = False) -> Tag:
        """Start to cut a dead or unreachable member off. It is done when the others have said what they have of it,
        and are a majority; `force` does without the majority, and may split the group in two for good.
        """
        self._refuse_if_ending()
        if incarnation not in self._membership.members:
            raise LocalProtocolError(f"{incarnation} is no member: nothing to evict")
        if incarnation == self.me:
            raise LocalProtocolError(f"{incarnation} is this node itself: let it leave")
        if not force and not any(
            other != incarnation and other not in self._membership.evictions and not member.witness
            for other, member in self._membership.members.items()
        ):
            raise LocalProtocolError(
                f"without {incarnation} no member would hold data that is not to be evicted itself"
            )
        return self._issue(Evict(incarnation, force))

    def settle(self, incarnation: str) -> Tag:
        """All that was to be sent again of this evicted incarnation has been: the group may forget it."""
        tomb = self._membership.tombs.get(incarnation)
        if tomb is None:
            raise LocalProtocolError(f"{incarnation} was not evicted, or has settled already")
        return self._issue(Settled(incarnation, tomb.counter))

    def fate(self, incarnation: str) -> int | Fate:
        """How many messages of a former incarnation the group has; a `Fate` if there is no such number."""
        return self._membership.fate(incarnation)

    def surrender(self) -> None:
        """By the operator's word, after a mutual forced eviction: the other side goes on, this incarnation ends."""
        if self.standing is not Standing.DISPUTED:
            raise LocalProtocolError(f"{self.me} is not in dispute with anybody")
        self._evicted = True

    def take_issued(self) -> list[Tag]:
        """Tags of the membership operations that this engine has sent since the last call, in order."""
        issued, self._issued = self._issued, []
        return issued

    def send(self, payload: bytes, *, after: Iterable[Tag] | None = None) -> Tag:
        """tcbroadcast, see `Core.send`. EndedError once this incarnation leaves or has ended, OutdatedError while its
        program does not read the group's format.
        """
        self._refuse_if_ending()
        if self._inbox.refused:
            self._refuse_if_outdated()
        return super().send(payload, after=None if after is None else tuple(after))

    def reserve(self, context: tuple[Dot, ...] | None = None) -> Dot:
        """Take the next dot, see `Core.reserve`. OutdatedError while its program does not read the group's format, but
        for a reservation of a former process: that was made before.
        """
        if context is None:
            self._refuse_if_outdated()
        return super().reserve(context)

    # Looking in

    def held_back_by(self) -> list[str]:
        """See `Core.held_back_by`; and those whose messages keep an eviction open: they depend on messages of the
        victim that nobody has handed on.
        """
        holders = super().held_back_by()
        short = {x for x, bound in self._vouching.bound.items() if self.vector[x] < bound}
        if short:
            waits_for = {
                message.dot.origin
                for message in self._inbox.messages()
                if any(o in short and n > self.vector[o] for o, n in message.context)
            }
            holders += sorted(waits_for.difference(holders, short))
        return holders

    @property
    def quiet(self) -> bool:
        """Nothing waits here, nothing is unstable, no eviction is open, and nothing has to be swept."""
        membership = self._membership
        busy = membership.evictions or membership.ended or self._farewell is not None
        return super().quiet and not busy and not self._vouching.held

    def counters(self) -> EngineCounters:
        """Gauges and totals; see `EngineCounters`."""
        return replace(
            super().counters(),
            joins=self._joins,
            leaves=self._leaves,
            evictions=self._evictions,
            evictions_refused=self._evictions_refused,
            sweeps=self._sweeps,
            ghosts=self._ghosts,
            orphans=self._orphans,
            frozen_ignored=self._frozen_ignored,
        )
