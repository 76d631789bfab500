"""What membership operations do where they are delivered, their sender included: joins, leaves, evictions, sweeps.

Who has delivered the same does the same. docs/protocol.md, *Members that come and go*, says what each rule is for.
"""

from crdtcast.engine.claims import Wrong
from crdtcast.engine.level import Span
from crdtcast.engine.membership import GroupState
from crdtcast.engine.operations import (
    Cut,
    Evict,
    Frozen,
    How,
    Join,
    Kind,
    Leave,
    Operation,
    Raise,
    Reads,
    Settled,
    Sweep,
    decode,
    encode,
)
from crdtcast.engine.peer import Peer
from crdtcast.engine.reception import Reception
from crdtcast.exceptions import EndedError
from crdtcast.incarnation import joined_id
from crdtcast.messages import Delivery, DigestKind, Ended, Message, Transmit
from crdtcast.tags import Dot, Tag, covers

SWEEP_WAIT = 3
"""Ticks between the end of an incarnation and the sweep of the least member; every other one waits as much longer."""


class MembershipChanges(Reception):
    """Issues and applies operations; concludes evictions; sweeps and forgets. me, state, reads: see `GroupEngine`."""

    def __init__(self, me: str, state: GroupState, reads: Span) -> None:
        super().__init__(me, state, reads)
        self._issued: list[Tag] = []
        self._ended_at: int | None = None  # the tick since which something waits to be swept
        self._refused: set[frozenset[str]] = set()
        self._asked: dict[Evict, str] = {}
        self._joins = self._leaves = self._evictions = self._evictions_refused = 0
        self._sweeps = self._orphans = 0
        for victim, reports in list(self._membership.evictions.items()):
            if victim != me and me not in reports:
                self._report(victim)  # delivered by whoever gave us this state, after our join

    def _announce(self) -> None:
        """Tell the group which format levels are read here, if it is not what was said before.

        Not before a member was heard of: it may remember more of this incarnation than its journal.
        """
        if self._reservation is not None or self.silent:
            return
        here, reads = self._membership.members.get(self.me), self._levels.reads
        if here is not None and here.reads != reads and (self._digests_in or not self._peers):
            self._issue(Reads(reads))

    # Sending and applying

    def _refuse_if_ending(self) -> None:
        """Raise EndedError if this incarnation sends nothing any more."""
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

    def poll(self) -> Delivery | None:
        """tcdeliver: the next deliverable message of another member, or None. Membership operations come, too."""
        return self.poll_upcoming() if self.has_deliverable() else None

    def poll_upcoming(self) -> Delivery:
        """See `Core.poll_upcoming`."""
        message = self._inbox.ready.popleft()
        operation = self._judged(message) if message.kind else None
        delivery = self._deliver(message)
        if message.dot.origin in self._vouching.bound:
            self._vouching.delivered(*message.dot)
        if operation is not None:
            self._apply(operation, message.dot)
        if self._membership.evictions:
            self._conclude()
        return delivery

    def _judged(self, message: Message) -> Operation | None:
        """What counts of the operation in a message that is about to be delivered. The rest is noted."""
        if message.kind == Kind.LEAVE:
            self._last_of.pop(message.dot.origin, None)
        sender = self._from.pop(message.dot, message.dot.origin)
        operation = decode(message.kind, message.payload)
        if operation is None:
            return None
        operation, wrong = self._claims.judge(operation, message.dot, self._past_of(message))
        if wrong is not None:
            self._note_wrong(wrong, message.dot, sender)
        return operation

    def _note_wrong(self, wrong: Wrong, dot: Dot, sender: str) -> None:
        origin, counter = dot
        text = f"{origin} {wrong.text} (its message {counter:,}"
        if not wrong.proven:
            self.blames.doubt(origin, f"{text}): this has no effect here")
        elif sender == origin:
            self.blames.note_late(origin, f"{text})")
        else:
            self.blames.note(origin, f"{text}, handed on by {sender})")

    def _apply(self, operation: Operation, dot: Dot) -> None:
        """What a membership operation does where it is delivered, its sender included."""
        match operation:
            case Join():
                self._apply_join(operation, dot)
            case Leave(ended):
                if dot.origin != self.me:
                    for incarnation, cut in ended:
                        self._conclude_as_told(incarnation, cut)
                if dot.origin in self._membership.members:
                    self._apply_leave(dot)
            case Evict(victim, force):
                if victim in self._membership.members:
                    if force:
                        self._membership.forced.add(victim)
                    self._asked.setdefault(operation, dot.origin)
                    self._open_eviction(victim, dot)
                elif self._has_left(victim):
                    self._report(victim)
            case Frozen(victim, counter):
                if self._membership.report(operation, dot):
                    self._vouching.report(victim, counter)
            case Sweep(ended):
                self._sweeps += 1
                for incarnation, cut in ended:
                    if self._conclude_as_told(incarnation, cut):
                        self._membership.swept.setdefault(incarnation, dot)
            case Settled(incarnation, counter):
                self._conclude_as_told(incarnation, Cut(counter, How.EVICTED))
                self._membership.tombs.pop(incarnation, None)
            case Raise(level):
                self._levels.add(level, dot)
            case Reads(span):
                self._membership.reads(dot, span)

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
                self._open_eviction(replaced, dot)
        if membership.is_replaced(incarnation):  # its successor's join came first
            self._open_eviction(incarnation, None)

    def _apply_leave(self, dot: Dot) -> None:
        membership, leaver = self._membership, dot.origin
        self._leaves += 1
        alone = len(membership.members) == 1
        self._close_eviction(leaver)
        membership.end(leaver, Cut(dot.counter, How.LEFT))
        if leaver == self.me:
            self._say_farewell(alone)
            return
        self._purged += self._inbox.purge_handed_on_by(leaver)
        if purged := self._inbox.purge(leaver):  # it has sent more after its last message
            self._purged += purged
            self._vouching.begin_anew()
        peer = self._peers.pop(leaver)
        if peer.linked:
            self._strangers[leaver] = peer
            self._tell(leaver, DigestKind.NEWS)
        self._ended_here(leaver)

    # Evictions

    def _open_eviction(self, victim: str, dot: Dot | None) -> None:
        if victim in self._membership.evictions:
            if dot is not None:
                self._membership.evict_again(victim, dot)
            return
        self._membership.open_eviction(victim, dot)
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
            membership.drop_eviction(self.me)
        for victim in sorted(membership.evictions):
            if victim not in membership.evictions:
                continue  # in a set that was concluded just now
            chosen = membership.least_set(victim)
            if chosen is None or self.me in chosen or any(vector[y] < bound[y] for y in chosen):
                continue
            if not membership.concludes(chosen):
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
        self._last_of.pop(victim, None)
        self._purged += self._inbox.purge_handed_on_by(victim)
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

    def _unswept(self) -> tuple[tuple[str, Cut], ...]:
        """What has ended here, and no delivered sweep lists."""
        ended, swept = self._membership.ended, self._membership.swept
        return tuple((x, ended[x]) for x in sorted(ended) if x not in swept)

    def _sweep(self) -> None:
        """List what has ended here and is in no sweep yet; the least member soon, others if it does not."""
        membership = self._membership
        unswept = self._unswept()
        if not unswept:
            self._ended_at = None
            return
        if self.me in membership.evictions or self._reservation is not None or self.silent:
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
        self._levels.in_force(
            self._stability.stable
        )  # while the names of those who raised it are known
        for incarnation, sweep in list(membership.swept.items()):
            if incarnation == self.me or stable.get(incarnation, 0) < self.vector[incarnation]:
                continue
            if sweep.origin in self.vector and not covers(stable, sweep):
                continue
            membership.drop(incarnation)
            for force in (False, True):
                self._asked.pop(Evict(incarnation, force), None)
            self._purged += self._inbox.purge_handed_on_by(incarnation)  # a leaver, after its leave
            self._dropped += self.vector.pop(incarnation)
            stable.pop(incarnation, None)
            self._strangers.pop(incarnation, None)
            self._stability.drop(incarnation)
            self._store.forget(incarnation)
            self._pasts.forget(incarnation)
            self._acknowledged = {o: n for o, n in self._acknowledged.items() if o != incarnation}
            self._told = None

    def tick(self) -> None:
        """The timer: digests, questions, stability; conclusions of evictions, sweeps, and what may be forgotten."""
        if self._over:
            return
        super().tick()
        if self._membership.evictions:
            self._conclude()
        if self._farewell is not None:
            self._look_at_farewell()
            return
        self._announce()
        if self._membership.ended:
            self._sweep()
            self._forget()
