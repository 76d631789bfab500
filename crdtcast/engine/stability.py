"""Stability: `stab[o] = min(own[o], min over the other members k of row[k][o])`, evaluated in batches.

*Late adoption* keeps it safe: a digest of k becomes k's row only when this member has delivered everything that k had
sent before it. Until then only the newest is kept aside. A delivered message of k acknowledges like a digest that was
sent with it (docs/protocol.md). Mostly the minimum is an intersection of bit sets, those of the last messages
(`engine.causal_past`). Rows that are digests are read only for what all these sets have in common.
"""

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import partial, reduce
from itertools import repeat
from operator import and_, itemgetter, le, or_

from crdtcast.causality.tags import Dot, Tag, Vector
from crdtcast.engine.causal_past import Pasts
from crdtcast.engine.peer import HOLD_MIN, Peer
from crdtcast.engine.store import DOT_OF, Run, Store, Stored

_DOT = itemgetter(1)


class Stability:
    """The rows of the other members and the minimum over them. vector, peers: those of the engine, read only."""

    __slots__ = (
        "_peers",
        "_vector",
        "entries",
        "held",
        "holder",
        "messages_acknowledge",
        "stable",
        "waiting",
    )

    def __init__(self, vector: dict[str, int], peers: Mapping[str, Peer], stable: Vector) -> None:
        self._vector = vector
        self._peers = peers
        self.stable: dict[str, int] = {origin: stable.get(origin, 0) for origin in vector}
        self.messages_acknowledge: bool = True  # whether those of this member itself do
        self.holder: Peer | None = None  # one whose row lacks the oldest unstable message, if known
        self.waiting: int = 0  # digests kept aside now
        self.held: int = 0  # digests that had to wait, in all
        # Entries of rows, or words of bits, looked at in all evaluations, at most.
        self.entries: int = 0

    # Rows

    def may_adopt(self, peer: Peer, vector: Vector) -> bool:
        """Late adoption."""
        return self.delivered_what_it_had_sent(peer, vector)

    def delivered_what_it_had_sent(self, peer: Peer, vector: Vector) -> bool:
        """Whether all that the peer had sent before `vector` is delivered: all else of it comes after that."""
        return self._vector[peer.incarnation] >= vector.get(peer.incarnation, 0)

    def may_count(self, peer: Peer) -> bool:
        """Whether a message of this peer acknowledges its past."""
        return peer.acknowledging

    def offer(self, peer: Peer, vector: Vector, weight: int) -> bool:
        """Take a digest's vector as the peer's row, now or later. Returns whether it is the row now.

        weight: the sum of its counters. The vectors of one incarnation are points of one history, so their weights tell
        which one is newer, and so does how much it had sent itself. One older than the known changes nothing.
        """
        sent = vector.get(peer.incarnation, 0)
        if sent < peer.sent_then:
            return False
        if sent == peer.sent_then:
            newest = peer.told if peer.aside is None else peer.aside
            if weight < peer.weight or (
                weight == peer.weight and newest is not None and len(vector) <= len(newest)
            ):
                return False
        peer.weight = weight
        peer.sent_then = sent
        if self.may_adopt(peer, vector):
            self._adopt(peer, vector)
            return True
        self.held += 1
        if peer.aside is None:
            self.waiting += 1
        peer.aside = vector
        return False

    def _adopt(self, peer: Peer, vector: Vector) -> None:
        peer.adopt(vector)
        peer.ask_delay = HOLD_MIN
        if peer.aside is not None:
            self._drop_aside(peer)

    def _drop_aside(self, peer: Peer) -> None:
        peer.aside = None
        self.waiting -= 1

    def heard(self, peer: Peer, tag: Tag, covers: int | None) -> bool:
        """A message of the peer was just delivered. Returns whether the peer's row has risen with that.

        The peer had delivered all of its past, and from then on sends only what comes after it. covers: its bits.
        """
        counted = self.may_count(peer)
        if counted:
            counter = tag.dot[1]
            if peer.sent_then < counter:
                peer.sent_then = counter
                peer.weight = 0
                if peer.aside is not None:
                    self._drop_aside(peer)
            peer.last = tag
            peer.told = None
            if covers is None:
                peer.told = peer.row  # bits do not tell
            else:
                peer.covers = covers
            peer.ask_delay = HOLD_MIN
        if peer.aside is not None and self.may_adopt(peer, peer.aside):
            self._adopt(peer, peer.aside)
            return True
        return counted

    def reconsider(self) -> None:
        """Adopt the digests that were kept aside and may be used now."""
        for peer in self._peers.values():
            if peer.aside is not None and self.may_adopt(peer, peer.aside):
                self._adopt(peer, peer.aside)

    def complete(self) -> bool:
        """Whether all members are known."""
        return True

    def completed(self, vector: Vector) -> Vector:
        """The vector with all that its sender has, named in it or not."""
        return vector

    def lacking(self, vector: Vector) -> list[str]:
        """Origins of which this member has delivered more than a peer with this vector."""
        get = self.completed(vector).get
        return [origin for origin, counter in self._vector.items() if counter > get(origin, 0)]

    def forget_rows(self) -> None:
        """A new incarnation is current: no row names it yet."""
        for peer in self._peers.values():
            peer.forget_row()
        self.waiting = 0
        self.holder = None

    def moved(self, shift: int) -> None:
        """The window of the bits has moved."""
        for peer in self._peers.values():
            peer.covers >>= shift

    # The minimum

    def evaluate(
        self, own: Vector, store: Store, pasts: Pasts, *, thoroughly: bool
    ) -> tuple[int, Iterator[Stored]] | None:
        """Raise `stable`. How many messages have become stable, and which, in delivery order; None if none has.

        own: what this member would acknowledge itself: its delivered (or durable) vector.
        thoroughly: whether to go on although a member holds back the oldest unstable message. Such a member mostly
            lacks the later ones, too, and evaluations cost more than anything else if each row makes one.
        """
        if self.waiting:
            self.reconsider()
        if not store.size or not self.complete():
            return None
        if len(self.stable) != len(self._vector):
            self.stable = {origin: self.stable.get(origin, 0) for origin in self._vector}
        if pasts.truncated:
            oldest = store.oldest(self.stable)
            pasts.truncated = oldest is not None and oldest.sequence < pasts.base
            if pasts.truncated:
                return self._by_vectors(own, store, pasts)
        if self._find_holder(store, pasts) and not thoroughly:
            return None
        risen = self._by_bits(own, store, pasts)
        if risen is not None:
            self._find_holder(store, pasts)
        return risen

    def _find_holder(self, store: Store, pasts: Pasts) -> bool:
        """Whether members hold the oldest unstable message back; then `holder` is one of them."""
        oldest = store.oldest(self.stable)
        if oldest is None:
            self.holder = None
            return False
        place = oldest.sequence - pasts.base
        bit = 1 << place if place >= 0 else 0
        origin, counter = oldest.message.dot
        holder = self.holder
        if holder is not None and holder.lacks(bit, origin, counter):
            return True
        for peer in self._peers.values():
            self.entries += 1
            if peer.lacks(bit, origin, counter):
                self.holder = peer
                return True
        self.holder = None
        return False

    def _by_bits(
        self, own: Vector, store: Store, pasts: Pasts
    ) -> tuple[int, Iterator[Stored]] | None:
        # First what all messages agree on; then digests, only for what is left; then the own durable vector.
        peers = self._peers.values()
        self.entries += len(peers)
        left = pasts.full & ~pasts.stable
        left = reduce(and_, [peer.covers for peer in peers if peer.told is None], left)
        if left and (told := [peer for peer in peers if peer.told is not None]):
            left = pasts.closed(self._told_by_all(told, left, pasts))
        if left and own is not self._vector and own != self._vector:
            left ^= _lost(own, pasts.places(left))
        if not left:
            return None
        pasts.stable |= left
        stable = self.stable
        risen = list(pasts.of_bits(left))
        stable.update(map(DOT_OF, risen))
        return len(risen), iter(risen)

    def _told_by_all(self, peers: list[Peer], left: int, pasts: Pasts) -> int:
        """Those of these bits that the digests of all these peers cover; remembered, so that each is looked up once."""
        places: list[tuple[int, Dot]] | None = None
        for peer in peers:
            if left & ~peer.covers:
                if places is None:
                    places = pasts.places(left)
                assert peer.told is not None
                self.entries += len(places)
                lost = _lost(peer.told, places)
                if lost:
                    left ^= lost
                    if not left:
                        return 0
                    places = [place for place in places if not place[0] & lost]
                peer.covers |= left
        return left

    def _by_vectors(
        self, own: Vector, store: Store, pasts: Pasts
    ) -> tuple[int, Iterator[Stored]] | None:
        # Something unstable lies before the window. The peer that left nothing over the last time comes first.
        stable, by_origin = self.stable, store.by_origin
        least = {o: own.get(o, 0) for o in by_origin}
        least = {o: n for o, n in least.items() if n > stable[o]}
        first = self.holder
        peers = list(self._peers.values())
        if first is not None and self._peers.get(first.incarnation) is first:
            peers.insert(0, first)
        for peer in peers:
            row = peer.row
            self.entries += len(least)
            if row is None:
                least = {}
            elif not all(map(le, least.values(), map(row.get, least, repeat(0)))):
                minima = map(min, least.values(), map(row.get, least, repeat(0)))
                least = {o: n for o, n in zip(least, minima, strict=True) if n > stable[o]}
            if not least:
                self.holder = peer
                return None
        least = self._closed(least, by_origin)
        if not least:
            return None
        risen = {o: range(stable[o] + 1, n + 1) for o, n in least.items()}
        for origin, counters in risen.items():
            for counter in reversed(counters):
                place = by_origin[origin].at(counter).sequence - pasts.base
                if place < 0:
                    break
                pasts.stable |= 1 << place
        stable.update(least)
        # Merged as it is taken: it may be very much at once.
        runs = [map(by_origin[o].at, counters) for o, counters in risen.items()]
        return sum(map(len, risen.values())), heapq.merge(*runs)

    def _closed(self, least: dict[str, int], by_origin: Mapping[str, Run]) -> dict[str, int]:
        """`least`, lowered until none of its messages comes after one that is neither among them nor stable.

        Nothing is lowered where digests are honest, see `Pasts.closed`. The past of a message has all that its origin
        has sent before, so it is enough to look at the last one of each origin.
        """
        stable = self.stable

        def is_open(origin: str, counter: int) -> bool:
            past = by_origin[origin].at(counter).tag.past
            return any(n > max(stable.get(o, n), least.get(o, 0)) for o, n in past.items())

        lowered = True
        while lowered:
            lowered = False
            for origin, last in list(least.items()):
                if is_open(origin, last):
                    lowered = True
                    risen = range(stable[origin] + 1, last)
                    closed = bisect_left(risen, True, key=partial(is_open, origin))
                    if closed:
                        least[origin] = risen[closed - 1]
                    else:
                        del least[origin]
        return least

    def holders(self) -> list[str]:
        """The members whose row (or absence) holds back what this one has delivered."""
        return [peer.incarnation for peer in self._peers.values() if self.holds_back(peer)]

    def holds_back(self, peer: Peer) -> bool:
        """Whether its row (or absence) holds back something that this member has delivered."""
        row = peer.row
        return row is None or any(row.get(o, 0) < n for o, n in self._vector.items())


def _lost(vector: Vector, places: Iterable[tuple[int, Dot]]) -> int:
    """The bits of those dots that the vector does not cover. places: in the order of delivery."""
    get = vector.get
    # Mostly it covers all of them, and so the last one of each origin.
    if all(map(le, (last := dict(map(_DOT, places))).values(), map(get, last, repeat(0)))):
        return 0
    return reduce(or_, [bit for bit, (origin, n) in places if get(origin, 0) < n], 0)
