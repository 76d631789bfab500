"""What operations and decisions do to one member: joins, ends, sweeps, and what is forgotten.

Who has delivered the same, and is in the same view, does the same. docs/protocol.md says what each rule is for.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Set

from crdtcast.causality.member_id import joined_by, joined_id
from crdtcast.causality.messages import Delivery, DigestKind, Ended, Message, Transmit
from crdtcast.causality.tags import Dot, Tag, covers
from crdtcast.engine.level import Span
from crdtcast.engine.membership import Early, GroupState
from crdtcast.engine.operation_claims import Wrong
from crdtcast.engine.operations import (
    Cut,
    Join,
    Operation,
    Reads,
    Settled,
    Sweep,
    decode,
    encode,
)
from crdtcast.engine.peer import Peer
from crdtcast.engine.reception import Reception
from crdtcast.engine.store import Store
from crdtcast.engine.views import Decided, Record, ViewChange
from crdtcast.exceptions import EndedError

LEAST_PAUSE = 4
MOST_PAUSE = 32
"""Ticks for which a leaver takes nothing, and then does for as long."""
MOST_DECISIONS = 1000
"""What is kept for `take_decisions`; where nobody takes them, the newest are left."""
SWEEP_WAIT = 3
"""Ticks between the end of an incarnation and the sweep of the least member; every other one waits as much longer."""


class MembershipChanges(Reception):
    """Issues and applies operations; applies decisions; sweeps and forgets. See `GroupEngine`."""

    def __init__(self, me: str, state: GroupState, reads: Span, store: Store | None) -> None:
        super().__init__(me, state, reads, store)
        self._issued: list[Tag] = []
        self._ended_at: int | None = None  # the tick since which something waits to be swept
        self._joins = self._leaves = self._evictions = self._sweeps = 0
        self._pause = LEAST_PAUSE  # of a leaver
        self._turns_at = self._taken = 0

    def _announce(self) -> None:
        """Tell the group which format levels are read here, if it is not what was said before.

        Not on probation: others may remember more of this incarnation than its journal.
        """
        if self._reservation is not None or self.silent or self.is_on_probation:
            return
        here = self._membership.members.get(self.me)
        if here is not None and here.reads != self._reads and (self._digests_in or not self._peers):
            self._issue(Reads(self._reads))

    # Sending and applying

    def _refuse_if_ending(self) -> None:
        """Raise EndedError if this incarnation sends nothing any more."""
        if self._is_ending:
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

    def poll(self) -> Delivery | None:
        """tcdeliver: the next deliverable message of another member, or None. Membership operations come, too."""
        if not self.has_deliverable():
            return None
        message = self._inbox.ready.popleft()
        if message.kind or self._limits:
            return self._deliver_and_apply(message)
        return self._deliver(message)

    def poll_upcoming(self) -> Delivery:
        """See `Core.poll_upcoming`."""
        return self._deliver_and_apply(self._inbox.ready.popleft())

    def _deliver_and_apply(self, message: Message) -> Delivery:
        operation = self._judged(message) if message.kind else None
        delivery = self._deliver(message)
        if operation is not None:
            self._apply(operation, message.dot)
        if self._limits and message.dot.origin in self._limits:
            self._end_if_due(message.dot.origin)
        return delivery

    def _judged(self, message: Message) -> Operation | None:
        """What counts of the operation in a message that is about to be delivered. The rest is noted."""
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
            self.blames.doubt(origin, f"{text}): it has no effect at this member")
        elif sender == origin:
            self.blames.note_late(origin, f"{text})")
        else:
            self.blames.note(origin, f"{text}, forwarded by {sender})")

    def _apply(self, operation: Operation, dot: Dot) -> None:
        """What a membership operation does where it is delivered, its sender included."""
        self.is_plain = False
        membership = self._membership
        match operation:
            case Join():
                self._apply_join(operation, dot)
            case Sweep(ended):
                self._sweeps += 1
                for incarnation, cut in ended:
                    if incarnation in membership.ended:
                        membership.swept.setdefault(incarnation, dot)
                    elif incarnation in membership.members and incarnation != self.me:
                        membership.note_early(incarnation, Early(cut.counter, swept=dot))
            case Settled(incarnation, counter):
                if incarnation in membership.members and incarnation != self.me:
                    membership.note_early(incarnation, Early(counter, settled=True))
                membership.tombs.pop(incarnation, None)
            case Reads(span):
                membership.reads(dot, span)

    def _apply_join(self, join: Join, dot: Dot) -> None:
        incarnation = joined_id(join.base, dot.origin, dot.counter)
        self._joins += 1
        self._membership.join(incarnation, join)
        self.vector.setdefault(incarnation, 0)
        self._told.cache = None
        if incarnation != self.me:
            peer = self._strangers.pop(incarnation, None) or Peer(incarnation)
            row = {**join.vector, dot.origin: dot.counter}
            # The contact may have dropped names whose sweeps it, and so the joiner, has.
            peer.adopt(dict(self._stability.completed(row)))
            peer.frozen = incarnation in self._limits
            self._peers[incarnation] = peer
        self._members_changed()
        if incarnation in self._limits:
            self._end_if_due(incarnation)

    # Views: what `Consensus` and `Proposer` ask of their member

    def _begin_views(self, state: GroupState) -> None:
        me, view = self.me, state.view
        self._decisions: deque[Decided] = deque(maxlen=MOST_DECISIONS)
        own = state.record or Record(me, 0, view.epoch, view.name, self.vector[me])
        self._consensus = self.consensus_type(view, own, state.decided, self)
        self._exchange = self.exchange_type(me, self._consensus)
        self._forks = self.forks_type(self._consensus)
        self._proposer = self.proposer_type(me, self._consensus, self._exchange, self, state.wants)

    def cut_short(self) -> Mapping[str, Cut]:
        """Those who went and have not ended here."""
        return self._membership.cuts

    def freeze(self, incarnations: Iterable[str]) -> None:
        """Deliver no more of these until the epoch is decided."""
        for incarnation in incarnations:
            self._membership.frozen.setdefault(incarnation, self.counted(incarnation))
        self._limits_changed()

    def agree(self, level: int | None) -> None:
        """A format level may be in force soon."""
        self._agreed = max(self._agreed, level or 0)

    def reads_level(self, level: int) -> bool:
        """Whether the program of this member reads that format level."""
        return level in self._reads

    def holds_data(self, member: str) -> bool:
        """Whether it is a member, and holds application state: a witness does not."""
        known = self._membership.members.get(member)
        return known is not None and not known.witness

    def may_vote(self, learner: str) -> bool:
        """Whether everybody knows it, and it has been heard of since."""
        if not self._membership.is_established(learner, self._stability.stable):
            return False
        return not self.is_unheard(learner)

    def is_unheard(self, member: str) -> bool:
        """Whether it was let in, and nothing has come of it: it may have died on its way."""
        consensus = self._consensus
        if member == self.me or member in consensus.view.voters or member in consensus.records:
            return False
        if member not in self._membership.members:
            return self._is_out_of_reach(member)
        return self._is_silent(member)

    def _is_silent(self, member: str) -> bool:
        peer = self._peers.get(member)
        return peer is None or (not peer.met and not self.vector[member])

    def _is_out_of_reach(self, incarnation: str) -> bool:
        """Whether the message that let it in cannot be delivered here before the epoch is decided."""
        join = joined_by(incarnation)
        contact = None if join is None else self._membership.incarnation(join[0])
        return join is not None and contact in self._limits and join[1] > self.counted(contact)

    def replaced(self, among: Set[str]) -> set[str]:
        """Those of them whose successors have joined."""
        return self._membership.replaced_among(among)

    def linked(self) -> Collection[str]:
        """The other members to which there is a link."""
        return [peer.incarnation for peer in self._peers.values() if peer.linked]

    def span_of(self, member: str) -> Span:
        """The levels that the program of a member reads, as it said last."""
        # What this member's program reads is certain, also before it has been announced.
        return self._reads if member == self.me else self._membership.members[member].reads

    def lacking_level(self, level: int) -> list[str]:
        """The members whose programs do not read that level, as they said last."""
        return sorted(x for x in self.going_on() if level not in self.span_of(x))

    def untold(self, gone: Set[str]) -> Set[str]:
        """Before this member leaves: whom it waits for, so that no message is lost with it.

        All that it has delivered must be at a majority of the voters that go on; at all of them if they are two or
        fewer; if there is none, at all who go on.
        """
        others = set(self.going_on()) - gone - {self.me}
        waits_for = (self._consensus.view.voters & others) or others
        short = {who for who in waits_for if self._lacking(self._peers[who].newest or {})}
        has_it = len(waits_for) - len(short)
        enough = has_it == len(waits_for) if len(waits_for) <= 2 else 2 * has_it > len(waits_for)
        return set() if enough else short

    def decided(self, change: ViewChange) -> None:
        """The epoch is over, and the freeze with it; who is out ends as soon as all of it that counts is here."""
        membership = self._membership
        view = self._consensus.view
        decided = self._consensus.decided[view.epoch - 1]
        if not self._store.note(decided):
            self._decisions.append(decided)
        self._agreed = view.level
        self._exchange.drop_questions()
        if self.me in change.out:
            # It stays until others know that: perhaps only its own vote has made this a decision.
            membership.cuts[self.me] = dict(change.cuts)[self.me]
            membership.thaw()
            return
        for incarnation, cut in change.cuts:
            if incarnation not in membership.ended:
                membership.cuts[incarnation] = cut
                self._purged += self._inbox.purge(incarnation, cut.counter)
                held = self._held.get(incarnation)
                if held is not None and held.dot.counter > cut.counter:
                    del self._held[incarnation]
                    self._purged += 1
        membership.thaw()
        self._limits_changed()
        for incarnation, _ in change.cuts:
            self._end_if_due(incarnation)
        for member in [m for m in self._consensus.records if m not in self.vector]:
            self._consensus.drop(member)  # it comes again, if there is such a member
        self._members_changed()

    def _end_if_due(self, incarnation: str) -> None:
        """It has ended if all of it that counts is delivered here."""
        cut = self._membership.cuts.get(incarnation)
        if cut is None or incarnation not in self._membership.members:
            return
        delivered = self.vector[incarnation]
        if delivered > cut.counter:
            # This member has delivered what nobody has who goes on: it belongs to what was cut off.
            self._become_evicted(None)
        elif delivered == cut.counter:
            self._end(incarnation, cut)

    def _end(self, incarnation: str, cut: Cut) -> None:
        """Nothing more is taken from it."""
        if cut.how.is_eviction:
            self._evictions += 1
        else:
            self._leaves += 1
        self._membership.end(incarnation, cut)
        self._purged += self._inbox.purge(incarnation)
        self._purged += self._inbox.purge_handed_on_by(incarnation)
        for origin in {m.dot.origin for m in self._inbox.messages()} - self.vector.keys():
            if self._membership.is_past(origin):  # let in by the victim, beyond its cut
                self._purged += self._inbox.purge(origin)
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
        self._limits_changed()
        self._members_changed()

    def _members_changed(self) -> None:
        self._evaluate_now = True
        self._stability.holder = None

    def _look_at_views(self) -> None:
        self.is_plain: bool = False
        self._proposer.look(self._tick)
        cut = self._membership.cuts.get(self.me)
        if cut is not None and not self.untold_of_view():
            if self._proposer.wants.leaves and self.vector[self.me] <= cut.counter:
                self._left = True
            else:
                self._become_evicted(None)

    def untold_of_view(self) -> Set[str]:
        """Once this member has left: the voters that do not know it yet; empty if enough of them do.

        If nobody votes any more: all who have gone before, since they may wait for what only this member knows.
        """
        view = self._consensus.view
        if not view.voters:
            return self._unaware()
        told = {voter for voter in view.voters if self._exchange.is_in(voter, view.epoch)}
        return set() if 2 * len(told) > len(view.voters) else view.voters - told

    def _unaware(self) -> Set[str]:
        """Who has gone, is linked, and does not know it yet."""
        exchange = self._exchange
        linked = set(exchange.linked())
        return {
            who
            for each in self._consensus.decided.values()
            for who in each.change.out
            if who in linked and not exchange.is_in(who, each.epoch + 1)
        }

    # Leaving no trace

    def _sweep(self) -> None:
        """List what has ended here and is in no sweep yet; the least member soon, others if it does not."""
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
        """Drop whatever has a stable sweep: from here on, everything that arrives comes after all of it."""
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

    def tick(self) -> None:
        """The timer: digests, questions, stability; ballots that are due, sweeps, and what may be forgotten."""
        if self._over:
            self._tick += 1
            self._exchange.tick(self._tick)
            return
        self._pace_leave()
        super().tick()
        self._look_at_probation()
        self._exchange.tick(self._tick)
        if self._consensus.decided and not self._unaware():
            self._consensus.prune()
        if self._membership.cuts and self._membership.drop_unborn():
            self._limits_changed()
        self._consensus.react()
        self._look_at_views()
        if self._is_ending:
            return
        self._announce()
        if self._membership.ended:
            self._sweep()
            self._forget()

    def _pace_leave(self) -> None:
        """A leaver goes when others have all that it has. While messages keep coming that is never so, unless it takes
        none for a while. Not for good: two who leave wait for each other.
        """
        if not self._proposer.wants.leaves or self._tick < self._turns_at:
            return
        comes, self._taken = self._delivered > self._taken, self._delivered
        self._pauses = comes and not self._pauses
        self._turns_at = self._tick + self._pause
        if self._pauses:
            self._pause = min(2 * self._pause, MOST_PAUSE)

    def take_outbox(self) -> list[Transmit]:
        """See `Core.take_outbox`."""
        if self._exchange.has_news and not self._left:
            self._outbox += self._exchange.flush()
        outbox = super().take_outbox()
        if not self.is_on_probation:
            return outbox
        leaves: list[Transmit] = []
        for effect in outbox:
            (self._outbox if self._may_be_said_twice(effect.message) else leaves).append(effect)
        return leaves

    def _may_be_said_twice(self, content: object) -> bool:
        """Whether this is a new message of this member, whose number may have been used before."""
        if not isinstance(content, Message) or content.dot.origin != self.me:
            return False
        return content.dot.counter > self._probation.sent
