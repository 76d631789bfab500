"""Causal broadcast in a group whose members come and go, while everybody keeps sending.

Joins are ordinary causal messages, so everybody sees them at the same place of causal history. Who goes, and who has a
vote, is decided view by view (`engine.consensus`). What each rule is for: docs/protocol.md.
"""

from collections.abc import Iterable, Set
from dataclasses import replace

from crdtcast.causality.member_id import base_of, joined_by, joined_id, name_of
from crdtcast.causality.tags import Tag, Vector
from crdtcast.engine.admission import (
    Admission,
    asked_before,
    check_contact,
    check_copy,
    check_joiner,
    check_reader,
)
from crdtcast.engine.level import PROGRAM, Span
from crdtcast.engine.membership import Fate, GroupState, MemberInfo, Standing
from crdtcast.engine.membership_ops import MembershipChanges
from crdtcast.engine.operations import Cut, Join, Settled
from crdtcast.engine.probation import LISTEN
from crdtcast.engine.state import EngineCounters
from crdtcast.engine.store import Store
from crdtcast.engine.views import Decided, Proposal, View, Views, Wants
from crdtcast.exceptions import LocalProtocolError, NotReadyError

__all__ = ["Admission", "GroupEngine"]


class GroupEngine(MembershipChanges):
    """One member of a group with members that come and go.

    me: own incarnation id. state: what a former process of the *same* incarnation has saved (its journal is provably
    intact), or what a joiner was given by its contact. reads: the format levels that this program reads; the group is
    told if that has changed. store: an empty one for messages that are not stable; by default one in memory. `found`
    makes the first engines of a new group.

    The runtime syncs `state()` before the outbox leaves: nothing that a crash can take back may be known outside.

    Raises ConfigurationError for a state in which `me` is no member, OutdatedError for one of a level that is not read.
    """

    def __init__(
        self, me: str, state: GroupState, reads: Span = PROGRAM, store: Store | None = None
    ) -> None:
        super().__init__(me, state, reads, store)

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
        members = [MemberInfo(founder, founder in voters, reads) for founder in everybody]
        return cls(me, cls.first_state(members, reads.lowest), reads)

    @staticmethod
    def first_state(members: Iterable[MemberInfo], level: int) -> GroupState:
        """That of each founder of a new group with these members, whose format level is that."""
        founders = tuple(sorted(members, key=lambda member: member.incarnation))
        vector = {founder.incarnation: 0 for founder in founders}
        view = View.first(vector, level)
        return GroupState(vector=vector, members=founders, view=view, agreed=view.level)

    # Who is in the group

    @property
    def members(self) -> dict[str, MemberInfo]:
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
        return tuple(sorted(filter(self.is_unheard, self.members.keys() - established)))

    def awaited_founders(self, name: str) -> tuple[str, ...]:
        """Those that a member without a journal waits for before it lets a joiner of that name in: nothing has come of
        them, so perhaps they have not begun, and begin another group if those that have are lost.
        """
        if name in map(name_of, self.members):
            return ()
        founders = [m for m in self.members if m != self.me and joined_by(m) is None]
        return tuple(sorted(filter(self._is_silent, founders)))

    # Views

    @property
    def view(self) -> View:
        """Who votes, in which epoch, and the format level."""
        return self._consensus.view

    @property
    def open_change(self) -> Proposal | None:
        """What the group is about to decide, if this member has promised something and knows what."""
        return self._consensus.open_proposal()

    def change_waits_for(self) -> list[str]:
        """Whom the open change waits for, as far as is known here: those who have not promised, or voters who have not
        accepted.
        """
        proposal = self.open_change
        return [] if proposal is None else sorted(self._consensus.without_answer(proposal))

    @property
    def open_since(self) -> int:
        """For how many ticks the epoch, or its newest ballot, has been open."""
        return self._tick - self._proposer.since

    @property
    def wants(self) -> Wants:
        """What this member is to bring about."""
        return self._proposer.wants

    def waits_for(self) -> list[str]:
        """Whom that waits for: members that have not answered, promised, or taken what a leaver has."""
        if self.me in self._membership.cuts:
            return sorted(self.untold_of_view())
        return list(self._proposer.waits_for)

    def views_told(self) -> Views:
        """All that this member would tell one that knows nothing of its view."""
        return self._exchange.all_told()

    def take_decisions(self) -> list[Decided]:
        """What was decided since the last call, in order."""
        decisions = list(self._decisions)
        self._decisions.clear()
        return decisions

    @property
    def victims(self) -> frozenset[str]:
        """Members that are to go, as far as this one knows, and have not ended here."""
        membership = self._membership
        wanted = self._proposer.wants.victims.keys() & self.evictable
        return frozenset({*membership.frozen, *membership.cuts, *wanted})

    @property
    def evictable(self) -> Set[str]:
        """Incarnations that `evict` accepts: all members, and those that only others know and a change waits for."""
        return self._membership.members.keys() | self._proposer.named

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
        return self._consensus.view.level

    @property
    def agreed(self) -> int:
        """The greatest level that this member has agreed to read; it may be in force elsewhere already."""
        return self._agreed

    @property
    def reads(self) -> Span:
        """The levels that the program of this member reads."""
        return self._reads

    @property
    def raisable(self) -> int:
        """The greatest level that all members have said to read, those that are away included."""
        spans = map(self.span_of, self.going_on())
        return min((span.highest for span in spans), default=self.reads.highest)

    def raise_level(self, level: int) -> None:
        """Ask for a higher format level. It is in force with the change of view that all have agreed to.

        Raises LocalProtocolError if not all members read it, or if there is nothing to raise.
        """
        self._refuse_if_ending()
        self._refuse_if_split()
        if level <= self.level:
            raise LocalProtocolError(f"the group's format level is already {self.level}")
        if lacking := self.lacking_level(level):
            said = ", ".join(f"{name_of(x)} (reads {self.span_of(x)})" for x in lacking)
            raise LocalProtocolError(
                f"cannot raise the format level to {level}: not all members read it: upgrade or "
                f"evict {said}"
            )
        self._want(replace(self.wants, level=level))

    def check_reader(self, who: str, reads: Span) -> None:
        """Raise HandshakeError if a program that reads `reads` must not get what this member has to give."""
        check_reader(who, reads, self.level, self.agreed)

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
            or one that the operator declares lost. A change of view puts them out, whether or not they are known here.
        reads: the format levels that the joiner's program reads.

        Raises NotReadyError if this member cannot do it yet, and HandshakeError if it must not at all.
        """
        membership = self._membership
        check_contact(
            membership, self.victims, over=self._over or self.standing is Standing.LEAVING
        )
        self._refuse_if_reserved()
        self.check_reader(base, reads)
        known = asked_before(membership, base)
        if known is not None:
            check_copy(membership, self.vector, covered or {}, copied_from)
            return Admission(known, self.state().given_to_joiner())
        if self.is_on_probation and self._tick < LISTEN:
            raise NotReadyError(
                f"{self.me} has just started, and first asks the others whether they have more of "
                "its messages: try again"
            )
        replaced = tuple(sorted({base_of(incarnation) for incarnation in replaces}))
        check_joiner(membership, base, replaced)
        if not membership.is_established(self.me, self._stability.stable):
            raise NotReadyError(f"{self.me} has just joined and cannot admit others yet: try again")
        check_copy(membership, self.vector, covered or {}, copied_from)
        tag = self._issue(Join(base, replaced, witness, dict(self.vector), reads))
        joined = joined_id(base, self.me, tag.dot.counter)
        return Admission(joined, self.state().given_to_joiner())

    def _refuse_if_split(self) -> None:
        if self.standing is Standing.SPLIT:
            raise LocalProtocolError(f"{self.me} cannot change the members: {self.told_of_split()}")

    def told_of_split(self) -> str:
        """What has happened, and what to do, where the standing is SPLIT."""
        apart = self.apart
        epochs = ", ".join(f"{epoch:,}" for epoch in sorted(set(apart.values())))
        return (
            f"{', '.join(sorted(map(name_of, apart)))} and this member follow two different "
            f"changes of epoch {epochs}, since a voter's disk was set back. Data goes on. Decide "
            "which side goes on, and run `crdtcast surrender` at each member of the other one: "
            "it joins again"
        )

    def _want(self, wants: Wants) -> None:
        self._proposer.wants = wants
        self._look_at_views()

    def leave(self) -> None:
        """Leave the group: this incarnation sends nothing any more. Go on until `standing` is LEFT (or EVICTED)."""
        self._refuse_if_ending()
        self._refuse_if_reserved()
        self._want(replace(self.wants, leaves=True))

    def evict(self, *incarnations: str, force: bool = False) -> None:
        """Ask the group to put members out that are dead or unreachable, in one change.

        It is decided by a majority of those who have a vote, those who go included, once all others are there; `force`
        does without the majority, and may split the group in two for good. It stays wanted until it is done, or until
        `withdraw`.
        """
        self._refuse_if_ending()
        self._refuse_if_split()
        for incarnation in incarnations:
            if incarnation in self._membership.cuts:
                raise LocalProtocolError(f"the group has already decided to remove {incarnation}")
            if incarnation not in self.evictable:
                raise LocalProtocolError(
                    f"{incarnation} is not a member: there is nothing to evict"
                )
            if incarnation == self.me:
                raise LocalProtocolError(f"{incarnation} is this node itself: use leave")
        victims = {**self.wants.victims, **dict.fromkeys(incarnations, force)}
        if not any(other not in victims and self.holds_data(other) for other in self.going_on()):
            raise LocalProtocolError(
                f"cannot remove {', '.join(map(name_of, sorted(incarnations)))}: the group would "
                "have no data: let another member that holds data join first"
            )
        self._want(replace(self.wants, victims=victims))

    def withdraw(self, *members: str) -> None:
        """Evict these no more, by their names or incarnation ids; all of this member's victims, if none is named.

        Raises LocalProtocolError for one that this member has not asked to evict.
        """
        victims = dict(self.wants.victims)
        for member in members or tuple(victims):
            found = [victim for victim in victims if member in (victim, name_of(victim))]
            if not found:
                raise LocalProtocolError(
                    f"{name_of(self.me)} has not asked to evict {member}: withdraw the eviction "
                    "on the member that asked"
                )
            for victim in found:
                del victims[victim]
        self._want(replace(self.wants, victims=victims))

    def settle(self, incarnation: str) -> Tag:
        """All that was to be sent again of this evicted incarnation has been: the group may forget it."""
        tomb = self._membership.tombs.get(incarnation)
        if tomb is None:
            raise LocalProtocolError(f"{incarnation} was not evicted, or has already settled")
        return self._issue(Settled(incarnation, tomb.counter))

    def fate(self, incarnation: str) -> int | Fate:
        """How many messages of a former incarnation the group has; a `Fate` if there is no such number."""
        return self._membership.fate(incarnation)

    def surrender(self) -> None:
        """By the operator's word, where there are two sides: the other one goes on, this incarnation ends."""
        if self.standing not in (Standing.DISPUTED, Standing.SPLIT):
            raise LocalProtocolError(f"{self.me} has no dispute")
        self._become_evicted(None)

    def renounce(self) -> None:
        """This incarnation is over: its journal, or a peer, says that it is not all there."""
        self._become_evicted(None)

    def take_issued(self) -> list[Tag]:
        """Tags of the membership operations that this engine has sent since the last call, in order."""
        issued, self._issued = self._issued, []
        return issued

    def send(self, payload: bytes, *, after: Iterable[Tag] | None = None) -> Tag:
        """tcbroadcast, see `Core.send`. EndedError once this incarnation leaves or has ended."""
        if not self.is_plain:
            self._refuse_if_ending()
        return self._send(payload, 0, None if after is None else tuple(after))

    # Looking in

    @property
    def quiet(self) -> bool:
        """Nothing waits here, nothing is unstable, no change of view is open, no member is replaced, and nothing has
        to be swept.
        """
        membership, own = self._membership, self._consensus.own
        busy = membership.limited() or membership.ended or own.promised.number or self.wants
        busy = busy or membership.replaced_among(membership.going_on())
        return super().quiet and not busy and not self._held

    @property
    def has_told_all(self) -> bool:
        """Whether everybody who is linked is known to know what this member knows of views."""
        return self._exchange.is_quiet

    def counters(self) -> EngineCounters:
        """Gauges and totals; see `EngineCounters`."""
        return replace(
            super().counters(),
            joins=self._joins,
            leaves=self._leaves,
            evictions=self._evictions,
            sweeps=self._sweeps,
            ghosts=self._ghosts,
            views=self.view.epoch,
        )
