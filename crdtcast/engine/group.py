"""Causal broadcast in a group whose members come and go, while everybody keeps sending.

Join, leave and eviction are ordinary causal messages, so everybody sees them at the same place of causal history. What
each rule is for: docs/protocol.md, *Members that come and go*.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from crdtcast.engine.checks import check_group_digest, check_incarnation, check_message
from crdtcast.engine.core import Core
from crdtcast.engine.leaving import Farewell
from crdtcast.engine.membership import Fate, GroupState, Member, Membership, Standing
from crdtcast.engine.operations import (
    Cut,
    Evict,
    Frozen,
    How,
    Join,
    Leave,
    Operation,
    Settled,
    Sweep,
    decode,
    encode,
)
from crdtcast.engine.peer import Peer
from crdtcast.engine.state import EngineCounters
from crdtcast.engine.swept import SweptRows
from crdtcast.engine.vouching import Vouching
from crdtcast.exceptions import (
    ConfigurationError,
    EndedError,
    HandshakeError,
    LocalProtocolError,
    NotReadyError,
    RemoteProtocolError,
)
from crdtcast.incarnation import base_of, joined_id, name_of, valid_incarnation
from crdtcast.messages import Delivery, Digest, DigestKind, Ended, Message, Transmit
from crdtcast.tags import Dot, Tag, Vector, covers

SWEEP_WAIT = 3
"""Ticks between the end of an incarnation and the sweep of the least member; every other one waits as much longer."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What a contact gives to a joiner: its id, and the state of the group at that instant."""

    incarnation: str
    state: GroupState


class GroupEngine(Core):
    """One member of a group with members that come and go.

    me: own incarnation id. state: what a former process of the *same* incarnation has saved (its journal is provably
    intact), or what a joiner was given by its contact. `found` makes the first engines of a new group.

    The runtime syncs `state()` before the outbox leaves: nothing that a crash can take back may be known outside.

    Raises ConfigurationError for a state in which `me` is no member.
    """

    stability_type: ClassVar[type[SweptRows]] = SweptRows
    membership_type: ClassVar[type[Membership]] = Membership
    vouching_type: ClassVar[type[Vouching]] = Vouching
    farewell_type: ClassVar[type[Farewell]] = Farewell

    _stability: SweptRows

    def __init__(self, me: str, state: GroupState) -> None:
        super().__init__(me)
        self._membership = self.membership_type(me, self.vector, state)
        if not valid_incarnation(me) or me not in {*self._membership.members, *state.ended}:
            raise ConfigurationError(f"{me!r} is no member of the group whose state was given")
        self._restore(state)
        self._dropped = state.dropped
        self._told: Vector | None = None
        self._strangers: dict[str, Peer] = {}
        self._issued: list[Tag] = []
        self._farewell: Farewell | None = None
        self._evicted = False
        self._left = False
        self._disputed: set[str] = set()  # who has cut us off by force, while we did the same
        self._cut: int | None = None
        self._ended_at: int | None = None  # the tick since which something waits to be swept
        self._refused: set[frozenset[str]] = set()
        self._joins = self._leaves = self._evictions = self._evictions_refused = 0
        self._sweeps = self._ghosts = self._orphans = self._frozen_ignored = 0
        for incarnation in self._membership.members:
            if incarnation != me:
                self._peers[incarnation] = Peer(incarnation)
        for victim in self._membership.evictions.keys() & self._peers.keys():
            self._peers[victim].frozen = True
        self._vouching = self.vouching_type(self._membership, self.vector, self._inbox.messages)
        self._stability = self.stability_type(
            self.vector, self._peers, self.stable, self._membership
        )
        self._members_changed()
        if me in self._membership.ended:
            self._say_farewell(alone=not self._peers)
        for victim, reports in list(self._membership.evictions.items()):
            if victim != me and me not in reports:
                self._report(victim)  # delivered by whoever gave us this state, after our join

    @classmethod
    def found(
        cls, me: str, founders: Iterable[str], witnesses: Iterable[str] = ()
    ) -> "GroupEngine":
        """One of the first members of a new group, all of whom know each other's ids from the start."""
        everybody = sorted({me, *founders})
        voters = set(witnesses)
        members = tuple(Member(founder, founder in voters) for founder in everybody)
        return cls(me, GroupState(vector=dict.fromkeys(everybody, 0), members=members))

    # Members

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
    def members(self) -> dict[str, Member]:
        """All members, this one included until it leaves."""
        return dict(self._membership.members)

    @property
    def established(self) -> frozenset[str]:
        """Members whose join is stable here: everybody knows them."""
        return self._membership.established(self._stability.stable)

    @property
    def victims(self) -> frozenset[str]:
        """Members that are to be evicted and have not been yet."""
        return frozenset(self._membership.evictions)

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

    def admit(
        self,
        base: str,
        *,
        covered: Vector | None = None,
        copied_from: str | None = None,
        replaces: Iterable[str] = (),
        witness: bool = False,
    ) -> Admission:
        """Let a joiner in; it may send as soon as it has the admission and the application's state of this instant.

        base: what the joiner has chosen of its id; asked again with it, gives a later state and joins nobody twice.
            Another contact is asked with a fresh base, which replaces this one: it may not know of the join yet.
        covered: the vector of the copy of the application's state that the joiner has fetched before, and the member
            that it was copied from; what lies beyond it is what has to travel with the admission.
        replaces: bases or ids of the incarnations that the joiner takes the place of: earlier lives of the same node,
            or one that the operator declares lost. They are evicted with the join, whether or not they are known here.

        Raises NotReadyError if this member cannot do it yet, and HandshakeError if it must not at all.
        """
        membership = self._membership
        if not valid_incarnation(base) or base_of(base) != base:
            raise HandshakeError(f"{base!r} is no base of an incarnation id")
        me = membership.members.get(self.me)
        if self._over or me is None or self.me in membership.evictions:
            raise HandshakeError(f"{self.me} is about to leave the group: ask another member")
        if me.witness:
            raise HandshakeError(f"{self.me} is a witness without a state to give: ask another")
        known = membership.incarnation(base)
        if base in membership.replaced or (known is not None and known not in membership.members):
            raise HandshakeError(f"{base} has ended in this group: join under a fresh id")
        if known is not None:
            return Admission(known, self.state())
        replaced = tuple(sorted({base_of(incarnation) for incarnation in replaces}))
        if base in replaced or base_of(self.me) in replaced:
            raise HandshakeError(f"{base} cannot replace itself, nor the member that lets it in")
        for member in membership.members:
            if (
                name_of(member) == name_of(base)
                and base_of(member) not in replaced
                and not membership.is_replaced(member)
            ):
                raise HandshakeError(
                    f"the group has a member of the name {name_of(base)} already ({member}): take another name,"
                    f" or join as the replacement of that one (replace=True; --replaces {name_of(base)})"
                )
        if not membership.is_established(self.me, self._stability.stable):
            raise NotReadyError(f"{self.me} has just joined itself and cannot let others in yet")
        for origin, counter in (covered or {}).items():
            self._check_copy(origin, counter, copied_from)
        for victim in list(membership.members):
            if base_of(victim) in replaced and victim not in membership.evictions:
                # First, so that our report is the joiner's, too.
                self._issue(Evict(victim, force=False))
        tag = self._issue(Join(base, replaced, witness, dict(self.vector)))
        return Admission(joined_id(base, self.me, tag.dot.counter), self.state())

    def _check_copy(self, origin: str, counter: int, source: str | None) -> None:
        """Raise what fits if a copy of the application's state has more of an origin than this member."""
        membership = self._membership
        known = self.vector.get(origin)
        forgotten = known is None and membership.is_past(origin)
        if forgotten:
            # All of it is delivered here. That the copy has no more is certain if its source still is a member: it has
            # delivered the sweep, and would have ended with that.
            cut = membership.cut_of(origin)
            void = counter > cut if cut is not None else source not in membership.members
        else:
            void = origin in membership.ended and counter > membership.ended[origin].counter
        if counter and void:
            raise HandshakeError(
                f"the copy may hold messages of {origin} that were cut off: fetch it again from a member"
            )
        if not forgotten and counter > (known or 0):
            raise NotReadyError(f"{self.me} has not delivered yet what the joiner has a copy of")

    def leave(self) -> Tag:
        """Leave the group: the last message of this incarnation. Go on until `standing` is LEFT (or EVICTED)."""
        return self._issue(Leave(() if self.me in self._membership.evictions else self._unswept()))

    def _unswept(self) -> tuple[tuple[str, Cut], ...]:
        """What has ended here, and no delivered sweep lists."""
        ended, swept = self._membership.ended, self._membership.swept
        return tuple((x, ended[x]) for x in sorted(ended) if x not in swept)

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

    # Operations

    def send(self, payload: bytes, *, after: Iterable[Tag] | None = None) -> Tag:
        """tcbroadcast, see `Core.send`. EndedError once this incarnation leaves or has ended."""
        self._refuse_if_ending()
        return super().send(payload, after=None if after is None else tuple(after))

    def _refuse_if_ending(self) -> None:
        if self._over or self._farewell is not None:
            raise EndedError(
                f"{self.me} sends nothing any more (it is {self.standing.value}): go on with a new incarnation, "
                "one that joins"
            )

    def _issue(self, operation: Operation) -> Tag:
        self._refuse_if_ending()
        kind, payload = encode(operation)
        tag = self._send(payload, kind)
        self._issued.append(tag)
        self._apply(operation, tag.dot)
        return tag

    def _apply(self, operation: Operation, dot: Dot) -> None:
        """What a membership operation does where it is delivered, its sender included."""
        match operation:
            case Join():
                self._apply_join(operation, dot)
            case Leave(ended):
                if dot.origin != self.me:
                    for incarnation, cut in ended:
                        self._conclude_as_told(incarnation, cut)
                self._apply_leave(dot)
            case Evict(victim, force):
                if victim in self._membership.members:
                    if force:
                        self._membership.forced.add(victim)
                    self._open_eviction(victim)
                elif self._has_left(victim):
                    self._report(victim)
            case Frozen(victim, counter):
                reports = self._membership.evictions.get(victim)
                if reports is not None:
                    reports[dot.origin] = counter
                    self._vouching.report(victim, counter)
            case Sweep(ended):
                self._sweeps += 1
                for incarnation, cut in ended:
                    if self._conclude_as_told(incarnation, cut):
                        self._membership.swept.setdefault(incarnation, dot)
            case Settled(incarnation, counter):
                self._conclude_as_told(incarnation, Cut(counter, How.EVICTED))
                self._membership.tombs.pop(incarnation, None)

    def _apply_join(self, join: Join, dot: Dot) -> None:
        incarnation = joined_id(join.base, dot.origin, dot.counter)
        membership = self._membership
        self._joins += 1
        membership.join(incarnation, join)
        self.vector.setdefault(incarnation, 0)
        self._told = None
        if incarnation != self.me:
            peer = self._strangers.pop(incarnation, None) or Peer(incarnation)
            row = {**join.vector, dot.origin: dot.counter}
            # The contact may have dropped names whose sweeps it, and so the joiner, has.
            peer.adopt(dict(self._stability.completed(row)))
            self._peers[incarnation] = peer
        self._members_changed()
        if self._vouching.bound:
            self._vouching.consider_all()
        for base in join.replaces:
            replaced = membership.incarnation(base)
            if replaced in membership.members:
                self._open_eviction(replaced)
        if membership.is_replaced(incarnation):  # its successor's join came first
            self._open_eviction(incarnation)

    def _has_left(self, incarnation: str) -> bool:
        cut = self._membership.ended.get(incarnation)
        return cut is not None and cut.how is How.LEFT

    def _apply_leave(self, dot: Dot) -> None:
        membership, leaver = self._membership, dot.origin
        self._leaves += 1
        alone = len(membership.members) == 1
        self._close_eviction(leaver)
        membership.end(leaver, Cut(dot.counter, How.LEFT))
        if leaver == self.me:
            self._say_farewell(alone)
            return
        peer = self._peers.pop(leaver)
        if peer.linked:
            self._strangers[leaver] = peer
            self._tell(leaver, DigestKind.NEWS)
        self._ended_here(leaver)

    def _say_farewell(self, alone: bool) -> None:
        self._farewell = self.farewell_type(self.me, alone, self._tick)
        self._look_at_farewell()

    # Evictions

    def _open_eviction(self, victim: str) -> None:
        evictions = self._membership.evictions
        if victim in evictions:
            return
        evictions[victim] = {}
        self._vouching.open(victim)
        peer = self._peers.get(victim)
        if peer is not None:
            peer.frozen = True
            if peer.aside is not None:
                peer.aside = None
                self._stability.waiting -= 1
        if victim != self.me:
            self._report(victim)

    def _report(self, victim: str) -> None:
        """Say how much of the victim is delivered here; a leaver needs not, its leave is awaited instead."""
        if self._farewell is None:
            self._issue(Frozen(victim, self.vector[victim]))

    def _close_eviction(self, victim: str) -> None:
        if victim in self._vouching.bound:
            self._vouching.close(victim)

    def _conclude(self) -> None:
        """Cut off every set of victims that is reported on by all others, if those are a majority."""
        membership, vector, bound = self._membership, self.vector, self._vouching.bound
        if self._farewell is not None:
            return
        if len(membership.members) == 1 and self.me in membership.evictions:
            self._close_eviction(self.me)  # nobody is left who could conclude it
            del membership.evictions[self.me]
        for victim in sorted(membership.evictions):
            if victim not in membership.evictions:
                continue  # in a set that was concluded just now
            chosen = membership.least_set(victim)
            if chosen is None or self.me in chosen or any(vector[y] < bound[y] for y in chosen):
                continue
            if not membership.has_majority(chosen, self._stability.stable):
                if chosen not in self._refused:
                    self._refused.add(chosen)
                    self._evictions_refused += 1
                continue
            for y in sorted(chosen):
                how = How.FORCED if y in membership.forced else How.EVICTED
                self._end(y, Cut(vector[y], how))

    def _end(self, victim: str, cut: Cut) -> None:
        """It is evicted: nothing beyond the cut counts, and nothing more is taken from it."""
        self._evictions += 1
        self._close_eviction(victim)
        self._membership.end(victim, cut)
        self._purged += self._inbox.purge(victim)
        for origin in {m.dot.origin for m in self._inbox.messages()} - self.vector.keys():
            if self._membership.is_past(origin):  # let in by the victim, beyond its cut
                self._purged += self._inbox.purge(origin)
        peer = self._peers.pop(victim, None)
        if peer is not None and peer.linked:
            self._outbox.append(Transmit(victim, Ended(victim, cut.counter)))
        self._ended_here(victim)

    def _conclude_as_told(self, incarnation: str, cut: Cut) -> bool:
        """A sweep, or its successor, says that it has ended: so it has. Whether there is something left of it here.

        Conclusions differ in time, and somebody's leave may take a member's majority away before it has concluded.
        """
        membership = self._membership
        if incarnation == self.me:
            if cut.counter < self.vector[self.me]:
                self._become_evicted(cut.counter)
            return False  # of its leave: it still waits until everybody has what it has
        delivered = self.vector.get(incarnation)
        if delivered is None:
            return False
        if delivered > cut.counter:
            # The group has cut it off before what is delivered here: this member belongs to what was cut off.
            self._orphans += 1
            self._become_evicted(None)
            return False
        if incarnation in membership.members:
            self._end(incarnation, cut)
        return True

    def _has_ended(self, cut: int | None) -> None:
        """This incarnation is told its end: of its leave, if that counts; otherwise it was cut off."""
        if self._farewell is not None and (cut is None or cut >= self.vector[self.me]):
            self._left = True
        else:
            self._become_evicted(cut)

    def _become_evicted(self, cut: int | None) -> None:
        self._evicted = True
        self._cut = cut

    # Leaving no trace

    def _ended_here(self, incarnation: str) -> None:
        if incarnation in self._greet:
            self._greet.remove(incarnation)
        if self._ended_at is None:
            self._ended_at = self._tick
        self._members_changed()

    def _members_changed(self) -> None:
        self._evaluate_now = True
        self._stability.holder = None
        self._refused.clear()

    def _sweep(self) -> None:
        """List what has ended here and is in no sweep yet; the least member soon, others if it does not."""
        membership = self._membership
        unswept = self._unswept()
        if not unswept:
            self._ended_at = None
            return
        if self.me in membership.evictions:
            return
        if self._ended_at is None:
            self._ended_at = self._tick
        rank = sum(member < self.me for member in membership.members)
        if self._tick - self._ended_at >= SWEEP_WAIT * (rank + 1):
            self._issue(Sweep(unswept))

    def _forget(self) -> None:
        """Drop whatever has a stable sweep: from here on, everything that arrives comes after all of it."""
        membership, stable = self._membership, self.stable
        if not membership.swept or membership.evictions:
            return
        for incarnation, sweep in list(membership.swept.items()):
            if incarnation == self.me or stable.get(incarnation, 0) < self.vector[incarnation]:
                continue
            if sweep.origin in self.vector and not covers(stable, sweep):
                continue
            membership.drop(incarnation)
            self._dropped += self.vector.pop(incarnation)
            stable.pop(incarnation, None)
            self._strangers.pop(incarnation, None)
            self._stability.drop(incarnation)
            self._store.forget(incarnation)
            self._pasts.forget(incarnation)
            self._acknowledged = {o: n for o, n in self._acknowledged.items() if o != incarnation}
            self._told = None

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

    @property
    def _over(self) -> bool:
        return self._left or self._evicted

    # Receiving

    def receive(self, sender: str, message: Message | Digest | Ended) -> None:
        """Take what the incarnation `sender` sent. Deliveries and notices then come from `poll` and `poll_stable`.

        Raises RemoteProtocolError for what no member may send, and RolledBackError if the peer remembers more of this
        incarnation than it does itself; the state is unchanged then.
        """
        if self._over:
            return
        if type(message) is Message:
            if self._listens_to(sender):
                self._receive_checked(sender, message)
        elif type(message) is Digest:
            self._receive_digest(sender, message)
        elif type(message) is Ended:
            if message.incarnation == self.me:
                self._receive_ended(sender, message.cut)
        else:
            raise RemoteProtocolError(f"{sender} sent {message!r}, neither message nor digest")

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
            if message.kind:
                decode(message.kind, message.payload)
            self._receive_message(message)
        except TypeError:
            raise RemoteProtocolError(f"{sender} sent {message.dot}, which is ill-typed") from None
        if self._vouching.bound:
            self._vouching.consider([message])

    def _receive_early(self, message: Message) -> None:
        check_message(message, self.vector, self.me, check_incarnation)
        origin = message.dot.origin
        if origin in self._membership.ended or self._membership.is_past(origin):
            self._stale += 1
        else:
            self._inbox.add(message)

    def _receive_ended(self, sender: str, cut: int | None) -> None:
        """Somebody has told that this incarnation has ended."""
        tomb = self._membership.tombs.get(sender)
        if tomb is not None and tomb.how is How.FORCED:
            self._disputed.add(sender)  # the operator decides
        else:
            self._has_ended(cut)

    def _receive_digest(self, sender: str, digest: Digest) -> None:
        weight = check_group_digest(sender, digest, self.vector, self.me)
        membership = self._membership
        peer = self._peers.get(sender)
        if peer is None:
            check_incarnation(sender)
            if self._tell_ended(sender):
                self._stale += 1
                return
            peer = self._strangers.setdefault(sender, Peer(sender))
        self._digests_in += 1
        if sender in membership.evictions or sender not in membership.members:
            # Its row is not taken, but it is answered and repaired.
            if digest.kind is DigestKind.ASK:
                self._answer(sender, digest)
            if self._store.size and not self._has_left(sender):
                self._repair(peer, digest.vector)
        else:
            self._take_digest(peer, digest, weight)
        if self._farewell is not None:
            self._farewell.heard(sender, digest, membership.members)
            self._look_at_farewell()

    def _answer(self, to: str, asked: Digest) -> None:
        """A reply that says, too, what has ended here of what the asker knows."""
        membership = self._membership
        ended = {
            incarnation: membership.cut_of(incarnation)
            for incarnation in asked.vector
            if incarnation in membership.ended or membership.is_past(incarnation)
        }
        self._tell(to, DigestKind.REPLY, ended)

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

    # Delivery

    def poll(self) -> Delivery | None:
        """tcdeliver: the next deliverable message of another member, or None. Membership operations come, too."""
        if not self.has_deliverable():
            return None
        message = self._inbox.take()
        assert message is not None
        delivery = self._deliver(message)
        if message.dot.origin in self._vouching.bound:
            self._vouching.delivered(*message.dot)
        if message.kind:
            operation = decode(message.kind, message.payload)
            if operation is not None:
                self._apply(operation, message.dot)
        if self._membership.evictions:
            self._conclude()
        return delivery

    def has_deliverable(self) -> bool:
        """Whether `poll` would return something."""
        if self._over or (self._farewell is not None and self._tick > self._farewell.takes_until):
            return False
        inbox, membership, vouching = self._inbox, self._membership, self._vouching
        if vouching.held:
            inbox.ready.extend(vouching.released())
        while inbox.has_deliverable():
            message = inbox.ready[0]
            origin, counter = message.dot
            bound = vouching.bound.get(origin)
            if bound is None:
                if origin in membership.members:
                    return True
                cut = membership.ended.get(origin)
                if cut is not None and counter <= cut.counter:
                    return True
                self._purged += 1
            elif counter <= bound:
                return True
            else:
                vouching.held[origin] = message
            inbox.ready.popleft()
        return False

    # Timer

    def tick(self) -> None:
        """The timer: digests, questions, stability; conclusions of evictions, sweeps, and what may be forgotten."""
        if self._over:
            return
        super().tick()
        if self._membership.evictions:
            self._conclude()
        if self._farewell is not None:
            self._look_at_farewell()
        elif self._membership.ended:
            self._sweep()
            self._forget()

    def _look_at_farewell(self) -> None:
        assert self._farewell is not None
        if self._farewell.is_done(self._membership.members, self._lacking):
            self._left = True

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

    # Looking in

    @property
    def quiet(self) -> bool:
        """Nothing waits here, nothing is unstable, no eviction is open, and nothing has to be swept."""
        membership = self._membership
        busy = membership.evictions or membership.ended or self._farewell is not None
        return super().quiet and not busy and not self._vouching.held

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
        )

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
