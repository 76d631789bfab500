"""Whom one member of a changing group listens to, what it takes from whom, and whom it tells that they have ended.

Nothing is taken from a victim itself, nor from what has ended; a leaver still hands over what it has, and waits for
acknowledgements. What the operations do that arrive here is `crdtcast.engine.changes`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from crdtcast.engine.checks import (
    check_group_digest,
    check_incarnation,
    check_message,
    check_state,
)
from crdtcast.engine.claims import Claims
from crdtcast.engine.core import Core
from crdtcast.engine.leaving import Farewell
from crdtcast.engine.level import Levels, Span, check_program
from crdtcast.engine.membership import GroupState, Membership, Standing
from crdtcast.engine.operations import How, Kind, Raise, decode
from crdtcast.engine.peer import Peer
from crdtcast.engine.swept import SweptRows
from crdtcast.engine.vouching import Vouching
from crdtcast.exceptions import HandshakeError, RemoteProtocolError
from crdtcast.incarnation import joined_by
from crdtcast.messages import Digest, DigestKind, Ended, Message, Transmit
from crdtcast.tags import Dot, Vector


class Reception(Core):
    """Links, messages and digests of one member. me, state: see `GroupEngine`."""

    stability_type: ClassVar[type[SweptRows]] = SweptRows
    membership_type: ClassVar[type[Membership]] = Membership
    vouching_type: ClassVar[type[Vouching]] = Vouching
    farewell_type: ClassVar[type[Farewell]] = Farewell
    claims_type: ClassVar[type[Claims]] = Claims

    _stability: SweptRows

    def __init__(self, me: str, state: GroupState, reads: Span) -> None:
        super().__init__(me)
        self._levels = Levels(reads, state.level, state.raised)
        self._check_program()
        check_state(me, state)
        self._membership = self.membership_type(me, self.vector, state)
        self._restore(state)
        self._dropped = state.dropped
        self._told: Vector | None = None
        self._strangers: dict[str, Peer] = {}
        self._farewell: Farewell | None = None
        self._evicted = False
        self._left = False
        self._disputed: set[str] = set()  # who has cut us off by force, while we did the same
        self._cut: int | None = None
        self.resumed = state.vector.get(me, 0) == state.counter
        self._claims = self.claims_type(self._membership, self.vector)
        self._from: dict[Dot, str] = {}  # who has sent a membership operation that waits
        self._last_of: dict[str, int] = {}  # the number of somebody's leave that waits
        self._ghosts = self._frozen_ignored = 0
        for incarnation in self._membership.members:
            if incarnation != me:
                self._peers[incarnation] = Peer(incarnation)
        for victim in self._membership.evictions.keys() & self._peers.keys():
            self._peers[victim].frozen = True
        self._vouching = self.vouching_type(self._membership, self.vector, self._inbox.messages)
        self._stability = self.stability_type(
            self.vector, self._peers, self.stable, self._membership
        )
        if me in self._membership.ended:
            self._say_farewell(alone=not self._peers)

    def _check_program(self) -> None:
        levels = self._levels
        check_program(self.me, levels.reads, levels.in_force({}), levels.agreed)

    # What this incarnation is

    @property
    def standing(self) -> Standing:
        """What this incarnation is, as far as it knows."""
        if self._left:
            return Standing.LEFT
        if self._evicted:
            return Standing.EVICTED
        if self._farewell is not None:
            return Standing.LEAVING
        disputed = self._disputed & self._membership.tombs.keys()
        return Standing.DISPUTED if disputed else Standing.MEMBER

    @property
    def _over(self) -> bool:
        return self._left or self._evicted

    def _become_evicted(self, cut: int | None) -> None:
        self._evicted = True
        self._cut = cut

    # Links

    def connected(self, peer: str) -> None:
        """A link with this incarnation is up: a member or joiner is told our vector, an ended one that it has ended."""
        if peer == self.me:
            raise HandshakeError(f"{peer} is this node itself: its own address is a peer's")
        check_incarnation(peer)
        if self._over or self._tell_ended(peer):
            return
        known = self._peers.get(peer)
        if known is None:
            known = self._strangers.setdefault(peer, Peer(peer))
        self._link_up(known)

    def disconnected(self, peer: str) -> None:
        """The link with this incarnation is gone; what was sent on it may be lost."""
        known = self._peers.get(peer)
        if known is None:
            known = self._strangers.pop(peer, None)
        if known is not None:
            self._link_down(known)

    def _tell_ended(self, peer: str) -> bool:
        """Whether this incarnation has ended; it is told so then, now and whenever it comes again."""
        membership = self._membership
        if self._has_left(peer) or not (peer in membership.ended or membership.is_past(peer)):
            return False
        self._outbox.append(Transmit(peer, Ended(peer, membership.cut_of(peer))))
        self._ghosts += 1
        return True

    def _has_left(self, incarnation: str) -> bool:
        cut = self._membership.ended.get(incarnation)
        return cut is not None and cut.how is How.LEFT

    # Receiving

    def receive(self, sender: str, message: Message | Digest | Ended) -> None:
        """Take what the incarnation `sender` sent. Deliveries and notices then come from `poll` and `poll_stable`.

        Raises RemoteProtocolError for what no member may send, and RolledBackError if the peer remembers more of this
        incarnation than it does itself, which may have lost something; the state is unchanged then, but for `blamed`.
        """
        if self._over:
            return
        try:
            if type(message) is Message:
                if self._listens_to(sender):
                    self._receive_checked(sender, message)
            elif type(message) is Digest:
                self._receive_digest(sender, message)
            elif type(message) is Ended:
                if message.incarnation == self.me:
                    self._receive_ended(sender, message.cut)
            else:
                raise RemoteProtocolError(f"{message!r:.200} is neither message nor digest")
        except RemoteProtocolError as error:
            self.blames.refuse(sender, error)

    def _listens_to(self, sender: str) -> bool:
        """Nothing is taken from a victim itself, nor from what has ended (but a leaver hands over what it has)."""
        if sender in self._membership.evictions:
            self._frozen_ignored += 1
            return False
        if sender in self._peers:
            return True
        check_incarnation(sender)
        if self._tell_ended(sender):
            self._stale += 1
            return False
        return True

    def _receive_checked(self, sender: str, message: Message) -> None:
        try:
            if self._last_of and message.dot[1] > self._last_of.get(message.dot[0], message.dot[1]):
                text = f"{message.dot} comes after the leave of its sender"
                if sender == message.dot.origin:
                    raise RemoteProtocolError(text)
                # Who hands it on was told something else under the number of the leave.
                self.blames.note(message.dot.origin, f"{text}, and {sender} hands it on")
                self._stale += 1
                return
            if message.kind:
                self._check_operation(sender, message)
            kept = self._receive_message(sender, message)
        except TypeError:
            raise RemoteProtocolError(f"{sender} sent {message.dot}, which is ill-typed") from None
        if kept:
            if message.kind:
                self._from[message.dot] = sender
                if message.kind == Kind.LEAVE and sender == message.dot.origin:
                    self._last_of[message.dot.origin] = message.dot.counter
            if self._vouching.bound:
                self._vouching.consider([message])

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
        origin = message.dot[0]
        if origin in self._membership.members and origin != self.me and self._inbox.follow(message):
            return True
        check_message(
            sender, message, self.vector, self.me, check_incarnation, resumed=self.resumed
        )
        if origin in self._membership.ended or self._membership.is_past(origin):
            self._stale += 1
            return False
        return self._inbox.add(message, sender)

    def _receive_ended(self, sender: str, cut: int | None) -> None:
        """Somebody has told that this incarnation has ended."""
        if self._is_cut_off(sender):
            self._stale += 1  # it knows nothing of what the group has decided
            return
        self._check_ended(sender, cut)
        tomb = self._membership.tombs.get(sender)
        if tomb is not None and tomb.how is How.FORCED:
            self._disputed.add(sender)  # the operator decides
        elif self._farewell is not None and self._leave_counts(sender, cut):
            self._left = True
        else:
            self._become_evicted(cut)

    def _check_ended(self, sender: str, cut: int | None) -> None:
        """Whether this member may have been told so: by somebody whom it knows, with a cut that can be."""
        if not self._may_be_a_member(sender):
            raise RemoteProtocolError(
                f"{sender}, which nobody here knows, says that {self.me} has ended"
            )
        if cut is None:
            return
        peer, sent = self._peers.get(sender), self.vector[self.me]
        if peer is not None and cut < peer.acknowledged:
            raise RemoteProtocolError(
                f"{sender} says that {self.me} has ended at {cut:,}, and has acknowledged {peer.acknowledged:,} of it"
            )
        if cut > sent and not self.resumed:
            raise RemoteProtocolError(
                f"{sender} says that {self.me} has ended at {cut:,}, which has sent {sent:,}"
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

    def _leave_counts(self, sender: str, cut: int | None) -> bool:
        """Whether the leave of this incarnation counts for the group of somebody that tells it its end.

        If there is no cut, it is forgotten there: as one that has left, or as one that never was a member, whose
        contact was cut off before the join.
        """
        if cut is not None:
            return cut >= self.vector[self.me]
        assert self._farewell is not None
        everybody_knows = self._membership.is_established(self.me, self._stability.stable)
        return everybody_knows or self._farewell.is_known_to(sender)

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
        self._digests_in += 1
        peer.met = True
        if sender in membership.evictions or sender not in membership.members:
            # Its row is not taken, but it is answered and repaired.
            if digest.kind is DigestKind.ASK:
                self._answer(sender, digest)
            if self._store.size and (self._farewell is not None or not self._has_left(sender)):
                self._repair(peer, digest.vector)
        else:
            self._take_digest(peer, digest, weight)
        if self._farewell is not None:
            self._farewell.heard(sender, digest, self._tick)
            self._look_at_farewell()

    def _answer(self, to: str, asked: Digest) -> None:
        """A reply that says, too, what has ended here of what the asker knows, and has been forgotten."""
        past = filter(self._membership.is_past, asked.vector)
        self._tell(to, DigestKind.REPLY, {x: self._membership.cut_of(x) for x in past})

    def _digest(self, kind: DigestKind, ended: Mapping[str, int | None] | None = None) -> Digest:
        """Leavers, and answers, tell all who have ended here: so a leaver learns who leaves, and who goes on."""
        if kind is DigestKind.REPLY or self._farewell is not None:
            here = {x: cut.counter for x, cut in self._membership.ended.items()}
            ended = {**here, **(ended or {})}
        return super()._digest(kind, ended)

    def _to_tell(self) -> Vector:
        if self._told is None:
            self._told = dict(self.vector)
        return self._told

    def _vector_changed(self) -> None:
        self._told = None

    def _lacking(self, vector: Vector) -> list[str]:
        if self._membership.swept:
            vector = self._stability.completed(vector)
        return super()._lacking(vector)

    def has_deliverable(self) -> bool:
        """Whether `poll` would return something."""
        inbox, membership, vouching = self._inbox, self._membership, self._vouching
        farewell = self._farewell
        if self._over or self._reservation is not None:
            return False
        if farewell and not farewell.takes(membership.members.keys(), self._tick):
            return False
        if vouching.held:
            inbox.ready.extend(vouching.released())
        while inbox.has_deliverable():
            message = inbox.ready[0]
            origin, counter = message.dot
            bound = vouching.bound.get(origin)
            if bound is None:
                cut = membership.ended.get(origin)
                counts = origin in membership.members or (
                    cut is not None and counter <= cut.counter
                )
                self._purged += not counts
            else:
                counts = counter <= bound
                if not counts:
                    vouching.held[origin] = message
            if not counts:
                inbox.ready.popleft()
            elif self._can_follow(message):
                return True
            else:
                inbox.refuse()
        return False

    def _can_follow(self, message: Message) -> bool:
        """Whether the program of this member reads the format level that is asked for, if one is."""
        if message.kind != Kind.RAISE:
            return True
        operation = decode(message.kind, message.payload)
        if not isinstance(operation, Raise) or operation.level <= self._levels.reads.highest:
            return True
        _, wrong = self._claims.judge(operation, message.dot, self._past_of(message))
        return wrong is not None  # it raises nothing

    # Waiting for acknowledgements of all that a leaver has

    def _say_farewell(self, alone: bool) -> None:
        self._farewell = self.farewell_type(self.me, alone, self._tick)
        self._look_at_farewell()

    def _look_at_farewell(self) -> None:
        farewell, membership = self._farewell, self._membership
        assert farewell is not None
        members = membership.members.keys()
        # Nobody goes on if all have ended, and with all that counts of them whom they had let in is known, too.
        everything = all(self.vector[x] >= cut.counter for x, cut in membership.ended.items())
        if not members and everything:
            self._left = farewell.is_last(self._lacking, self._tick)
        else:
            unmet = farewell.named - self.vector.keys()
            self._left = farewell.is_done(members, membership.evictions, unmet, self._lacking)

    def _ask(self) -> None:
        super()._ask()
        if self._farewell is None:
            return
        # All it knows, not only those it waits for: somebody has to tell that one of these has ended.
        if self._tick >= self._farewell.ask_at:
            self._farewell.asked(self._tick)
            for peer in (*self._peers.values(), *self._strangers.values()):
                if peer.linked:
                    self._tell(peer.incarnation, DigestKind.ASK)

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
            evictions={x: dict(reports) for x, reports in membership.evictions.items()},
            forced=frozenset(membership.forced),
            swept=dict(membership.swept),
            tombs=dict(membership.tombs),
            dropped=self._dropped,
            level=self._levels.in_force(self._stability.stable),
            raised=self._levels.raised,
        )
