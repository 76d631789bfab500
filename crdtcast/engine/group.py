"""Causal broadcast in a group whose members come and go, while all keep sending.

Joins are ordinary causal messages, so all members see them at the same place of causal history. Removals and votes are
decided view by view (`engine.consensus`). Members that have delivered the same, and are in the same view, do the same.
docs/protocol.md gives the reason for each rule.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from operator import attrgetter
from typing import ClassVar

from crdtcast.causality.member_id import base_of, is_named, joined_by, joined_id, name_of
from crdtcast.causality.messages import Delivery, Digest, DigestKind, Ended, Message, Transmit
from crdtcast.causality.tags import Dot, Tag, Vector, covers, merge_into
from crdtcast.engine.admission import (
    Admission,
    asked_before,
    check_contact,
    check_copy,
    check_joiner,
    check_reader,
)
from crdtcast.engine.checks import (
    check_group_digest,
    check_incarnation,
    check_message,
    check_state,
    check_told,
)
from crdtcast.engine.consensus import Consensus
from crdtcast.engine.core import Core
from crdtcast.engine.delivery_limits import DeliveryLimits
from crdtcast.engine.digest_vector import DigestVector
from crdtcast.engine.forks import Forks
from crdtcast.engine.group_knowledge import GroupKnowledge
from crdtcast.engine.level import PROGRAM, Span, check_program
from crdtcast.engine.membership import Early, Fate, GroupState, MemberInfo, Membership, Standing
from crdtcast.engine.operation_claims import Claims
from crdtcast.engine.operations import Cut, How, Join, Operation, Reads, Settled, Sweep, encode
from crdtcast.engine.own_standing import OwnStanding
from crdtcast.engine.peer import Peer
from crdtcast.engine.probation import LISTEN, Probation
from crdtcast.engine.proposer import Proposer
from crdtcast.engine.removed_rows import SweptRows
from crdtcast.engine.state import EngineCounters
from crdtcast.engine.store import Store
from crdtcast.engine.view_exchange import Exchange
from crdtcast.engine.views import Decided, Proposal, Record, View, ViewChange, Views, Wants
from crdtcast.exceptions import (
    EndedError,
    HandshakeError,
    LocalProtocolError,
    NotReadyError,
    RemoteProtocolError,
    RolledBackError,
)
from crdtcast.short_repr import shown

__all__ = ["Admission", "GroupEngine"]

MOST_DECISIONS = 1000
"""Decisions that are kept for `take_decisions`: the newest, if none are taken."""
_APART_FROM_MESSAGES = attrgetter(
    *("_consensus.own", "_consensus.view", "_proposer.wants"),
    *(f"_membership.{part}" for part in ("cuts", "frozen", "ended", "tombs", "replaced", "swept")),
    *("_dropped", "_knowledge.agreed"),
)
SWEEP_WAIT = 3
"""Ticks between the end of an incarnation and the sweep of the least member; each next one waits as much longer."""


class GroupEngine(Core):
    """One member of a group with members that come and go.

    me: own incarnation id.
    state: what a former process of the *same* incarnation has saved (its journal is provably intact), or what a contact
        has given to a joiner; `found` makes the first engines of a new group.
    reads: the format levels that this program reads; the group is notified if that has changed.
    store: an empty one for messages that are not stable; by default one in memory.

    The runtime syncs `state()` before the outbox leaves: nothing that a crash can take back may be known outside.

    Raises ConfigurationError if `me` is not a member in the state, OutdatedError if `reads` lacks its level.
    """

    stability_type: ClassVar[type[SweptRows]] = SweptRows
    membership_type: ClassVar[type[Membership]] = Membership
    claims_type: ClassVar[type[Claims]] = Claims
    probation_type: ClassVar[type[Probation]] = Probation
    knowledge_type: ClassVar[type[GroupKnowledge]] = GroupKnowledge
    consensus_type: ClassVar[type[Consensus]] = Consensus
    forks_type: ClassVar[type[Forks]] = Forks
    exchange_type: ClassVar[type[Exchange]] = Exchange
    proposer_type: ClassVar[type[Proposer]] = Proposer
    standing_type: ClassVar[type[OwnStanding]] = OwnStanding

    _stability: SweptRows

    def __init__(
        self, me: str, state: GroupState, reads: Span = PROGRAM, store: Store | None = None
    ) -> None:
        self._check_program(me, state, reads)
        check_state(me, state)
        vector = {**state.vector, me: state.vector.get(me, 0)}
        peers = {m.incarnation: Peer(m.incarnation) for m in state.members if m.incarnation != me}
        self._membership = membership = self.membership_type(me, vector, state)
        stability = self.stability_type(vector, peers, state.stable, membership)
        told, resumed = DigestVector(vector), state.record is not None  # not that of a joiner
        super().__init__(me, state, vector, told, peers, stability, store, resumed=resumed)
        self._dropped = state.dropped
        self._claims = self.claims_type(membership, vector, self._past_of, self.blames)
        self._limits = DeliveryLimits(peers, membership, stability, self._inbox)
        self._members, self._limited = membership.members, self._limits.by_origin
        self._knowledge = knowledge = self.knowledge_type(
            peers, membership, stability, self._limits, reads, state.agreed, self.resumed
        )
        self._probation = probation = self.probation_type(
            me, state.counter, membership.others, resumed=self.resumed
        )
        view = state.view
        own = state.record or Record(me, 0, view.epoch, view.name, vector[me])
        self._consensus = consensus = self.consensus_type(
            view, own, state.decided, knowledge, self._abstains, self._decided
        )
        self._forks = forks = self.forks_type(consensus, membership.others)
        self._exchange = exchange = self.exchange_type(consensus, forks, self.blames)
        self._proposer = proposer = self.proposer_type(consensus, exchange, state.wants)
        self._own = self.standing_type(peers, knowledge, proposer, forks, probation)
        self._strangers: dict[str, Peer] = {}
        """Linked processes that are not members at this one: joiners on their way, and leavers."""
        self._issued: list[Tag] = []
        self._decisions: deque[Decided] = deque(maxlen=MOST_DECISIONS)
        self._ended_at: int | None = None  # the tick since which something waits to be swept
        self._ghosts = 0

    def _check_program(self, me: str, state: GroupState, reads: Span) -> None:
        check_program(me, reads, state.view.level, state.agreed)

    def _abstains(self) -> bool:
        return self._forks.is_split or self._probation.is_listening

    def _past_of(self, message: Message) -> Vector:
        """The past of a message that could be delivered now."""
        past, _ = self._pasts.before(message, self._stability.stable)
        return past

    @classmethod
    def found(
        cls,
        me: str,
        founders: Iterable[str],
        witnesses: Iterable[str] = (),
        reads: Span = PROGRAM,
    ) -> "GroupEngine":
        """One of the first members of a new group. All of them know each other's ids from the start.

        All programs read `reads`. The group's format level is the lowest of these, so that any of them may go back.
        """
        everybody = sorted({me, *founders})
        voters = set(witnesses)
        members = [MemberInfo(founder, founder in voters, reads) for founder in everybody]
        return cls(me, cls.first_state(members, reads.lowest), reads)

    @staticmethod
    def first_state(members: Iterable[MemberInfo], level: int) -> GroupState:
        """The state of each founder of a new group with these members and this format level."""
        founders = tuple(sorted(members, key=lambda member: member.incarnation))
        vector = {founder.incarnation: 0 for founder in founders}
        view = View.first(vector, level)
        return GroupState(vector=vector, members=founders, view=view, agreed=view.level)

    # What this incarnation is

    @property
    def standing(self) -> Standing:
        """What this incarnation is, as far as it knows."""
        return self._own.standing

    @property
    def is_plain(self) -> bool:
        """Whether it is certain that this incarnation is a member that nothing hinders. May be False for one that is:
        sending, or looking for something deliverable, finds that out.
        """
        return self._own.is_plain

    @property
    def is_on_probation(self) -> bool:
        """Whether it has started from a disk, and only listens: others may remember more of it than it does itself."""
        return self._probation.is_on

    @property
    def is_unsure(self) -> bool:
        """Whether it has started from a disk, and not all others have said that they have no more of it."""
        return self._probation.is_unsure

    # Who is in the group

    def going_on(self) -> Collection[str]:
        """The members, this one included, except those that went."""
        return self._membership.going_on()

    def cut_short(self) -> Mapping[str, Cut]:
        """Member that went and has not ended at this one -> its cut."""
        return self._membership.cuts

    def is_over(self, incarnation: str) -> bool:
        """Whether it went, or has ended, or can never be a member."""
        return self._membership.is_over(incarnation)

    @property
    def members(self) -> dict[str, MemberInfo]:
        """All members, this one included until it leaves."""
        return dict(self._membership.members)

    @property
    def established(self) -> frozenset[str]:
        """Members whose join is stable at this one: all members know them."""
        return frozenset(filter(self._knowledge.is_established, self._members))

    @property
    def unheard(self) -> tuple[str, ...]:
        """Members that were admitted and of which nothing has come: they may have died on their way. Not those that
        were heard of, whose join is not stable only because another member is silent.
        """
        established = self.established
        return tuple(sorted(filter(self._consensus.is_unheard, self._members.keys() - established)))

    def awaited_founders(self, name: str) -> tuple[str, ...]:
        """The founders that a member without a journal waits for before it admits a joiner of that name: nothing has
        come of them, so perhaps they have not begun, and begin another group if those that have are lost.
        """
        if name in map(name_of, self.members):
            return ()
        founders = [m for m in self.members if m != self.me and joined_by(m) is None]
        return tuple(sorted(filter(self._knowledge.is_silent, founders)))

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
        """The members that the open change waits for, as far as is known: those that have not promised, or voters that
        have not accepted.
        """
        proposal = self.open_change
        return [] if proposal is None else sorted(self._consensus.without_answer(proposal))

    @property
    def wants(self) -> Wants:
        """What this member has to bring about."""
        return self._proposer.wants

    def waits_for(self) -> list[str]:
        """The members that the wants wait for: they have not answered or promised, or lack what a leaver has."""
        if self.me in self._membership.cuts:
            return sorted(self._exchange.untold())
        return list(self._proposer.waits_for)

    def views_told(self) -> Views:
        """All that this member would send to one that knows nothing of its view."""
        return self._exchange.all_told()

    def take_decisions(self) -> Sequence[Decided]:
        """What was decided since the last call, in order."""
        if not self._decisions:
            return ()
        decisions = list(self._decisions)
        self._decisions.clear()
        return decisions

    @property
    def has_decisions(self) -> bool:
        """Whether `take_decisions` would return something."""
        return bool(self._decisions)

    @property
    def victims(self) -> frozenset[str]:
        """Members that have to go, as far as this one knows, and have not ended at it."""
        membership = self._membership
        wanted = self._proposer.wants.victims.keys() & self.evictable
        return frozenset({*membership.frozen, *membership.cuts, *wanted})

    @property
    def evictable(self) -> Set[str]:
        """Incarnations that `evict` accepts: all members, and those that only others know and a change waits for."""
        return self._members.keys() | self._proposer.named

    @property
    def ended(self) -> dict[str, Cut]:
        """Incarnations that have ended and are not forgotten yet."""
        return dict(self._membership.ended)

    @property
    def has_tombs(self) -> bool:
        """Whether there are `tombs`."""
        return bool(self._membership.tombs)

    def are_members(self, incarnations: Set[str]) -> bool:
        """Whether the members are these."""
        return self._membership.members.keys() == incarnations

    @property
    def tombs(self) -> dict[str, Cut]:
        """Evicted incarnations whose successors have not settled, and where they were cut."""
        return dict(self._membership.tombs)

    @property
    def cut(self) -> int | None:
        """If this incarnation was evicted: the number of its messages that count, as far as it knows."""
        return self._own.cut

    # The format level

    def span_of(self, member: str) -> Span:
        """The levels that the program of a member reads, as it said last."""
        return self._knowledge.span_of(member)

    def lacking_level(self, level: int) -> list[str]:
        """The members whose programs do not read that level, as they said last."""
        return self._knowledge.lacking_level(level)

    @property
    def level(self) -> int:
        """The format level that may be used: every member reads it, or never gets what is sent in it."""
        return self._consensus.view.level

    @property
    def agreed(self) -> int:
        """The greatest level that this member has agreed to read; it may be in force elsewhere already."""
        return self._knowledge.agreed

    @property
    def reads(self) -> Span:
        """The levels that the program of this member reads."""
        return self._knowledge.reads

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
        if not isinstance(level, int):
            raise LocalProtocolError(f"a format level is a number, not {shown(level)}")
        if level <= self.level:
            raise LocalProtocolError(f"the group's format level is already {self.level}")
        if lacking := self.lacking_level(level):
            said = ", ".join(f"{name_of(x)} (reads {self.span_of(x)})" for x in lacking)
            raise LocalProtocolError(
                f"cannot raise the format level to {shown(level)}: not all members read it: upgrade or "
                f"evict {said}"
            )
        self._want(replace(self.wants, level=level))

    def check_reader(self, who: str, reads: Span) -> None:
        """Raises HandshakeError if a program that reads `reads` must not get what this member has to give."""
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
        """Admit a joiner; it may send as soon as it has the admission and the application's state of this instant.

        base: what the joiner has chosen of its id. Asked again with it, gives a later state and admits it only once.
            Ask another contact with a fresh base, which replaces this one: it may not know of the join yet.
        covered: the vector of the copy of the application's state that the joiner has fetched before; copied_from: the
            member that it was copied from. Only what lies beyond it has to travel with the admission.
        replaces: bases or ids of the incarnations whose place the joiner takes: earlier lives of the same node, or one
            that the operator declares lost. A change of view removes them, whether or not this member knows them.
        reads: the format levels that the joiner's program reads.

        Raises NotReadyError if this member cannot do it yet, and HandshakeError if it must not at all.
        """
        membership = self._membership
        check_contact(membership, self.victims, over=self._own.is_ending)
        self._refuse_if_reserved()
        self.check_reader(base, reads)
        known = asked_before(membership, base)
        if known is not None:
            check_copy(membership, covered or {}, copied_from)
            return Admission(known, self.state().given_to_joiner())
        if self.is_on_probation and self._tick < LISTEN:
            raise NotReadyError(
                f"{self.me} has just started, and first asks the others whether they have more of "
                "its messages: try again"
            )
        replaced = tuple(sorted({base_of(incarnation) for incarnation in replaces}))
        check_joiner(membership, base, replaced)
        if not self._knowledge.is_established(self.me):
            raise NotReadyError(f"{self.me} has just joined and cannot admit others yet: try again")
        check_copy(membership, covered or {}, copied_from)
        tag = self._issue(Join(base, replaced, witness, dict(self.vector), reads))
        joined = joined_id(base, self.me, tag.dot.counter)
        return Admission(joined, self.state().given_to_joiner())

    def _refuse_if_split(self) -> None:
        if self.standing is Standing.SPLIT:
            raise LocalProtocolError(f"{self.me} cannot change the members: {self.told_of_split()}")

    def told_of_split(self) -> str:
        """What has happened, and what to do, if the standing is SPLIT."""
        apart = self._forks.apart
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
        """Leave the group: this incarnation no longer sends. Keep running it until `standing` is LEFT (or EVICTED)."""
        self._refuse_if_ending()
        self._refuse_if_reserved()
        self._want(replace(self.wants, leaves=True))

    def keeps_data_without(self, gone: Collection[str]) -> bool:
        """Whether a member with data goes on when these have gone."""
        return any(
            other not in gone and self._knowledge.holds_data(other) for other in self.going_on()
        )

    def evict(self, *incarnations: str, force: bool = False) -> None:
        """Ask the group to remove members that are dead or unreachable, in one change.

        A majority of the voters decides, victims included, once all other members are there. `force` does without the
        majority, and may split the group in two for good. The eviction stays wanted until it is done, or until
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
        if not self.keeps_data_without(victims):
            raise LocalProtocolError(
                f"cannot remove {', '.join(map(name_of, sorted(incarnations)))}: the group would "
                "have no data: let another member that holds data join first"
            )
        self._want(replace(self.wants, victims=victims))

    def withdraw(self, *members: str) -> None:
        """Stop evicting these, by their names or incarnation ids; all of this member's victims, if none is named.

        Raises LocalProtocolError if this member has not asked to evict one of them.
        """
        victims = dict(self.wants.victims)
        for member in members or tuple(victims):
            found = [victim for victim in victims if is_named(victim, member)]
            if not found:
                said = shown(member).strip("'")
                raise LocalProtocolError(
                    f"{name_of(self.me)} has not asked to evict {said}: withdraw the eviction "
                    "on the member that asked"
                )
            for victim in found:
                del victims[victim]
        self._want(replace(self.wants, victims=victims))

    def settle(self, incarnation: str) -> Tag:
        """All that had to be sent again of this evicted incarnation was sent: the group may forget it."""
        tomb = self._membership.tombs.get(incarnation)
        if tomb is None:
            raise LocalProtocolError(f"{incarnation} was not evicted, or has already settled")
        return self._issue(Settled(incarnation, tomb.counter))

    def fate(self, incarnation: str) -> int | Fate:
        """How many messages of a former incarnation the group has; a `Fate` if there is no such number."""
        return self._membership.fate(incarnation)

    def surrender(self) -> None:
        """End this incarnation by the operator's word, if there are two sides: the other one goes on."""
        if self.standing not in (Standing.DISPUTED, Standing.SPLIT):
            raise LocalProtocolError(f"{self.me} has no dispute")
        self.renounce()

    def renounce(self) -> None:
        """This incarnation is over, and sends nothing more: its journal, or a peer, shows that something is lost. So it
        does not know what it has sent, nor what it has voted for.
        """
        self._own.put_out()

    # Links

    def connected(self, peer: str) -> None:
        """A link with this incarnation is up: a member or joiner is sent our vector, an ended one that it has ended."""
        if peer == self.me:
            raise HandshakeError(
                f"{peer} is this node itself: remove its own address from its peers"
            )
        check_incarnation(peer)
        if self._own.is_over:
            self._exchange.link_up(peer)  # others may wait for what it knows
            return
        if self._tell_ended(peer):
            return
        known = self._peers.get(peer)
        if known is None:
            known = self._strangers.setdefault(peer, Peer(peer))
        self._exchange.link_up(peer)
        self._probation.linked()
        self._link_up(known)

    def disconnected(self, peer: str) -> None:
        """The link with this incarnation is gone; what was sent on it may be lost."""
        known = self._peers.get(peer)
        if known is None:
            known = self._strangers.pop(peer, None)
        self._exchange.link_down(peer)
        if known is not None:
            self._link_down(known)

    def _greeting(self, peer: str) -> DigestKind:
        return DigestKind.ASK if self._probation.asks(peer) else DigestKind.NEWS

    def _tell_ended(self, peer: str) -> bool:
        """Notify a peer if it has ended, now and whenever it comes again. Returns whether that was done."""
        membership = self._membership
        cut = membership.ended.get(peer)
        if cut is None and not membership.is_past(peer):
            return False
        if cut is not None and cut.how is How.LEFT and self._consensus.decided:
            return False  # it waits until it hears that a majority knows the decision
        self._outbox.append(Transmit(peer, Ended(peer, membership.cut_of(peer))))
        self._ghosts += 1
        return True

    # Receiving

    def receive(self, sender: str, message: Message | Digest | Ended | Views) -> None:
        """Take what the incarnation `sender` sent. Deliveries and notices then come from `poll` and `poll_stable`.

        Raises RemoteProtocolError for what no member may send, and RolledBackError if the peer remembers more of this
        incarnation than it does itself: it has lost something, and is over. The state is unchanged in either case,
        except `blamed`.
        """
        if not self._own.is_plain and self._own.is_deaf_to(message):
            return
        try:
            if type(message) is Message:
                if sender in self._peers or self._listens_to(sender):
                    try:
                        if message.kind:
                            self._receive_operation(sender, message)
                        else:
                            self._receive_message(sender, message)
                    except TypeError:
                        text = f"{sender} sent {message.dot} with fields of the wrong type"
                        raise RemoteProtocolError(text) from None
            elif type(message) is Digest:
                self._receive_digest(sender, message)
            elif type(message) is Ended:
                self._receive_ended(sender, message)
            elif type(message) is Views:
                self._receive_views(sender, message)
            else:
                raise RemoteProtocolError(f"{message!r:.200} is not a message or digest")
        except RolledBackError:
            self.renounce()
            raise
        except RemoteProtocolError as error:
            self.blames.refuse(sender, error)

    def _listens_to(self, sender: str) -> bool:
        """Whether this member accepts messages from a sender that is not among its peers. One that has ended is
        notified instead, except a leaver, which hands over what it has.
        """
        check_incarnation(sender)
        if self._tell_ended(sender):
            self._stale += 1
            return False
        return True

    def _receive_operation(self, sender: str, message: Message) -> None:
        self._claims.check(sender, message)
        if self._receive_message(sender, message):
            self._claims.senders[message.dot] = sender

    def _receive_early(self, sender: str, message: Message) -> bool:
        membership = self._membership
        origin, counter = message.dot
        if origin in membership.members and origin != self.me and self._inbox.follow(message):
            return True
        check_message(
            sender, message, self.vector, self.me, check_incarnation, resumed=self.resumed
        )
        cut = membership.cuts.get(origin)
        if (
            origin in membership.ended
            or membership.is_past(origin)
            or (cut is not None and counter > cut.counter)
        ):
            self._stale += 1
            return False
        return self._inbox.add(message, sender)

    def _receive_ended(self, sender: str, message: Ended) -> None:
        if message.incarnation == self.me and not self._own.told_ended(sender, message.cut):
            self._stale += 1

    def _receive_views(self, sender: str, frame: Views) -> None:
        if self._own.is_over:
            self._exchange.pass_on(sender, frame)
            return
        self._exchange.check_serial(sender, frame)
        listens = sender in self._peers or self._listens_to(sender)
        if listens and self._exchange.receive(sender, frame):
            self._consensus.react()
            self._look_at_views()

    def _receive_digest(self, sender: str, digest: Digest) -> None:
        weight = check_group_digest(sender, digest, self.vector, self.me, resumed=self.resumed)
        peer = self._peers.get(sender)
        if peer is None:
            if not self._listens_to(sender):
                return
            peer = self._strangers.setdefault(sender, Peer(sender))
        if digest.kind is DigestKind.TOLD:
            if sender in self._members:
                check_told(sender, digest.vector, self._membership, resumed=self.resumed)
            return
        self._digests_in += 1
        peer.met = True
        if peer.frozen or sender not in self._members:
            # Its row is not taken, but it is answered and repaired.
            if digest.kind is DigestKind.ASK:
                self._answer(sender, digest)
            if self._store.size:
                self._repair(peer, digest.vector)
        else:
            self._take_digest(peer, digest, weight)
        if digest.kind is DigestKind.REPLY and self.resumed:
            self._probation.answered(sender)
            self._ask_on_probation()

    def _ask_on_probation(self) -> None:
        for member in sorted(self._probation.look(self._tick)):
            peer = self._peers.get(member)
            if peer is not None and peer.linked:
                self._tell(member, DigestKind.ASK)

    def _answer(self, to: str, asked: Digest) -> None:
        """Send a REPLY, which also says that the asker has lost nothing as far as known. Otherwise send the proof."""
        proof = self.proof_of_loss(to, asked.vector)
        if proof is None:
            super()._answer(to, asked)
        else:
            self._outbox.append(Transmit(to, proof))

    def proof_of_loss(self, member: str, vector: Vector) -> Message | Digest | None:
        """What proves to a member with this vector that its disk was set back: a message of it, or what it has told.
        Records are compared with each frame of views.
        """
        if (message := self._own_message(member, vector.get(member, 0))) is not None:
            return message
        if member not in self.going_on():
            return None
        told = {**self.stable}
        merge_into(told, self._knowledge.newest(member))
        told[member] = max(told.get(member, 0), self.vector[member])
        has = self._stability.completed(vector)
        # What is forgotten proves nothing.
        told = {origin: n for origin, n in told.items() if origin in self.vector}
        if all(n <= has.get(origin, 0) for origin, n in told.items()):
            return None
        return Digest(DigestKind.TOLD, told)

    def _own_message(self, member: str, sent: int) -> Message | None:
        """A message of `member` that waits at this one, beyond the `sent` ones that it knows of."""
        held = self._limits.held
        if not self._inbox.size and not held:
            return None
        for message in (*self._inbox.messages(), *held.values()):
            if message.dot.origin == member and message.dot.counter > sent:
                return message
        return None

    # Sending and delivering

    def send(self, payload: bytes, *, after: Iterable[Tag] | None = None) -> Tag:
        """tcbroadcast, see `Core.send`. Raises EndedError once this incarnation leaves or has ended."""
        own = self._own
        if not own.is_plain:
            self._refuse_if_ending()
            own.takes_nothing()  # which notes that nothing hinders it
        return self._send(payload, 0, None if after is None else tuple(after))

    def _refuse_if_ending(self) -> None:
        if self._own.is_ending:
            raise EndedError(
                f"{self.me} can no longer send (it is {self.standing.value}): join with a new "
                "incarnation"
            )

    def _issue(self, operation: Operation) -> Tag:
        self._refuse_if_ending()
        kind, payload = encode(operation)
        tag = self._send(payload, kind)
        self._issued.append(tag)
        self._apply(operation, tag.dot)
        return tag

    def take_issued(self) -> list[Tag]:
        """Tags of the membership operations that this engine has sent since the last call, in order."""
        issued, self._issued = self._issued, []
        return issued

    def has_deliverable(self) -> bool:
        """Whether `poll` would return something."""
        inbox = self._inbox
        ready = inbox.ready
        if not ready or self._reservation is not None:
            return False
        if not self._own.is_plain and self._own.takes_nothing():
            return False
        vector, members, limits = self.vector, self._members, self._limited
        origin, counter = ready[0].dot
        if not limits and origin in members and vector.get(origin, 0) < counter:
            return True  # as nearly always
        while ready:
            origin, counter = ready[0].dot
            if vector.get(origin, 0) >= counter:
                inbox.duplicates += 1
            elif origin in limits:
                if counter <= limits[origin]:
                    return True
                self._limits.held[origin] = ready[0]
            elif origin in members:
                return True
            else:
                self._purged += 1
            ready.popleft()
        return False

    def poll_upcoming(self) -> Delivery:
        """See `Core.poll_upcoming`. Membership operations are returned, too."""
        message = self._inbox.ready.popleft()
        if not message.kind and not self._limited:
            return self._deliver(message)
        operation = self._claims.counts(message) if message.kind else None
        delivery = self._deliver(message)
        if operation is not None:
            self._apply(operation, message.dot)
        if message.dot.origin in self._limited:
            self._end_if_due(message.dot.origin)
        return delivery

    # What operations and decisions do

    def _apply(self, operation: Operation, dot: Dot) -> None:
        """Apply a membership operation where it is delivered, its sender included."""
        self._own.is_plain = False
        if isinstance(operation, Join):
            self._apply_join(operation, dot)
        else:
            self._membership.apply(operation, dot)

    def _apply_join(self, join: Join, dot: Dot) -> None:
        incarnation = joined_id(join.base, dot.origin, dot.counter)
        self._membership.join(incarnation, join)
        self.vector.setdefault(incarnation, 0)
        self._told.cache = None
        if incarnation != self.me:
            peer = self._strangers.pop(incarnation, None) or Peer(incarnation)
            row = {**join.vector, dot.origin: dot.counter}
            # The contact may have dropped names whose sweeps it, and so the joiner, has.
            peer.adopt(dict(self._stability.completed(row)))
            peer.frozen = incarnation in self._limited
            self._peers[incarnation] = peer
        self._members_changed()
        self._end_if_due(incarnation)

    def _decided(self, change: ViewChange) -> None:
        """The epoch is over, and the freeze with it. A removed member ends once all of it that counts is delivered."""
        membership, consensus = self._membership, self._consensus
        decided = consensus.decided[consensus.view.epoch - 1]
        if not self._store.note(decided):
            self._decisions.append(decided)
        self._knowledge.agreed = consensus.view.level
        self._exchange.drop_questions()
        if self.me in change.out:
            # It stays until others know that: perhaps only its own vote has made this a decision.
            membership.cuts[self.me] = dict(change.cuts)[self.me]
            membership.thaw()
            return
        for incarnation, cut in change.cuts:
            if incarnation not in membership.ended:
                membership.cuts[incarnation] = cut
                self._purged += self._limits.cut(incarnation, cut.counter)
        membership.thaw()
        self._limits.update()
        for incarnation, _ in change.cuts:
            self._end_if_due(incarnation)
        for member in [m for m in consensus.records if m not in self.vector]:
            consensus.drop(member)  # it comes again, if there is such a member
        self._members_changed()

    def _end_if_due(self, incarnation: str) -> None:
        """End an incarnation if all of it that counts is delivered."""
        cut = self._membership.cuts.get(incarnation)
        if cut is None or incarnation not in self._membership.members:
            return
        delivered = self.vector[incarnation]
        if delivered > cut.counter:
            # This member has delivered what no member that goes on has: it belongs to what was cut off.
            self._own.put_out()
        elif delivered == cut.counter:
            self._end(incarnation, cut)

    def _end(self, incarnation: str, cut: Cut) -> None:
        """End an incarnation: nothing more is taken from it."""
        inbox = self._inbox
        self._membership.end(incarnation, cut)
        self._purged += inbox.purge(incarnation) + inbox.purge_handed_on_by(incarnation)
        for origin in {m.dot.origin for m in inbox.messages()} - self.vector.keys():
            if self._membership.is_past(origin):  # admitted by the victim, beyond its cut
                self._purged += inbox.purge(origin)
        peer = self._peers.pop(incarnation, None)
        if peer is not None and peer.linked:
            if cut.how.is_eviction:
                self._outbox.append(Transmit(incarnation, Ended(incarnation, cut.counter)))
            else:
                self._strangers[incarnation] = peer
                self._tell(incarnation, DigestKind.NEWS)
        if incarnation in self._greet:
            self._greet.remove(incarnation)
        if self._ended_at is None:
            self._ended_at = self._tick
        self._limits.update()
        self._members_changed()

    def _members_changed(self) -> None:
        self._evaluate_now = True
        self._stability.holder = None

    def _look_at_views(self) -> None:
        """Begin a ballot if one is due; and end if this member has gone."""
        self._own.is_plain = False
        self._proposer.look(self._tick)
        if self.me in self._membership.cuts and not self._exchange.untold():
            self._own.gone()

    # Leaving no trace

    def _sweep(self) -> None:
        """Issue a sweep of what has ended and is in no sweep yet: the least member soon, others if it does not."""
        membership = self._membership
        ended, swept = membership.ended, membership.swept
        unswept = tuple((x, ended[x]) for x in sorted(ended) if x not in swept)
        if not unswept:
            self._ended_at = None
            return
        if self._reservation is not None or self.silent or self.is_unsure:
            return
        if self._ended_at is None:
            self._ended_at = self._tick
        rank = sum(member < self.me for member in membership.members)
        if self._tick - self._ended_at >= SWEEP_WAIT * (rank + 1):
            self._issue(Sweep(unswept))

    def _forget(self) -> None:
        """Drop whatever has a stable sweep: from now on, everything that arrives comes after all of it."""
        membership, stable = self._membership, self.stable
        for incarnation, sweep in list(membership.swept.items()):
            if stable.get(incarnation, 0) < self.vector[incarnation]:
                continue
            if sweep.origin in self.vector and not covers(stable, sweep):
                continue
            membership.drop(incarnation)
            self._purged += self._inbox.purge_handed_on_by(incarnation)  # a leaver, after its leave
            self._dropped += self.vector.pop(incarnation)
            stable.pop(incarnation, None)
            self._strangers.pop(incarnation, None)
            self._exchange.link_down(incarnation)
            self._consensus.drop(incarnation)
            self._stability.drop(incarnation)
            self._store.forget(incarnation)
            self._pasts.forget(incarnation)
            self._acknowledged = {o: n for o, n in self._acknowledged.items() if o != incarnation}
            self._told.cache = None

    # The timer, and what goes out

    def tick(self) -> None:
        """The timer: digests, questions, stability; ballots that are due, sweeps, and what may be forgotten."""
        own = self._own
        if own.is_over:
            self._tick += 1
            self._exchange.tick(self._tick)
            return
        super().tick()
        own.tick(self._tick, self._delivered)
        self._ask_on_probation()
        self._exchange.tick(self._tick)
        if self._consensus.decided and not self._exchange.unaware():
            self._consensus.prune()
        if self._membership.cuts and self._membership.drop_unborn():
            self._limits.update()
        self._consensus.react()
        self._look_at_views()
        if own.is_ending:
            return
        self._announce()
        if self._membership.ended:
            self._sweep()
            self._forget()

    def _announce(self) -> None:
        """Announce the format levels that this program reads, if they have changed.

        Not on probation: others may remember more of this incarnation than its journal.
        """
        if self._reservation is not None or self.silent or self.is_on_probation:
            return
        here = self._members.get(self.me)
        if here is not None and here.reads != self.reads and (self._digests_in or not self._peers):
            self._issue(Reads(self.reads))

    @property
    def has_outbox(self) -> bool:
        """See `Core.has_outbox`."""
        return bool(self._outbox) or self._exchange.has_news

    def take_outbox(self) -> list[Transmit]:
        """See `Core.take_outbox`."""
        if self._exchange.has_news and self.standing is not Standing.LEFT:
            self._outbox += self._exchange.flush()
        outbox, self._outbox = self._outbox, []
        if not self._probation.is_on:
            return outbox
        holds_back = self._probation.holds_back
        self._outbox = [effect for effect in outbox if holds_back(effect.message)]
        return [effect for effect in outbox if not holds_back(effect.message)]

    # Looking in

    @property
    def quiet(self) -> bool:
        """Whether nothing waits, is unstable or has to be swept, no change of view is open or wanted, and no member is
        replaced.
        """
        membership, own = self._membership, self._consensus.own
        busy = membership.limited() or membership.ended or own.promised.number or self.wants
        busy = busy or membership.replaced_among(membership.going_on())
        return super().quiet and not busy and not self._limits.held

    @property
    def has_told_all(self) -> bool:
        """Whether all linked peers are known to have what this one knows of views."""
        return self._exchange.is_quiet

    def counters(self) -> EngineCounters:
        """Gauges and totals; see `EngineCounters`."""
        membership = self._membership
        return replace(
            super().counters(),
            joins=membership.joins,
            leaves=membership.leaves,
            evictions=membership.evictions,
            sweeps=membership.sweeps,
            ghosts=self._ghosts,
            views=self.view.epoch,
        )

    # What a restart needs

    def state(self) -> GroupState:
        """What a restart of this incarnation, or a joiner, needs, as of now."""
        return replace(self.outline(), unstable=super().state().unstable)

    def outline(self) -> GroupState:
        """`state` without the unstable messages, for a journal that keeps those one by one. Costs the members only."""
        membership = self._membership
        return GroupState(
            counter=self.vector[self.me],
            vector=dict(self.vector),
            context=self.context,
            stable=dict(self.stable),
            members=tuple(membership.members.values()),
            replaced=dict(membership.replaced),
            ended=dict(membership.ended),
            swept=dict(membership.swept),
            early=_early(membership.early),
            tombs=dict(membership.tombs),
            dropped=self._dropped,
            view=self._consensus.view,
            record=self._consensus.own,
            decided=_in_order(self._consensus.decided),
            frozen=dict(membership.frozen),
            cuts=dict(membership.cuts),
            agreed=self.agreed,
            wants=self._proposer.wants,
        )

    def still_has(self, outline: GroupState) -> bool:
        """Whether members, ended incarnations, views and wishes are as in that outline: all of it that does not follow
        from the messages. Unlike a comparison of two outlines, this makes none: it is asked for each message.
        """
        early, decided = self._membership.early, self._consensus.decided
        return (
            _APART_FROM_MESSAGES(self) == outline.apart_from_messages
            and (*self._members.values(),) == outline.members
            and (_early(early) if early else early) == outline.early
            and (_in_order(decided) if decided else ()) == outline.decided
        )


def _early(early: Mapping[str, Iterable[Early]]) -> dict[str, tuple[Early, ...]]:
    return {who: tuple(each) for who, each in early.items()}


def _in_order(decided: Mapping[int, Decided]) -> tuple[Decided, ...]:
    return tuple(map(decided.__getitem__, sorted(decided)))
