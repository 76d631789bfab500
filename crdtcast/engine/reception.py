"""Whom one member of a changing group listens to, what it takes from whom, and whom it tells that they have ended.

Of a victim nothing is delivered beyond its freeze, and of what went nothing beyond its cut; from what has ended nothing
is taken. What the operations do that arrive here is `crdtcast.engine.membership_ops`; records and decisions of views
are taken by `crdtcast.engine.view_exchange`.
"""

from collections.abc import Collection, Iterable, Set
from dataclasses import replace
from typing import ClassVar

from crdtcast.causality.member_id import joined_by
from crdtcast.causality.messages import Digest, DigestKind, Ended, Message, Transmit
from crdtcast.causality.tags import Dot, Vector, merge_into
from crdtcast.engine.checks import (
    MOST_STRANGE,
    check_group_digest,
    check_incarnation,
    check_message,
    check_state,
    check_told,
    remembers_more,
)
from crdtcast.engine.consensus import Consensus
from crdtcast.engine.core import Core
from crdtcast.engine.digest_vector import DigestVector
from crdtcast.engine.forks import Forks
from crdtcast.engine.level import Span, check_program
from crdtcast.engine.membership import GroupState, Membership, Standing
from crdtcast.engine.operation_claims import Claims
from crdtcast.engine.operations import Cut, How, decode
from crdtcast.engine.peer import Peer
from crdtcast.engine.probation import LISTEN, Probation
from crdtcast.engine.proposer import Proposer
from crdtcast.engine.removed_rows import SweptRows
from crdtcast.engine.store import Store
from crdtcast.engine.view_checks import check_own_record, check_views
from crdtcast.engine.view_exchange import Exchange
from crdtcast.engine.views import Record, Views
from crdtcast.exceptions import HandshakeError, RemoteProtocolError, RolledBackError

DISPUTE_TICKS = 100
"""Ticks for which this member is in dispute after one that a majority has put out has said the same of it."""


class Reception(Core):
    """Links, messages and digests of one member. me, state, reads, store: see `GroupEngine`."""

    stability_type: ClassVar[type[SweptRows]] = SweptRows
    membership_type: ClassVar[type[Membership]] = Membership
    claims_type: ClassVar[type[Claims]] = Claims
    consensus_type: ClassVar[type[Consensus]] = Consensus
    exchange_type: ClassVar[type[Exchange]] = Exchange
    proposer_type: ClassVar[type[Proposer]] = Proposer
    forks_type: ClassVar[type[Forks]] = Forks

    _stability: SweptRows
    _consensus: Consensus
    _exchange: Exchange
    _proposer: Proposer
    _forks: Forks

    def __init__(self, me: str, state: GroupState, reads: Span, store: Store | None) -> None:
        self.me = me
        self._reads = reads
        self._agreed = state.agreed
        self._check_program(state.view.level)
        check_state(me, state)
        vector = {**state.vector, me: state.vector.get(me, 0)}
        peers = {member.incarnation: Peer(member.incarnation) for member in state.members}
        peers.pop(me, None)
        self._membership = membership = self.membership_type(me, vector, state)
        stability = self.stability_type(vector, peers, state.stable, membership)
        super().__init__(me, state, vector, DigestVector(vector), peers, stability, store)
        self._dropped = state.dropped
        self.is_plain: bool = False
        """True: it sends and takes, and nothing has happened that could change that. Looked at for each message."""
        self._strangers: dict[str, Peer] = {}
        self._evicted = False
        self._left = False
        self._pauses = False
        """Whether it leaves, and takes nothing for a while."""
        self._disputed: dict[str, int] = {}  # who has cut us off, as they said last, in which tick
        self._cut: int | None = None
        self.resumed: bool = state.record is not None  # which no contact gives to a joiner
        self._probation = Probation(state.counter)
        self._claims = self.claims_type(membership, self.vector)
        self._from: dict[Dot, str] = {}  # who has sent a membership operation that waits
        self._held: dict[str, Message] = {}
        """Victim -> its next message, which is deliverable and beyond its limit."""
        self._limits: dict[str, int] = {}
        self._ghosts = 0
        self._begin_views(state)
        self._limits_changed()

    def _begin_views(self, state: GroupState) -> None:
        """Take up the part in the group's decisions."""
        raise NotImplementedError

    def _check_program(self, in_force: int) -> None:
        check_program(self.me, self._reads, in_force, self._agreed)

    def _limits_changed(self) -> None:
        """What may be delivered of whom has changed."""
        membership = self._membership
        self._limits = {
            x: limit for x in membership.limited() if (limit := membership.limit(x)) is not None
        }
        for peer in self._peers.values():
            if is_frozen := peer.incarnation in self._limits:
                self._stability.set_aside(peer)
            peer.frozen = is_frozen
        for origin, message in list(self._held.items()):
            if message.dot.counter <= self._limits.get(origin, message.dot.counter):
                del self._held[origin]
                self._inbox.ready.append(message)

    # What this incarnation is

    @property
    def standing(self) -> Standing:
        """What this incarnation is, as far as it knows."""
        if self._left:
            return Standing.LEFT
        if self._evicted:
            return Standing.EVICTED
        if self._proposer.wants.leaves or self.me in self._membership.cuts:
            return Standing.LEAVING
        if self._disputed and any(map(self._disputes, self._disputed)):
            return Standing.DISPUTED
        return Standing.SPLIT if self._is_split else Standing.MEMBER

    def _disputes(self, other: str) -> bool:
        """Whether the operator has to know that it has put this member out, and was put out itself.

        Where that was by force, until one side has given up. If a majority has put it out it may lie: then for some
        time after it said so last.
        """
        tomb = self._membership.tombs.get(other)
        if tomb is None:
            return False
        return tomb.how is How.FORCED or self._tick - self._disputed[other] < DISPUTE_TICKS

    @property
    def _over(self) -> bool:
        return self._left or self._evicted

    @property
    def is_on_probation(self) -> bool:
        """Whether it has started from a disk, and only listens: others may remember more of it than it does itself."""
        return self.resumed and not self._probation.is_over and bool(self._others())

    @property
    def is_unsure(self) -> bool:
        """Whether it has started from a disk, and not all others have said that they have no more of it."""
        return self.resumed and bool(self._probation.unasked(self._others()))

    @property
    def _is_split(self) -> bool:
        return self._forks.has_any and self._forks.is_split(self._others())

    @property
    def apart(self) -> dict[str, int]:
        """The members that follow another change than this one, and in which epoch: see `Standing.SPLIT`."""
        return self._forks.apart(self._others())

    @property
    def abstains(self) -> bool:
        """Whether it must not vote: others may remember that it has voted, or there are two views of one epoch."""
        return self._is_split or (self.is_on_probation and self._listens)

    @property
    def _listens(self) -> bool:
        """Whether somebody may be heard soon: there is a link, or it has only just started."""
        return self._tick < LISTEN or self._probation.has_begun

    def _others(self) -> Set[str]:
        """The members but this one, those who went, and those whose successor has joined."""
        others = set(self._membership.going_on()) - {self.me}
        return others - self._membership.replaced_among(others)

    def _look_at_probation(self) -> None:
        if not self.resumed:
            return
        for member in sorted(self._probation.look(self._tick, self._others())):
            peer = self._peers.get(member)
            if peer is not None and peer.linked:
                self._tell(member, DigestKind.ASK)

    def _greeting(self, peer: str) -> DigestKind:
        asks = self.resumed and self._probation.unasked([peer])
        return DigestKind.ASK if asks else DigestKind.NEWS

    def _become_evicted(self, cut: int | None) -> None:
        self.is_plain = False
        self._evicted = True
        self._cut = cut

    # Links

    def connected(self, peer: str) -> None:
        """A link with this incarnation is up: a member or joiner is told our vector, an ended one that it has ended."""
        if peer == self.me:
            raise HandshakeError(
                f"{peer} is this node itself: remove its own address from its peers"
            )
        check_incarnation(peer)
        if self._over:
            self._exchange.link_up(peer)  # others may wait for what it knows
            return
        if self._tell_ended(peer):
            return
        known = self._peers.get(peer)
        if known is None:
            known = self._strangers.setdefault(peer, Peer(peer))
        self._exchange.link_up(peer)
        self._probation.linked(self._tick)
        self._link_up(known)

    def disconnected(self, peer: str) -> None:
        """The link with this incarnation is gone; what was sent on it may be lost."""
        known = self._peers.get(peer)
        if known is None:
            known = self._strangers.pop(peer, None)
        self._exchange.link_down(peer)
        if known is not None:
            self._link_down(known)

    def _tell_ended(self, peer: str) -> bool:
        """Whether this incarnation has ended; it is told so then, now and whenever it comes again."""
        membership = self._membership
        if not (peer in membership.ended or membership.is_past(peer)):
            return False
        if self._has_left(peer) and self._consensus.decided:
            return False  # it waits until it has been told by a majority what has been decided
        self._outbox.append(Transmit(peer, Ended(peer, membership.cut_of(peer))))
        self._ghosts += 1
        return True

    def _has_left(self, incarnation: str) -> bool:
        cut = self._membership.ended.get(incarnation)
        return cut is not None and cut.how is How.LEFT

    # Receiving

    def receive(self, sender: str, message: Message | Digest | Ended | Views) -> None:
        """Take what the incarnation `sender` sent. Deliveries and notices then come from `poll` and `poll_stable`.

        Raises RemoteProtocolError for what no member may send, and RolledBackError if the peer remembers more of this
        incarnation than it does itself, which has lost something: it is over then. The state is unchanged in either
        case, but for `blamed`.
        """
        if not self.is_plain and self._over and not (self._evicted and type(message) is Views):
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
                if message.incarnation == self.me:
                    self._receive_ended(sender, message.cut)
            elif type(message) is Views:
                (self._pass_on if self._over else self._receive_views)(sender, message)
            else:
                raise RemoteProtocolError(f"{message!r:.200} is not a message or digest")
        except RolledBackError:
            self._was_set_back()
            raise
        except RemoteProtocolError as error:
            self.blames.refuse(sender, error)

    def _was_set_back(self) -> None:
        """It says nothing more: it does not know what it has said, nor what it has voted for."""
        self._become_evicted(None)

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
        self._check_operation(sender, message)
        if self._receive_message(sender, message):
            self._from[message.dot] = sender

    def _receive_views(self, sender: str, frame: Views) -> None:
        """Records of members, decisions, and questions whether this member is there."""
        serial = self._consensus.own.serial
        told = [
            frame.has.get(self.me, 0),
            *(r.serial for r in frame.records if r.member == self.me),
        ]
        if max(told) > serial:
            raise remembers_more(
                sender, self.me, max(told), serial, resumed=self.resumed, what="records"
            )
        if sender not in self._peers and self._tell_ended(sender):
            self._stale += 1
            return
        self._check_views(sender, frame)
        for record in frame.records:
            if record.member == sender:
                self._check_own_record(record)
        goes_on = self.me not in self._membership.cuts
        if self._keep_views(sender, frame, answers=goes_on):
            self._consensus.react()
            self._look_at_views()

    def _pass_on(self, sender: str, frame: Views) -> None:
        """This member is out; others may still learn from it what it is told."""
        self._check_views(sender, frame)
        self._keep_views(sender, frame, answers=False)

    def _keep_views(self, sender: str, frame: Views, *, answers: bool) -> bool:
        """Keep what is of use in a frame that is right. Whether anything of it is news."""
        members = self._of_use((r.member for r in frame.records), self._consensus.records)
        askers = self._of_use((asked.asker for asked in frame.asks), self._exchange.asks)
        frame = frame._replace(
            records=tuple(record for record in frame.records if record.member in members),
            asks=tuple(asked for asked in frame.asks if asked.asker in askers),
        )
        self._look_for_fork(sender, frame)
        return self._exchange.take(sender, frame, answers=answers)

    def _look_for_fork(self, sender: str, frame: Views) -> None:
        epoch = self._forks.note(sender, frame.epoch, frame.name, frame.decided)
        if epoch is not None and not self._is_split:
            self.blames.doubt(
                sender,
                f"{sender} and {self.me} follow different changes of epoch {epoch:,}: a disk was "
                f"set back, or {sender} lies: if only {sender} does so, evict it; it joins again",
            )

    def _check_views(self, sender: str, frame: Views) -> None:
        peer = self._peers.get(sender)
        check_views(sender, frame, self.vector, (peer.newest if peer is not None else None) or {})

    def _check_own_record(self, record: Record) -> None:
        """Whether its member can have noted this, and have delivered so much of this one."""
        check_own_record(record, self._consensus.view, self._consensus.ground, resumed=self.resumed)

    def _of_use(self, incarnations: Iterable[str], known: Iterable[str]) -> set[str]:
        """Those of which something may be kept: not of who is forgotten; of few that are still to come. known: of whom
        something is kept.
        """
        strange = set(known) - self.vector.keys()
        for incarnation in set(incarnations) - self.vector.keys():
            if len(strange) < MOST_STRANGE and not self._membership.is_past(incarnation):
                strange.add(incarnation)
        return strange.union(self.vector)

    def is_over(self, incarnation: str) -> bool:
        """Whether it went, or has ended, or can never be a member."""
        membership = self._membership
        return membership.cut(incarnation) is not None or membership.is_past(incarnation)

    def counted(self, incarnation: str) -> int:
        """How many of its messages are delivered here."""
        return self.vector.get(incarnation, 0)

    def going_on(self) -> Collection[str]:
        """The members, this one included, but those who went."""
        return self._membership.going_on()

    def acknowledged(self, member: str, incarnation: str) -> int:
        """How much of an incarnation another member has, as it said last."""
        peer = self._peers.get(member)
        newest = None if peer is None else peer.newest
        return 0 if newest is None else newest.get(incarnation, 0)

    def end_of(self, incarnation: str) -> Cut | None:
        """Where one that went ends."""
        return self._membership.cut(incarnation)

    def _look_at_views(self) -> None:
        """A ballot may be due."""
        raise NotImplementedError

    def _check_operation(self, sender: str, message: Message) -> None:
        """Refuse a membership operation that cannot be, as far as that can be told by now.

        One that another member hands on is judged when it is delivered: that one may have taken it in good faith.
        """
        try:
            operation = decode(message.kind, message.payload)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{sender} sent {message.dot}: {error}") from error
        if operation is None or sender != message.dot.origin:
            return
        vector = self.vector
        origin, counter = message.dot
        if vector.get(origin) != counter - 1:
            return
        if any(vector.get(depended, 0) < n for depended, n in message.context):
            return
        _, wrong = self._claims.judge(operation, message.dot, self._past_of(message))
        if wrong is not None and wrong.proven:
            raise RemoteProtocolError(f"{sender} {wrong.text} (its message {counter:,})")

    def _past_of(self, message: Message) -> Vector:
        """The past of a message that could be delivered now."""
        past, _ = self._pasts.before(message, self._stability.stable)
        return past

    def _receive_early(self, sender: str, message: Message) -> bool:
        origin, counter = message.dot
        if origin in self._membership.members and origin != self.me and self._inbox.follow(message):
            return True
        check_message(
            sender, message, self.vector, self.me, check_incarnation, resumed=self.resumed
        )
        cut = self._membership.cuts.get(origin)
        if (
            origin in self._membership.ended
            or self._membership.is_past(origin)
            or (cut is not None and counter > cut.counter)
        ):
            self._stale += 1
            return False
        return self._inbox.add(message, sender)

    def _receive_ended(self, sender: str, cut: int | None) -> None:
        """Somebody has told that this incarnation has ended."""
        if self._is_cut_off(sender):
            # It has put this member out by force, while the group has put it out: the operator has to know.
            self._stale += 1
            if sender in self._membership.tombs:
                self._disputed[sender] = self._tick
            return
        self._check_ended(sender, cut)
        tomb = self._membership.tombs.get(sender)
        if tomb is not None and tomb.how is How.FORCED:
            self._disputed[sender] = self._tick  # the operator decides
        elif self._proposer.wants.leaves and self._leave_counts(cut):
            self._left = True
        else:
            self._become_evicted(cut)

    def _check_ended(self, sender: str, cut: int | None) -> None:
        """Whether this member may have been told so: by somebody whom it knows, with a cut that can be."""
        if not self._may_be_a_member(sender):
            raise RemoteProtocolError(
                f"{sender}, which this member does not know, reports that {self.me} has ended"
            )
        if cut is None:
            return
        peer, sent = self._peers.get(sender), self.vector[self.me]
        if peer is not None and cut < peer.acknowledged:
            raise RemoteProtocolError(
                f"{sender} reports that {self.me} has ended at {cut:,}, but has acknowledged "
                f"{peer.acknowledged:,} of its messages"
            )
        if cut > sent and not self.resumed:
            raise RemoteProtocolError(
                f"{sender} reports that {self.me} has ended at {cut:,}, but {self.me} has sent "
                f"{sent:,}"
            )

    def _is_cut_off(self, sender: str) -> bool:
        """Whether a majority has evicted it."""
        membership = self._membership
        cut = membership.ended.get(sender) or membership.tombs.get(sender)
        return cut is not None and cut.how is How.EVICTED

    def _may_be_a_member(self, sender: str) -> bool:
        """Whether it is or was a member that is known here; or was let in by a message that is not delivered here, or
        by somebody who was.
        """
        membership = self._membership
        if sender in self.vector or sender in membership.tombs:
            return True
        join = joined_by(sender)
        if join is None:
            return False
        contact = membership.incarnation(join[0])
        return contact is None or self.vector[contact] < join[1]

    def _leave_counts(self, cut: int | None) -> bool:
        """Whether this leaver has left the group of somebody that tells it its end.

        Without a number it is forgotten there: it has left; or it never was a member, as its contact was cut off before
        the join. Not if everybody knows that, or enough have taken all that it has.
        """
        if cut is not None:
            return cut >= self.vector[self.me]
        is_known = self._membership.is_established(self.me, self._stability.stable)
        return is_known or self._has_said_all

    def _receive_digest(self, sender: str, digest: Digest) -> None:
        weight = check_group_digest(sender, digest, self.vector, self.me, resumed=self.resumed)
        membership = self._membership
        peer = self._peers.get(sender)
        if peer is None:
            check_incarnation(sender)
            if self._tell_ended(sender):
                self._stale += 1
                return
            peer = self._strangers.setdefault(sender, Peer(sender))
        if digest.kind is DigestKind.TOLD:
            if sender in membership.members:
                check_told(sender, digest.vector, membership, resumed=self.resumed)
            return
        self._digests_in += 1
        peer.met = True
        if peer.frozen or sender not in membership.members:
            # Its row is not taken, but it is answered and repaired.
            if digest.kind is DigestKind.ASK:
                self._answer(sender, digest)
            if self._store.size:
                self._repair(peer, digest.vector)
        else:
            self._take_digest(peer, digest, weight)
        if digest.kind is DigestKind.REPLY and self.resumed:
            self._probation.answered(sender)
            self._look_at_probation()

    def _answer(self, to: str, asked: Digest) -> None:
        """A REPLY says, too, that nothing is known here that the asker has lost; otherwise it gets the proof."""
        proof = self.proof_of_loss(to, asked.vector)
        if proof is None:
            super()._answer(to, asked)
        else:
            self._outbox.append(Transmit(to, proof))

    def proof_of_loss(self, member: str, vector: Vector) -> Message | Digest | None:
        """What shows a member that its disk was set back, if this is its vector now: a message of it, or what it has
        told. Records are compared with each frame of views.
        """
        if (message := self._own_message(member, vector.get(member, 0))) is not None:
            return message
        if member not in self._membership.going_on():
            return None
        peer, told = self._peers.get(member), dict(self.stable)
        if peer is not None and peer.newest is not None:
            merge_into(told, peer.newest)
        told[member] = max(told.get(member, 0), self.vector[member])
        has = self._stability.completed(vector)
        # What is forgotten proves nothing.
        told = {origin: n for origin, n in told.items() if origin in self.vector}
        if all(n <= has.get(origin, 0) for origin, n in told.items()):
            return None
        return Digest(DigestKind.TOLD, told)

    def _own_message(self, member: str, sent: int) -> Message | None:
        """A message of its own that waits here, and that it has not sent, as it says."""
        if not self._inbox.size and not self._held:
            return None
        for message in (*self._inbox.messages(), *self._held.values()):
            if message.dot.origin == member and message.dot.counter > sent:
                return message
        return None

    def has_deliverable(self) -> bool:
        """Whether `poll` would return something."""
        inbox = self._inbox
        ready = inbox.ready
        if not ready or self._reservation is not None:
            return False
        if not self.is_plain and self._takes_nothing():
            return False
        vector, members, limits = self.vector, self._membership.members, self._limits
        while ready:
            origin, counter = ready[0].dot
            if vector.get(origin, 0) >= counter:
                inbox.duplicates += 1
            elif origin in limits:
                if counter <= limits[origin]:
                    return True
                self._held[origin] = ready[0]
            elif origin in members:
                return True
            else:
                self._purged += 1
            ready.popleft()
        return False

    def _takes_nothing(self) -> bool:
        """Whether nothing is delivered to the application now."""
        if self._over or self._pauses or self._has_said_all:
            return True
        # On probation, what it acknowledged now might be concurrent with what it had sent before.
        if self.is_on_probation:
            return True
        self.is_plain = not self._is_ending
        return False

    @property
    def _is_ending(self) -> bool:
        """Whether this incarnation sends nothing any more."""
        return self._over or self._proposer.wants.leaves or self.me in self._membership.cuts

    @property
    def _has_said_all(self) -> bool:
        """Whether it leaves, and others have all that it has: what it takes now it could hand over to nobody."""
        proposal = self._consensus.own.proposal
        return self.me in self._membership.cuts or (proposal is not None and proposal.leaves)

    # What a restart needs

    def state(self) -> GroupState:
        """What a restart of this incarnation needs, or a joiner, as of now."""
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
            early={who: tuple(early) for who, early in membership.early.items()},
            tombs=dict(membership.tombs),
            dropped=self._dropped,
            view=self._consensus.view,
            record=self._consensus.own,
            decided=tuple(each for _, each in sorted(self._consensus.decided.items())),
            frozen=dict(membership.frozen),
            cuts=dict(membership.cuts),
            agreed=self._agreed,
            wants=self._proposer.wants,
        )
