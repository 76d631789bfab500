"""What both engines share: tags, delivery, digests, repair, asking, stability. It does not decide who is a member.

It rests on two rules. The delivered vector changes only when the application takes a message (`poll`) or sends one. All
that a member reports is a digest of that vector: acknowledgement, request for repair and sign of life in one.
`Engine` adds a fixed set of names, `GroupEngine` members that come and go (docs/protocol.md).
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import chain, islice
from operator import itemgetter, or_
from typing import ClassVar

from crdtcast.causality.messages import Delivery, Digest, DigestKind, Message, Transmit
from crdtcast.causality.tags import Dot, Tag, Vector, make_tuple, merge_into
from crdtcast.engine.blames import Blame, Blames
from crdtcast.engine.causal_past import Past, Pasts
from crdtcast.engine.checks import check_tag
from crdtcast.engine.delivery import Inbox, Waiting
from crdtcast.engine.digest_vector import DigestVector
from crdtcast.engine.peer import BACKOFF_MAX, Peer
from crdtcast.engine.repair import BATCH_MESSAGES, BATCHES, note_progress, repairs, should_ask
from crdtcast.engine.reservation import Reservation
from crdtcast.engine.stability import Stability
from crdtcast.engine.state import EngineCounters, EngineState
from crdtcast.engine.store import DOT_OF, Store, Stored
from crdtcast.exceptions import ConfigurationError, LocalProtocolError, NotReadyError

_TAG = itemgetter(Stored._fields.index("tag"))


class Core:
    """The base of the engines of both kinds of group: each gives it its peers, their rows, and what digests may report.

    state: what was saved, at one point of a history.
    vector: that of the state, with a key for every incarnation met. It is shared with the other parts.
    told: what digests may report of the vector.
    store: an empty one; by default one in memory.
    """

    inbox_type: ClassVar[type[Inbox]] = Inbox

    def __init__(
        self,
        me: str,
        state: EngineState,
        vector: dict[str, int],
        told: DigestVector,
        peers: dict[str, Peer],
        stability: Stability,
        store: Store | None = None,
        *,
        resumed: bool,
    ) -> None:
        self.me = me
        self.resumed = resumed
        """Whether a former process of this incarnation may have sent more than this one knows. Only then are peers
        believed that say so.
        """
        self.vector = vector
        """Origin -> highest counter delivered; a key for every incarnation met. To be read only."""
        self.stable: dict[str, int] = dict(state.stable)
        """Origin -> highest counter reported by `poll_stable`. To be read only."""
        self.repair_at_once = BATCH_MESSAGES
        """How many messages are sent again at once; fewer where others must not wait for long."""
        self.blames: Blames = Blames()
        self._told = told
        self._peers = peers
        self._stability = stability
        self._outbox: list[Transmit] = []
        self._tick = 0
        self._evaluate_now = True
        self._ready_stable: deque[Iterator[Stored]] = deque()
        self._ready_count = 0
        self._store = Store() if store is None else store
        self._pasts = Pasts(self._store, self.stable)
        self._seen: tuple[Message | None, int] = (None, 0)  # a ready one, what its context covers
        self._reservation: Reservation | None = None
        self._inbox = self.inbox_type(vector)
        self._last_news: Vector | None = None
        self._spoke = False  # a message since the last tick has acknowledged all that was delivered
        self._acknowledged: Vector = dict(vector)  # reported in some digest, at most
        self.silent = False
        """While it is set, nothing delivered becomes stable, and no digest, or message that the engine itself sends,
        acknowledges it. Set it while a message with `after` is prepared, which may have to be concurrent with what is
        delivered meanwhile.
        """
        self._dropped = 0  # sum of the counters of origins that the vector no longer names
        self._greet: list[str] = []  # linked, but not told our vector yet
        self._sent = self._delivered = self._reported = self._duplicates = self._stale = 0
        self._repairs = self._digests_in = self._digests_out = self._asks = 0
        self._purged = 0
        self._restore(state)

    def _restore(self, state: EngineState) -> None:
        pasts = self._pasts
        for message in state.unstable:
            origin, counter = message.dot
            if not self.stable.get(origin, 0) < counter <= self.vector.get(origin, 0):
                raise ConfigurationError(
                    f"the saved state holds {message.dot}, which its vector does not cover"
                )
            run = self._store.by_origin.get(origin)
            if run is not None and counter != run.last + 1:
                raise ConfigurationError(f"the saved state lacks a message before {message.dot}")
            past, known = pasts.before(message, self.stable)
            pasts.record(
                self._store.add(message, Tag(message.dot, message.context, past), 0), known
            )
            if pasts.overfull:
                pasts.move(self.stable)
        pasts.restore_heads(state.context)

    # What a kind of group adds

    def _receive_early(self, sender: str, message: Message) -> bool:
        """Check a message that is not deliverable yet, and keep it if there is room. Returns whether it is kept."""
        raise NotImplementedError

    def _may_tell(self) -> bool:
        """Whether digests may go out now."""
        return not self.silent

    def _greeting(self, peer: str) -> DigestKind:
        """The kind of the first digest on a link."""
        return DigestKind.NEWS

    def _answer(self, to: str, asked: Digest) -> None:
        self._tell(to, DigestKind.REPLY)

    def _refuse_if_ending(self) -> None:
        """Raises EndedError if this incarnation no longer sends."""

    def _digest(self, kind: DigestKind) -> Digest:
        vector = dict(self._told.vector())
        for origin, counter in self._pasts.context():
            # The maximal dots go last, where receivers look first: these cover all the others.
            if vector.get(origin) == counter:
                vector[origin] = vector.pop(origin)
        self._acknowledged = vector
        return Digest(kind, vector, self._dropped, self._stability.messages_acknowledge)

    # Links

    def _link_up(self, peer: Peer) -> None:
        peer.link_up(self._tick, self._store.sequence)
        if peer.incarnation not in self._greet:
            self._greet.append(peer.incarnation)
        self._send_greetings()

    def _link_down(self, peer: Peer) -> None:
        peer.linked = False
        if peer.incarnation in self._greet:
            self._greet.remove(peer.incarnation)

    # Sending

    def send(self, payload: bytes, *, after: Sequence[Tag] | None = None) -> Tag:
        """tcbroadcast: tag `payload` now, count it as delivered at this member, and put it into the outbox.

        By default it comes after everything that this member has delivered or sent so far. With `after` it comes only
        after those tags, which this member must have delivered, after its own earlier messages, and after what its
        digests have acknowledged: stability relies on no member sending concurrently with that any more.
        """
        return self._send(payload, 0, after)

    def _send(self, payload: bytes, kind: int, after: Sequence[Tag] | None = None) -> Tag:
        if self._reservation is not None:
            self._refuse_if_reserved()
        me, vector, pasts = self.me, self.vector, self._pasts
        counter = vector[me] + 1
        dot: Dot = make_tuple(Dot, (me, counter))
        past: Past
        known: int | None = pasts.full
        if after is None:
            past = pasts.everything()
            context = self._take_context()
            self._spoke = self._stability.messages_acknowledge
        else:
            context, past, known = self._explicit(after)
            self._spoke = False
        vector[me] = counter
        message = Message(dot, context, payload, kind)
        tag = Tag(dot, context, past)
        pasts.record(self._store.add(message, tag, self._tick), known)
        if len(pasts.window) > pasts.limit:
            self._move_window()
        self._outbox.append(make_tuple(Transmit, (None, message)))
        self._sent += 1
        self._told.cache = None
        if not self._peers:
            self._evaluate_now = True  # no other member has to acknowledge it
        return tag

    def _take_context(self) -> tuple[Dot, ...]:
        return self._pasts.context()

    # A message whose payload is known later only

    @property
    def reserved(self) -> Reservation | None:
        """The message that this engine waits for, see `reserve`."""
        return self._reservation

    def reserve(self, context: tuple[Dot, ...] | None = None) -> Dot:
        """Take the dot of the next message before its payload is known, until `use` or `give_back`.

        Until then nothing is delivered and nothing else is sent: either would change what that message comes after.
        Messages and digests are received, and digests go out.
        context: of the same reservation in a former process. Others may have its message, so this one has to be the
            same to the byte; this process may have the same dots in another order.

        Raises NotReadyError if there is a reservation, EndedError if this incarnation no longer sends, and
        LocalProtocolError if `context` is not the context of what this member has delivered.
        """
        self._refuse_if_reserved()
        self._refuse_if_ending()
        here = self._pasts.context()
        if context is None:
            context = here
        elif set(context) != set(here):
            raise LocalProtocolError(
                f"{self.me} has not delivered all messages before the one it reserved: {context} "
                f"is not {here}"
            )
        dot = Dot(self.me, self.vector[self.me] + 1)
        self._reservation = Reservation(dot, context)
        return dot

    def use(self, payload: bytes) -> Tag:
        """Send the message that was reserved, with the context that it was reserved with.

        Raises EndedError if this incarnation has ended meanwhile (the reservation stays), and LocalProtocolError if
        nothing is reserved.
        """
        reservation = self._reservation
        if reservation is None:
            raise LocalProtocolError(f"{self.me} has not reserved a message")
        self._refuse_if_ending()
        self._reservation = None
        self._pasts.reorder(reservation.context)
        tag = self._send(payload, 0)
        if tag.dot != reservation.dot:
            raise AssertionError(f"{reservation.dot} was reserved, {tag.dot} is sent")
        return tag

    def give_back(self) -> None:
        """Drop the reservation: the message is not sent."""
        self._reservation = None

    def _refuse_if_reserved(self) -> None:
        if self._reservation is not None:
            raise NotReadyError(
                f"{self._reservation.dot} is reserved: {self.me} must send that message first"
            )

    def _move_window(self) -> None:
        self._seen = (None, 0)
        shift = self._pasts.move(self._stability.stable)
        if shift:
            self._stability.moved(shift)

    def _explicit(self, after: Sequence[Tag]) -> tuple[tuple[Dot, ...], Past, int | None]:
        tags = {}
        for tag in after:
            check_tag(tag)
            if self.vector.get(tag.dot.origin, 0) < tag.dot.counter:
                raise LocalProtocolError(
                    f"{tag.dot} is given in `after`, but this member has not delivered it"
                )
            tags[tag.dot] = tag
        past = dict(self._acknowledged)
        merge_into(past, self._stability.stable)
        own = self.vector[self.me]
        latest = self._store.get(self.me, own)
        if latest is not None:
            tags[latest.tag.dot] = latest.tag
        for tag in tags.values():
            merge_into(past, tag.past)
            merge_into(past, {tag.dot.origin: tag.dot.counter})
        past[self.me] = own
        past = {
            origin: n for origin, n in past.items() if origin in self.vector
        }  # not dropped ones
        # One dot per origin: the last of its past. Dots that are known to be below another one are left out.
        dots = [Dot(origin, counter) for origin, counter in past.items() if counter]
        stored = [s for s in (self._store.get(*dot) for dot in dots) if s is not None]
        context = tuple(
            dot
            for dot in dots
            if not any(s.tag.past.get(dot.origin, 0) >= dot.counter for s in stored)
        )
        return context, *self._pasts.explicit(past)

    # Receiving

    def _receive_message(self, sender: str, message: Message) -> bool:
        """Take a message. Returns whether it is kept. Raises TypeError if one of its fields has the wrong type."""
        origin, counter = message.dot
        known = self.vector
        delivered = known.get(origin)
        if delivered is not None:
            if 0 < counter <= delivered:
                self._duplicates += 1
                return False
            if counter == delivered + 1 and origin != self.me:
                # The usual case: everything it depends on is delivered, which proves it well-formed, too.
                context = message.context
                covers = self._pasts.covers
                try:
                    # What its sender has sent before comes before it, whatever its context says.
                    before = covers.get((origin, delivered), 0)  # type: ignore[call-overload]
                    covered = reduce(or_, map(covers.__getitem__, context), before)
                except (KeyError, TypeError):
                    get = known.get
                    if len(context) <= len(known):
                        for depended, n in context:
                            if not 0 < n <= get(depended, 0):
                                break
                        else:
                            self._inbox.ready.append(message)
                            return True
                else:
                    if covered:
                        self._seen = (message, covered)
                    self._inbox.ready.append(message)
                    return True
        return self._receive_early(sender, message)

    # Digests

    def _take_digest(self, peer: Peer, digest: Digest, weight: int) -> None:
        """Take a digest that was found well-formed: acknowledgement, request for repair, sign of life."""
        vector = digest.vector
        own = vector.get(self.me, 0)
        if own > peer.acknowledged:
            peer.acknowledged = own
            stored = self._store.get(self.me, own)
            if stored is not None:
                peer.observe_delay(self._tick - stored.born)
        if self._stability.offer(peer, vector, weight):
            peer.covers |= self._pasts.covered_at_least(vector)
            if self._stability.holder is peer or self._stability.holder is None:
                self._evaluate_now = True
        if digest.kind is DigestKind.ASK:
            self._answer(peer.incarnation, digest)
        if self._store.size:
            peer.batches = BATCHES * BATCH_MESSAGES // self.repair_at_once
            self._repair(peer, vector)

    def _tell(self, to: str | None, kind: DigestKind) -> None:
        if not self._may_tell():
            return
        self._outbox.append(Transmit(to, self._digest(kind)))
        self._digests_out += 1
        if kind is DigestKind.ASK:
            self._asks += 1

    def _send_greetings(self) -> None:
        if self._greet and self._may_tell():
            for peer in self._greet:
                self._tell(peer, self._greeting(peer))
            self._greet.clear()

    def _repair(self, peer: Peer, vector: Vector) -> None:
        is_news = vector is not peer.repairing
        peer.repairing = None
        oldest = self._store.oldest(self._stability.stable)
        if oldest is None:
            return
        if self._tick - oldest.born < peer.hold and oldest.sequence > peer.mark:
            return
        lacking = self._stability.lacking(vector)
        if is_news:
            note_progress(peer, lacking, self.vector, vector, self._tick)
        if not lacking:
            return
        linked = [p.incarnation for p in self._peers.values() if p.linked]
        batch, more = repairs(
            self._store, self.me, linked, peer, lacking, vector, self._tick, self.repair_at_once
        )
        self._outbox += [Transmit(peer.incarnation, message) for message in batch]
        self._repairs += len(batch)
        peer.batches -= 1
        if more and peer.batches > 0:
            peer.repairing = vector

    def repair_on(self, incarnation: str) -> bool:
        """What went out to this peer is written: send the next batch of what it lacks, without waiting for a tick.

        Returns False if there is none.
        """
        peer = self._peers.get(incarnation)
        if peer is None or peer.repairing is None:
            return False
        self._repair(peer, peer.repairing)
        return True

    def tick(self) -> None:
        """The timer: report the vector if it has changed, evaluate stability, ask members that hold it back."""
        self._tick += 1
        if not self._store.size and self._pasts.window:
            self._move_window()
        for peer in self._peers.values():
            if peer.repairing is not None:
                self._repair(peer, peer.repairing)
        self._send_greetings()
        if self._may_tell():
            told = self._told.vector()
            if told != self._last_news:
                news = self._last_news
                if self._spoke and news is not None and len(told) == len(news):
                    pass  # the message has told most of it, and the rest can wait for a tick
                else:
                    self._last_news = told
                    if self._peers:
                        self._tell(None, DigestKind.NEWS)
        self._spoke = False
        self._ask()

    def _ask(self) -> None:
        self._evaluate(thoroughly=True)
        oldest = self._store.oldest(self._stability.stable)
        if oldest is None:
            return
        tick = self._tick
        for peer in self._peers.values():
            if peer.linked and tick >= peer.ask_at and tick - oldest.born > peer.hold:
                if should_ask(self._store, self.vector, peer, tick):
                    self._tell(peer.incarnation, DigestKind.ASK)
                    peer.ask_at = tick + peer.ask_delay
                    peer.ask_delay = min(2 * peer.ask_delay, BACKOFF_MAX)
                else:
                    peer.ask_at = tick + peer.hold

    @property
    def has_outbox(self) -> bool:
        """Whether `take_outbox` may return something."""
        return bool(self._outbox)

    def take_outbox(self) -> list[Transmit]:
        """The effects since the last call, in order. With IMMEDIATE durability, sync before you send them."""
        outbox, self._outbox = self._outbox, []
        return outbox

    # Delivery and stability

    def poll(self) -> Delivery | None:
        """tcdeliver: the next deliverable message of another member, or None. From now on it is delivered."""
        return self.poll_upcoming() if self.has_deliverable() else None

    def poll_upcoming(self) -> Delivery:
        """The same, for the message that `upcoming` has just returned."""
        return self._deliver(self._inbox.ready.popleft())

    def _deliver(self, message: Message) -> Delivery:
        inbox = self._inbox
        dot, context = message.dot, message.context
        origin, counter = dot
        self.vector[origin] = counter
        self._told.cache = None
        stability, pasts = self._stability, self._pasts
        seen, known = self._seen
        covered: int | None
        if pasts.is_context(context):  # as mostly, while one member sends
            past, covered = pasts.everything(), pasts.full
        elif seen is message:
            past, covered = pasts.of(context, known, stability.stable)
        else:
            past, covered = pasts.before(message, stability.stable)
        tag = Tag(dot, context, past)
        sees_all = covered == pasts.full
        covers = pasts.record(self._store.add(message, tag, self._tick), covered)
        peer = self._peers.get(origin)
        if peer is not None and stability.heard(peer, tag, covers):
            holder = stability.holder
            if holder is peer or holder is None:
                self._evaluate_now = True
        if len(pasts.window) > pasts.limit:
            self._move_window()
        if inbox.lines or inbox.waiting:
            inbox.delivered(dot)
        self._delivered += 1
        return make_tuple(Delivery, (message.payload, tag, message.kind, False, sees_all))  # type: ignore[no-any-return]

    def has_deliverable(self) -> bool:
        """Whether `poll` would return something."""
        inbox = self._inbox
        return bool(inbox.ready) and self._reservation is None and inbox.has_deliverable()

    def upcoming(self) -> Message | None:
        """The message that `poll` would deliver next, or None. This does not deliver it."""
        return self._inbox.ready[0] if self.has_deliverable() else None

    def refuse(self) -> None:
        """Leave the `upcoming` message undelivered: this member's program cannot read it.

        This member does not deliver or acknowledge anything that comes after it either, so nothing is lost: the others
        keep it. It comes up again whenever it is repaired, and once another program runs.
        """
        if self.has_deliverable():
            self._inbox.refuse()

    @property
    def refused(self) -> dict[str, Message]:
        """Origin -> its message that this member's program cannot read."""
        return dict(self._inbox.refused)

    def _evaluate(self, *, thoroughly: bool = False) -> None:
        self._evaluate_now = self.silent
        if self.silent:
            return
        risen = self._stability.evaluate(
            self._told.durable, self._store, self._pasts, thoroughly=thoroughly
        )
        if risen is not None:
            count, stored = risen
            self._ready_stable.append(stored)
            self._ready_count += count

    def has_stable(self) -> bool:
        """Whether `poll_stable` would return something."""
        if self._evaluate_now:
            self._evaluate()
        return self._ready_count > 0

    def poll_stable(self, limit: int = 1000) -> list[Tag]:
        """tcstable: at most `limit` tags that have become stable, each once, in an order that respects causality.

        This member can no longer deliver a message concurrent with them. It forgets them when this returns.
        """
        if self._evaluate_now:
            self._evaluate()
        left = min(limit, self._ready_count)
        if not left:
            return []
        ready, stable = self._ready_stable, self.stable
        taken: list[Stored] = []
        if left == self._ready_count:  # as nearly always
            taken += chain.from_iterable(ready)
            ready.clear()
        while len(taken) < left:
            taken += islice(ready[0], left - len(taken))
            if len(taken) < left:
                ready.popleft()
        stable.update(map(DOT_OF, taken))
        self._store.remove(taken)
        self._ready_count -= left
        self._reported += left
        return list(map(_TAG, taken))

    # Looking in

    @property
    def context(self) -> tuple[Dot, ...]:
        """The reduced context: the maximal delivered dots, which the next message will name."""
        return self._pasts.context()

    def tag(self, dot: Dot) -> Tag:
        """The tag of a message that is delivered and not reported stable. Raises LocalProtocolError for others.

        After a restart, what was stable then counts as before the message; about everything else the tag is exact.
        """
        stored = self._store.get(*dot)
        if stored is None:
            raise LocalProtocolError(
                f"{dot} was not delivered at this member, or was reported stable"
            )
        return stored.tag

    def messages(self, dots: Iterable[Dot]) -> list[Message]:
        """The messages of these dots that are delivered and not reported stable, in the order of delivery."""
        found = [stored for dot in dots if (stored := self._store.get(*dot)) is not None]
        found.sort(key=lambda stored: stored.sequence)
        return [stored.message for stored in found]

    @property
    def activity(self) -> int:
        """Messages sent and delivered, in all."""
        return self._sent + self._delivered

    @property
    def quiet(self) -> bool:
        """Whether nothing waits and nothing is unstable."""
        return not self._store.size and not self._inbox.size

    def state(self) -> EngineState:
        """What a restart needs, as of now; what has not been reported stable is still in it as unstable."""
        return EngineState(
            counter=self.vector[self.me],
            vector=dict(self.vector),
            context=self._pasts.context(),
            stable=dict(self.stable),
            unstable=tuple(stored.message for stored in self._store.in_order()),
        )

    @property
    def delivered(self) -> Vector:
        """Origin -> highest counter delivered at this member."""
        return self.vector

    @property
    def durable(self) -> Vector:
        """What no crash takes back: all that is delivered, or with Durability.DECLARED what was declared durable."""
        return self._told.durable

    def held_back_by(self) -> list[str]:
        """The members that, as far as is known, have not acknowledged all that is unstable at this one. Also those of
        which more messages have come than may wait.
        """
        holders = self._stability.holders() if self._store.size else []
        return [*holders, *(who for who in self._inbox.crowded() if who not in holders)]

    @property
    def waiting(self) -> dict[str, Waiting]:
        """How much waits for delivery, by origin."""
        return self._inbox.waiting_by_origin()

    @property
    def blamed(self) -> dict[str, Blame]:
        """The peers that sent something impossible, by incarnation id."""
        return dict(self.blames.by_sender)

    @property
    def held_bytes(self) -> int:
        """Bytes of the messages that are not stable, or not delivered yet: payloads in memory and on disk, and roughly
        the overhead of each message.
        """
        return self._store.held_bytes + self._inbox.bytes

    @property
    def spilled_bytes(self) -> int:
        """Bytes of payloads that are on disk."""
        return self._store.spilled_bytes

    @property
    def stored(self) -> tuple[int, int]:
        """Bytes and number of unstable messages: two of the `counters`, cheap enough for every message."""
        return self._store.bytes, self._store.size

    def counters(self) -> EngineCounters:
        """Gauges and totals; see `EngineCounters`."""
        return EngineCounters(
            sent=self._sent,
            delivered=self._delivered,
            stable=self._reported,
            pending=self._inbox.size,
            unstable=self._store.size,
            store_bytes=self._store.bytes,
            duplicates=self._duplicates + self._inbox.duplicates,
            stale=self._stale,
            repairs=self._repairs,
            digests_in=self._digests_in,
            digests_out=self._digests_out,
            asks=self._asks,
            held_digests=self._stability.held,
            purged=self._purged,
            crowded_out=self._inbox.crowded_out,
            pending_bytes=self._inbox.bytes,
        )
