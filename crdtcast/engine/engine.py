"""One member of a causal group as a state machine: messages and digests in, deliveries, stable notices and effects out.

It knows no sockets, clock or randomness. Two rules carry it: the delivered vector changes only when the application
takes a message (`poll`) or sends one; and everything a member tells others is one digest of that vector, which is
acknowledgement, request for repair and sign of life at once. The whole protocol with its reasons: docs/protocol.md.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import ClassVar

from crdtcast.engine.checks import check_digest, check_message, superseded
from crdtcast.engine.delivery import Inbox
from crdtcast.engine.members import Members
from crdtcast.engine.pasts import Past, Pasts
from crdtcast.engine.peer import BACKOFF_MAX, Peer
from crdtcast.engine.repair import repairs, should_ask
from crdtcast.engine.stability import Stability
from crdtcast.engine.state import Durability, EngineCounters, EngineState
from crdtcast.engine.store import Store, Stored
from crdtcast.engine.told import Told
from crdtcast.exceptions import (
    ConfigurationError,
    HandshakeError,
    LocalProtocolError,
    RemoteProtocolError,
)
from crdtcast.incarnation import name_of, valid_incarnation
from crdtcast.messages import Delivery, Digest, DigestKind, Message, Transmit
from crdtcast.tags import Dot, Tag, Vector, merge_into

EAGER_MEMBERS = 8
"""Up to this size stability is evaluated at every digest; beyond, once per tick or round of digests."""


class Engine:
    """The causal broadcast of one incarnation in a group with a fixed set of member names.

    me: own incarnation id. names: names of all members, the own one included.
    state: what a former life has saved, under the same incarnation (only if its journal is provably intact) or under
        a new one of the same name; None for a first start.
    durable: what digests may tell, see `Durability`.

    Raises ConfigurationError for names or a state that do not fit.
    """

    stability_type: ClassVar[type[Stability]] = Stability
    told_type: ClassVar[type[Told]] = Told

    def __init__(
        self,
        me: str,
        names: Iterable[str],
        *,
        state: EngineState | None = None,
        durable: Durability = Durability.IMMEDIATE,
    ) -> None:
        self.me = me
        self.durability = durable
        self._members = Members(me, names)
        self.vector: dict[str, int] = {}
        """Origin -> highest counter delivered; a key for every incarnation met. To be read only."""
        self.stable: dict[str, int] = {}
        """Origin -> highest counter reported by `poll_stable`. To be read only."""
        self._peers: dict[str, Peer] = {}
        self._context: dict[str, Dot] = {}
        self._outbox: list[Transmit] = []
        self._tick = 0
        self._eager = len(self._members.names) <= EAGER_MEMBERS
        self._evaluate_now = True
        self._ready_stable: deque[Iterator[Stored]] = deque()
        self._ready_count = 0
        self._store = Store()
        self._last_news: dict[str, int] | None = None
        self._acknowledged: Vector = {}  # told in some digest, at most
        self._greet: list[str] = []  # linked, but not told our vector yet
        self._recovering = False
        self._sent = self._delivered = self._reported = self._duplicates = self._stale = 0
        self._repairs = self._digests_in = self._digests_out = self._asks = 0
        self._superseded = self._purged = 0
        self._resume(state or EngineState())
        self._inbox = Inbox(self.vector)
        self._told = self.told_type(self.vector, self._members, durable)
        self._acknowledged = dict(self.vector)
        self._stability = self.stability_type(self.vector, self._members, self._peers, self.stable)

    def _resume(self, state: EngineState) -> None:
        members, vector = self._members, self.vector
        for incarnation in state.vector:
            if name_of(incarnation) not in members.names or not valid_incarnation(incarnation):
                raise ConfigurationError(
                    f"the saved state knows {incarnation}, which is no member of this group"
                    f" ({', '.join(members.names)})"
                )
        for incarnation in sorted({*state.vector, self.me}):
            members.learn(incarnation)
        if members.current[members.name] != self.me:
            raise ConfigurationError(
                f"the saved state knows {members.current[members.name]}, a later incarnation than"
                f" {self.me}: start under a new one"
            )
        if state.vector.get(self.me, state.counter) != state.counter and self.me in state.vector:
            raise ConfigurationError(
                f"the saved state has delivered {state.vector[self.me]} of {state.counter} own"
                " messages: it is not one point of a history"
            )
        vector.update(state.vector)
        vector.setdefault(self.me, 0)
        self.stable.update(state.stable)
        self._context.update((dot.origin, dot) for dot in state.context)
        for incarnation in members.current.values():
            if incarnation != self.me:
                self._peers[incarnation] = Peer(incarnation)
        self._pasts = Pasts(self._store, self.stable)
        floor = {origin: self.stable.get(origin, 0) for origin in vector}
        for message in state.unstable:
            origin, counter = message.dot
            if not self.stable.get(origin, 0) < counter <= vector.get(origin, 0):
                raise ConfigurationError(f"the saved state holds {message.dot} beyond its vector")
            past, missing = self._pasts.of(message.context, floor)
            self._store.add(message, Tag(message.dot, message.context, past), missing, 0)
            self._pasts.record(message.dot)

    # Members and links

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all members, sorted."""
        return self._members.names

    @property
    def members(self) -> dict[str, str]:
        """Name -> current incarnation, for every name of which one is known."""
        return dict(self._members.current)

    def introduce(self, incarnation: str) -> bool:
        """Make a peer known, from its handshake. True if it is the current incarnation of its name.

        A newer incarnation supersedes the one known so far, which has ended with that. False: a newer one is known,
        this one has ended. Raises HandshakeError for a name outside the group or this engine's own id, and
        SupersededError for a newer incarnation of the own name.
        """
        members = self._members
        name = name_of(incarnation)
        if name not in members.names or not valid_incarnation(incarnation):
            raise HandshakeError(
                f"{incarnation!r} is no member of this group ({', '.join(members.names)}): "
                "give all nodes the same list of names"
            )
        if incarnation == self.me:
            raise HandshakeError(f"{incarnation} is this node itself: its own address is a peer's")
        if members.is_newer(incarnation):
            self._learn(incarnation)
            return True
        return members.current[name] == incarnation

    def _learn(self, incarnation: str) -> None:
        """A newer incarnation is current: what it supersedes has ended, everywhere, from here on.

        Nothing more is taken from an ended one; undelivered messages of ended ones are dropped, since only what some
        current member has *delivered* of them is certain to reach everybody. Rows are valid again once they name it.
        """
        members, vector = self._members, self.vector
        if name_of(incarnation) == members.name:
            raise superseded(self.me, incarnation)
        previous = members.learn(incarnation)
        vector.setdefault(incarnation, 0)
        name = name_of(incarnation)
        taken = {origin: vector[origin] for origin in members.ended if name_of(origin) == name}
        self._told.name_after(incarnation, taken)
        if previous is not None:
            self._superseded += 1
            self._told.unnamed.pop(previous, None)
            if self._peers.pop(previous, None) is not None and previous in self._greet:
                self._greet.remove(previous)
            self._purge_ended()
        self._peers[incarnation] = Peer(incarnation)
        self._stability.forget_rows()

    def _purge_ended(self) -> None:
        recovered = self._told.unnamed.get(self.me, {}) if self._recovering else {}
        for origin in self._members.ended:
            self._purged += self._inbox.purge(origin, recovered.get(origin, 0))

    def connected(self, peer: str) -> None:
        """A link with this incarnation is up: it is told our vector, and repaired as soon as it has told its own."""
        known = self._peers.get(peer)
        if known is None:
            if self._is_ended(peer):
                return
            raise LocalProtocolError(f"{peer} is connected but was not introduced")
        known.link_up(self._tick, self._store.sequence)
        if peer not in self._greet:
            self._greet.append(peer)
        self._send_greetings()

    def disconnected(self, peer: str) -> None:
        """The link with this incarnation is gone; what was sent on it may be lost."""
        known = self._peers.get(peer)
        if known is not None:
            known.linked = False
            if peer in self._greet:
                self._greet.remove(peer)

    def _is_ended(self, incarnation: str) -> bool:
        current = self._members.current.get(name_of(incarnation))
        return current is not None and incarnation < current

    # Sending

    def send(self, payload: bytes, *, after: Sequence[Tag] | None = None) -> Tag:
        """tcbroadcast: tag `payload` now, count it as delivered here, and let it go out with the outbox.

        By default it comes after everything delivered or sent here so far. With `after` it comes after those tags
        only, which must have been delivered here, after the own messages before it, and after what digests have
        acknowledged already: stability of those rests on nobody sending concurrently with them any more.
        """
        counter = self.vector[self.me] + 1
        dot = Dot(self.me, counter)
        past: Past
        missing: int | None = 0
        if after is None:
            past = self._pasts.everything()
            context = self._take_context()
        else:
            context, past, missing = self._explicit(after)
            for depended in context:
                if self._context.get(depended.origin) == depended:
                    del self._context[depended.origin]
        self._context[self.me] = dot
        self.vector[self.me] = counter
        message = Message(dot, context, payload)
        tag = Tag(dot, context, past)
        self._store.add(message, tag, missing, self._tick)
        self._pasts.record(dot)
        self._outbox.append(Transmit(None, message))
        self._sent += 1
        self._told.cache = None
        if not self._peers:
            self._evaluate_now = True  # nobody else has to acknowledge it
        return tag

    def _take_context(self) -> tuple[Dot, ...]:
        context = tuple(self._context.values())
        self._context.clear()
        return context

    def _explicit(self, after: Sequence[Tag]) -> tuple[tuple[Dot, ...], Past, int | None]:
        tags = {}
        for tag in after:
            if self.vector.get(tag.dot.origin, 0) < tag.dot.counter:
                raise LocalProtocolError(f"{tag.dot} is given in `after` but not delivered here")
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
        # One dot an origin: the last of its past. Those below another one are left out where that is known.
        dots = [Dot(origin, counter) for origin, counter in past.items() if counter]
        stored = [s for s in (self._store.get(*dot) for dot in dots) if s is not None]
        context = tuple(
            dot
            for dot in dots
            if not any(s.tag.past.get(dot.origin, 0) >= dot.counter for s in stored)
        )
        return context, *self._pasts.explicit(past, self._stability.stable)

    # Receiving

    def receive(self, sender: str, message: Message | Digest) -> None:
        """Take what the incarnation `sender` sent. Deliveries and notices then come from `poll` and `poll_stable`.

        Raises RemoteProtocolError for what no member may send, RolledBackError if the peer remembers more of this
        incarnation than it does itself, SupersededError if the peer knows a later one; the state is unchanged then.
        What comes from an ended incarnation is ignored.
        """
        peer = self._peers.get(sender)
        if peer is None:
            self._receive_from_outside(sender, message)
        elif type(message) is Message:
            try:
                self._receive_message(message)
            except TypeError:
                raise RemoteProtocolError(
                    f"{sender} sent {message.dot}, which is ill-typed"
                ) from None
        elif type(message) is Digest:
            self._receive_digest(peer, message)
        else:
            raise RemoteProtocolError(f"{sender} sent {message!r}, neither message nor digest")

    def _receive_from_outside(self, sender: str, message: Message | Digest) -> None:
        if name_of(sender) == self._members.name and sender < self.me and type(message) is Message:
            self._recover(message)
        elif self._is_ended(sender):
            self._stale += 1
        else:
            raise LocalProtocolError(f"{sender} is received from but was not introduced")

    def _receive_message(self, message: Message) -> None:
        origin, counter = message.dot
        known = self.vector
        delivered = known.get(origin)
        if delivered is not None:
            if 0 < counter <= delivered:
                self._duplicates += 1
                return
            if counter == delivered + 1 and origin != self.me:
                # The usual case: everything it depends on is delivered, which proves it well-formed, too.
                get = known.get
                for depended, n in message.context:
                    if not 0 < n <= get(depended, 0):
                        break
                else:
                    self._inbox.ready.append(message)
                    return
        check_message(message, known, self._members)
        if delivered is None:
            self._meet(origin)
        self._inbox.add(message)

    def _meet(self, incarnation: str) -> None:
        """An incarnation is heard of through others."""
        if self._members.is_newer(incarnation):
            self._learn(incarnation)
        else:
            self._members.add_ended(incarnation)
            self.vector.setdefault(incarnation, 0)
            self._told.cache = None

    def _recover(self, message: Message) -> None:
        """Take over what an ended incarnation of this name still had in memory, though not in its journal.

        Only before the first digest: those that follow must cover it (see `engine.told`), as nobody may count on
        this member's vector while it can still deliver something from outside the group.
        """
        origin, counter = message.dot
        if self.vector.get(origin, 0) >= counter:
            self._duplicates += 1
            return
        if self._digests_out or origin == self.me:
            self._stale += 1
            return
        check_message(message, self.vector, self._members)
        if origin not in self.vector:
            self._meet(origin)
        self._inbox.add(message)
        self._recovering = True
        self._told.name_after(self.me, {origin: counter})

    # Digests

    def _receive_digest(self, peer: Peer, digest: Digest) -> None:
        vector = digest.vector
        weight = check_digest(peer, vector, self.vector, self._stability.stable, self._members)
        self._digests_in += 1
        if len(vector) != peer.known_width:
            for incarnation in self._unmet(vector):
                self._meet(incarnation)
            if self._peers.get(peer.incarnation) is not peer:
                # A newer incarnation of the sender's own name was among them: the sender has ended.
                self._stale += 1
                return
            peer.known_width = len(vector)
        peer.met = True
        own = vector.get(self.me, 0)
        if own > peer.acknowledged:
            peer.acknowledged = own
            stored = self._store.get(self.me, own)
            if stored is not None:
                peer.observe_delay(self._tick - stored.born)
        stability = self._stability
        if stability.offer(peer, vector, weight) and (
            (peer is stability.blocker or stability.blocker is None)
            if self._eager
            else stability.adopted >= len(self._peers)
        ):
            self._evaluate_now = True
        if digest.kind is DigestKind.ASK:
            self._tell(peer.incarnation, DigestKind.REPLY)
        if self._store.size:
            self._repair(peer, vector)

    def _unmet(self, vector: Vector) -> list[str]:
        """Incarnations in it that are new here and matter: current ones, and ended ones that have sent."""
        return [
            incarnation
            for incarnation, counter in vector.items()
            if incarnation not in self.vector and (counter or self._members.is_newer(incarnation))
        ]

    def _may_tell(self) -> bool:
        if self._recovering:
            if self._inbox.has_deliverable():
                return False
            self._recovering = False
            if self._inbox.size:
                # What is left depends on messages that nobody here has: the group repairs it, if anybody has it.
                for origin in self.vector:
                    self._purged += self._inbox.purge(origin)
                self._told.give_up(self.me)
        return True

    def _tell(self, to: str | None, kind: DigestKind) -> None:
        if not self._may_tell():
            return
        self._acknowledged = self._told.vector()
        self._outbox.append(Transmit(to, Digest(kind, self._acknowledged)))
        self._digests_out += 1
        if kind is DigestKind.ASK:
            self._asks += 1

    def _send_greetings(self) -> None:
        if self._greet and self._may_tell():
            for peer in self._greet:
                self._tell(peer, DigestKind.NEWS)
            self._greet.clear()

    def _repair(self, peer: Peer, vector: Vector) -> None:
        oldest = self._store.oldest(self._stability.stable)
        if oldest is None:
            return
        if self._tick - oldest.born < peer.hold and oldest.sequence > peer.mark:
            return
        get = vector.get
        lacking = [origin for origin, counter in self.vector.items() if counter > get(origin, 0)]
        if not lacking:
            return
        linked = [p.incarnation for p in self._peers.values() if p.linked]
        for message in repairs(self._store, self.me, linked, peer, lacking, vector, self._tick):
            self._outbox.append(Transmit(peer.incarnation, message))
            self._repairs += 1

    def tick(self) -> None:
        """The timer: tell the vector if it has changed, ask whoever holds stability back, evaluate stability."""
        self._tick += 1
        self._send_greetings()
        if self._may_tell():
            told = self._told.vector()
            if told != self._last_news:
                self._last_news = told
                if len(self._members.names) > 1:
                    self._tell(None, DigestKind.NEWS)
        self._ask()

    def _ask(self) -> None:
        self._evaluate()
        oldest = self._store.oldest(self._stability.stable)
        if oldest is None:
            return
        tick = self._tick
        for peer in self._peers.values():
            if peer.linked and tick >= peer.ask_at and tick - oldest.born > peer.hold:
                if should_ask(self._store, peer, tick):
                    self._tell(peer.incarnation, DigestKind.ASK)
                    peer.ask_at = tick + peer.ask_delay
                    peer.ask_delay = min(2 * peer.ask_delay, BACKOFF_MAX)
                else:
                    peer.ask_at = tick + peer.hold

    def take_outbox(self) -> list[Transmit]:
        """The effects since the last call, in order. With IMMEDIATE durability, sync first and send then."""
        outbox, self._outbox = self._outbox, []
        return outbox

    @property
    def durable(self) -> Vector:
        """What is durable here: what was declared so, or all that is delivered with Durability.IMMEDIATE."""
        return self._told.durable

    def mark_durable(self, vector: Vector) -> None:
        """Declare what has been synced: a vector that this engine's `vector` was at some time (DECLARED only).

        An older one than declared before changes nothing. Raises LocalProtocolError for one beyond `vector`.
        """
        self._told.declare(vector)
        self._evaluate_now = True

    # Delivery and stability

    def poll(self) -> Delivery | None:
        """tcdeliver: the next deliverable message of another member, or None. It counts as delivered from here on."""
        inbox = self._inbox
        message = inbox.take()
        if message is None:
            return None
        dot, context = message.dot, message.context
        origin, counter = dot
        self.vector[origin] = counter
        self._told.cache = None
        pruned = self._context
        for depended, n in context:
            known = pruned.get(depended)
            if known is not None and known[1] == n:
                del pruned[depended]
        pruned[origin] = dot
        stability = self._stability
        past, missing = self._pasts.of(context, stability.stable)
        tag = Tag(dot, context, past)
        self._store.add(message, tag, missing, self._tick)
        self._pasts.record(dot)
        if inbox.waiting:
            inbox.delivered(dot)
        if stability.waiting and self._eager:
            self._evaluate_now = True
        self._delivered += 1
        return Delivery(message.payload, tag, message.kind)

    def has_deliverable(self) -> bool:
        """Whether `poll` would return something."""
        return self._inbox.has_deliverable()

    def _evaluate(self) -> None:
        self._evaluate_now = False
        risen = self._stability.evaluate(self._told.durable, self._store.by_origin)
        if self._eager:
            oldest = self._store.oldest(self._stability.stable)
            self._stability.find_blocker(None if oldest is None else oldest.message.dot)
        if risen:
            # In delivery order, which respects causality. Merged as it is taken: it may be very much at once.
            by_origin = self._store.by_origin
            runs = [map(by_origin[o].__getitem__, counters) for o, counters in risen.items()]
            self._ready_stable.append(heapq.merge(*runs) if len(runs) > 1 else runs[0])
            self._ready_count += sum(map(len, risen.values()))

    def has_stable(self) -> bool:
        """Whether `poll_stable` would return something."""
        if self._evaluate_now:
            self._evaluate()
        return self._ready_count > 0

    def poll_stable(self, limit: int = 1000) -> list[Tag]:
        """tcstable: at most `limit` tags that have become stable, each once, in an order that respects causality.

        No message concurrent with them can be delivered here any more. They are forgotten when this returns.
        """
        if self._evaluate_now:
            self._evaluate()
        ready, store, stable = self._ready_stable, self._store, self.stable
        tags: list[Tag] = []
        left = min(limit, self._ready_count)
        self._ready_count -= left
        while left:
            for stored in islice(ready[0], left):
                store.remove(stored)
                origin, counter = stored.message.dot
                stable[origin] = counter
                tags.append(stored.tag)
                left -= 1
            if left:
                ready.popleft()
        self._reported += len(tags)
        return tags

    # Looking in

    @property
    def context(self) -> tuple[Dot, ...]:
        """The reduced context: the maximal delivered dots, which the next message will name."""
        return tuple(self._context.values())

    def tag(self, dot: Dot) -> Tag:
        """The tag of a message that is delivered and not reported stable. LocalProtocolError for others.

        After a restart it counts what was stable then as before the message, and is exact about everything else.
        """
        stored = self._store.get(*dot)
        if stored is None:
            raise LocalProtocolError(f"{dot} is not delivered here, or was reported stable")
        return stored.tag

    @property
    def quiet(self) -> bool:
        """Nothing waits here and nothing is unstable."""
        return not self._store.size and not self._inbox.size

    def state(self) -> EngineState:
        """What a restart needs, as of now; what has not been reported stable is still in it as unstable."""
        return EngineState(
            counter=self.vector[self.me],
            vector=dict(self.vector),
            context=tuple(self._context.values()),
            stable=dict(self.stable),
            unstable=tuple(stored.message for stored in self._store.in_order()),
        )

    def held_back_by(self) -> list[str]:
        """Names of the members that have not acknowledged, as far as is known here, all that is unstable here."""
        return self._stability.holders() if self._store.size else []

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
            superseded=self._superseded,
            purged=self._purged,
        )
