"""The exact past of a message, from its reduced context and the local order of delivery; a vector only on request.

A vector per message would cost time and memory proportional to the number of members. So a message is kept as the set
of what it *covers*, itself and its past: one bit for each message in a window of the order of delivery. A past is the
union of what the messages of its context cover, and of what is stable at this member, since that precedes everything
delivered later. The window begins at the oldest unstable message, or FAR places back at most. A past that lacks
something from before the window (at the end of a partition) is kept as a vector instead.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from itertools import compress, count, islice, repeat
from operator import lshift, or_

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Vector, merge_into
from crdtcast.engine.store import DOT_OF, Store, Stored

SEGMENT = 16
"""Messages between two saved vectors: a past is computed from the last one before it."""

FAR = 2048
"""Places back in the order of delivery that the bits reach at least, if something there is unstable."""

SLACK = 256
"""The window moves when it has grown by at least so many messages."""

_TRUTH = bytes(byte == ord("1") for byte in range(256))


class Segment:
    """A stretch of the order of delivery: the vector before it, the number of its first message, its dots."""

    __slots__ = ("base", "dots", "first")

    def __init__(self, first: int, base: dict[str, int]) -> None:
        self.first: int = first
        self.base: dict[str, int] = base
        self.dots: list[Dot] = []


class Past(Mapping[str, int]):
    """A vector that is computed on first access. It keeps alive only the few segments that it needs.

    sequence: the place of the message.
    lacks: bits of what was delivered before the message and is not in its past, from place `first` on.
    """

    __slots__ = ("_first", "_lacks", "_segments", "_sequence", "_vector")

    def __init__(
        self,
        sequence: int,
        first: int,
        lacks: int,
        segments: tuple[Segment, ...],
        vector: dict[str, int] | None = None,
    ) -> None:
        self._sequence = sequence
        self._first = first
        self._lacks = lacks
        self._segments = segments
        self._vector = vector

    def vector(self) -> dict[str, int]:
        """The past as a dictionary. To be read only."""
        vector = self._vector
        if vector is None:
            vector = self._vector = self._work_out()
            self._segments = ()
        return vector

    def _work_out(self) -> dict[str, int]:
        segments = self._segments
        index = len(segments) - 1
        vector = segments[index].base.copy()
        for origin, counter in islice(segments[index].dots, self._sequence - segments[index].first):
            vector[origin] = counter
        lacks = self._lacks
        while lacks:
            # The nearest one first, so that the earliest one of an origin is written last.
            bit = lacks.bit_length() - 1
            lacks ^= 1 << bit
            place = self._first + bit
            while place < segments[index].first:
                index -= 1
            origin, counter = segments[index].dots[place - segments[index].first]
            vector[origin] = counter - 1
        return vector

    def __getitem__(self, origin: str) -> int:
        return self.vector()[origin]

    def get(self, origin: str, default: int = 0) -> int:  # type: ignore[override]
        """The counter of `origin`; `default` if it has none."""
        vector = self._vector
        return (self.vector() if vector is None else vector).get(origin, default)

    def __iter__(self) -> Iterator[str]:
        return iter(self.vector())

    def __len__(self) -> int:
        return len(self.vector())

    def __repr__(self) -> str:
        return repr(self.vector())


class Pasts:
    """The order of delivery at one member, and the pasts that follow from it. Bit 0 is the message at place `base`.

    covers: what each message of the window covers, itself included; None if it lacks something from before the window.
    full, stable: a bit for every message of the window, and for those that are stable at this member.
    heads: bits of those that no delivered message comes after: the reduced context.
    """

    __slots__ = (
        "_context",
        "_delivered",
        "_forgotten",
        "_forgotten_at",
        "_recent",
        "_segment",
        "_span",
        "_store",
        "base",
        "covers",
        "full",
        "heads",
        "limit",
        "old_heads",
        "stable",
        "truncated",
        "window",
    )

    def __init__(self, store: Store, delivered: Vector) -> None:
        self._store = store
        self._delivered = dict(delivered)
        self._segment = Segment(store.sequence + 1, dict(delivered))
        self._recent = [self._segment]
        self._span: tuple[Segment, ...] = ()  # the segments that the last past needed
        self.base: int = store.sequence + 1
        self.window: list[Stored] = []
        self.covers: dict[Dot, int | None] = {}
        self.full: int = 0
        self.stable: int = 0
        self.heads: int = 0
        self.old_heads: dict[Dot, None] = {}  # from before the window
        self._context: tuple[Dot, ...] | None = None  # as long as no heads come or go
        self.limit: int = 0  # size of the window at which it moves
        self.truncated: bool = False  # whether something before the window may be unstable
        # Dropped origins are in every past, though `stable` no longer names them. What is stored may still lack them.
        self._forgotten: dict[str, int] = {}
        self._forgotten_at = 0

    # The order of delivery

    def record(self, stored: Stored, known: int | None) -> int | None:
        """Record a message just delivered (or sent) and stored. known: the bits of its past. Returns what it covers."""
        message = stored[2]
        dot = message.dot
        segment = self._segment
        if len(segment.dots) >= SEGMENT:
            segment = self._segment = Segment(
                segment.first + len(segment.dots), self._delivered.copy()
            )
            self._recent.append(segment)
        segment.dots.append(dot)
        self._delivered[dot[0]] = dot[1]
        full = self.full
        bit = full + 1
        self.full = full | bit
        self.window.append(stored)
        if known is None:
            self._context = None
            for depended in message.context:
                self._no_head(depended)
            self.heads |= bit
            self.covers[dot] = None
            return None
        if self.old_heads:
            if self.truncated:
                for depended in message.context:
                    self.old_heads.pop(depended, None)
            else:
                self.old_heads.clear()  # stable, and so before this one
        heads = self.heads
        self.heads = heads = heads ^ (heads & known) | bit
        self._context = (dot,) if heads == bit and not self.old_heads else None
        covers = self.covers[dot] = known | bit
        return covers

    def _no_head(self, dot: Dot) -> None:
        self.old_heads.pop(dot, None)
        stored = self._store.get(*dot)
        if stored is not None and stored.sequence >= self.base:
            self.heads &= ~(1 << stored.sequence - self.base)

    def restore_heads(self, context: Iterable[Dot]) -> None:
        """Restore the saved reduced context after a restart; it need not be in the window."""
        self.heads = 0
        self.old_heads.clear()
        self._context = None
        for dot in context:
            stored = self._store.get(*dot)
            if stored is not None and stored.sequence >= self.base:
                self.heads |= 1 << stored.sequence - self.base
            else:
                self.old_heads[dot] = None

    def context(self) -> tuple[Dot, ...]:
        """The reduced context: the maximal dots, in the order of delivery."""
        if self._context is not None:
            return self._context
        heads, window = self.heads, self.window
        dots = []
        while heads:  # mostly few, and at the end of a long window
            place = heads.bit_length() - 1
            heads ^= 1 << place
            dots.append(window[place][2].dot)
        context = self._context = (*self.old_heads, *dots[::-1])
        return context

    def is_context(self, context: tuple[Dot, ...]) -> bool:
        """Whether this is known to be the reduced context, so that a message with it comes after everything."""
        return context == self._context

    def reorder(self, context: tuple[Dot, ...]) -> None:
        """List the maximal dots in this order, until others are maximal."""
        self._context = context

    def of_bits(self, bits: int) -> Iterable[Stored]:
        """The messages of these bits, in the order of delivery."""
        if not bits:
            return ()
        low = (bits & -bits).bit_length() - 1
        window = self.window if not low else islice(self.window, low, None)
        return compress(window, bin(bits >> low)[:1:-1].encode().translate(_TRUTH))

    def places(self, bits: int) -> list[tuple[int, Dot]]:
        """The bit and the dot of each of these messages, in the order of delivery."""
        if not bits:
            return []
        low = (bits & -bits).bit_length() - 1
        marks = bin(bits >> low)[:1:-1].encode().translate(_TRUTH)
        each = map(lshift, repeat(1), compress(count(low), marks))
        return list(zip(each, map(DOT_OF, self.of_bits(bits)), strict=True))

    def closed(self, bits: int) -> int:
        """Those of these bits whose messages cover only others of them, and stable ones.

        With honest digests that is all of them. A false one may have named a message without its past.
        """
        covers, known = self.covers, bits | self.stable
        covered = map(covers.__getitem__, map(DOT_OF, self.of_bits(bits)))
        if not reduce(or_, filter(None, covered), 0) & ~known:
            return bits
        for bit, dot in self.places(bits):
            if (covers[dot] or 0) & ~known:
                bits ^= bit
                known ^= bit
        return bits

    def forget(self, origin: str) -> None:
        """An incarnation was dropped: all of it precedes everything that comes later."""
        self._forgotten[origin] = self._delivered.pop(origin, 0)
        self._forgotten_at = self._store.sequence

    def mark_stable(self, sequence: int) -> None:
        """The message at this place is stable at this member."""
        place = sequence - self.base
        if place >= 0:
            self.stable |= 1 << place

    @property
    def overfull(self) -> bool:
        """Whether the window has to move."""
        return len(self.window) > self.limit

    def covered_at_least(self, vector: Vector) -> int:
        """Bits of some of what a vector covers, from its last keys backwards: honest senders put the maximal dots last.

        It stops at a key that adds nothing.
        """
        covers, covered = self.covers, 0
        for dot in reversed(vector.items()):  # type: ignore[call-overload]
            bits = covers.get(dot)
            if bits:
                before = covered
                covered |= bits
                if covered == before:
                    break
        return covered

    def move(self, stable: Vector) -> int:
        """Let the window begin at the oldest unstable message, or FAR places back. Returns how far it moved."""
        store = self._store
        end = self.base + len(self.window)
        oldest = store.oldest(stable)
        first_unstable = end if oldest is None else oldest.sequence
        base = max(self.base, min(first_unstable, end), end - FAR)
        self.truncated = first_unstable < base
        # While a member is silent it moves in small steps: those of FAR take milliseconds each, and save nothing.
        self.limit = end - base + min(SLACK if self.truncated else FAR, max(SLACK, end - base))
        shift = base - self.base
        if shift <= 0:
            return 0
        window, covers = self.window, self.covers
        for stored in self.of_bits(self.heads & (1 << shift) - 1):
            self.old_heads[stored.message.dot] = None
        for stored in window[:shift]:
            del covers[stored.message.dot]
        del window[:shift]
        before = (1 << shift) - 1
        lost = before ^ (before & self.stable)
        for dot, bits in covers.items():
            if bits is not None:
                covers[dot] = bits >> shift if bits & lost == lost else None
        self.base = base
        self.full >>= shift
        self.stable >>= shift
        self.heads >>= shift
        recent = self._recent
        unneeded = 0
        while unneeded + 1 < len(recent) and recent[unneeded + 1].first <= base:
            unneeded += 1
        del recent[:unneeded]
        if not window:
            self._segment = Segment(end, dict(self._delivered))
            self._recent = [self._segment]
            self._span = ()
            self._forgotten.clear()
        return shift

    # Pasts

    def everything(self) -> Past:
        """All that this member has delivered or sent."""
        return Past(self._store.sequence + 1, 0, 0, (self._segment,))

    def known(self, context: tuple[Dot, ...]) -> int | None:
        """What the messages of a delivered context cover together; None if the bits cannot tell."""
        covers, known = self.covers, 0
        for dot in context:
            # What is not in the window is stable, or covered by each message that has bits.
            bits = covers.get(dot, 0)
            if bits is None:
                return None
            known |= bits
        return None if self.truncated and not known else known

    def before(self, message: Message, stable: Vector) -> tuple[Past, int | None]:
        """The past of a message that could be delivered now, and its bits (None if it lacks something before them).

        All earlier messages of its sender are in it, even if its context denies that.
        """
        origin, counter = message.dot
        context = message.context
        if counter > 1 and (before := (origin, counter - 1)) not in context:
            context = (*context, Dot(*before))
        return self.of(context, self.known(context), stable)

    def of(
        self, context: tuple[Dot, ...], known: int | None, stable: Vector
    ) -> tuple[Past, int | None]:
        """The past of a message that was just delivered, and its bits (None if it lacks something before them).

        known: what its context covers, see the method of that name.
        """
        if known is None:
            return self._from_vectors(context, stable)
        known |= self.stable
        return self._past(known), known

    def _past(self, known: int) -> Past:
        sequence = self.base + len(self.window)
        # `known` has no bits beyond `full`; `& ~known` would make negative numbers, which take several times as long.
        lacks = self.full ^ known
        segment = self._segment
        if not lacks:
            return Past(sequence, 0, 0, (segment,))
        low = (lacks ^ lacks - 1).bit_length() - 1
        first = self.base + low
        if first >= segment.first:
            return Past(sequence, first, lacks >> low, (segment,))
        needed = 1 - (first - segment.first) // SEGMENT
        span = self._span
        if len(span) != needed or span[-1] is not segment:
            span = self._span = tuple(self._recent[-needed:])
        return Past(sequence, first, lacks >> low, span)

    def _from_vectors(self, context: tuple[Dot, ...], stable: Vector) -> tuple[Past, int | None]:
        store = self._store
        vector = dict(stable)
        if self._forgotten:
            oldest = store.oldest(stable)
            if oldest is None or oldest.sequence > self._forgotten_at:
                self._forgotten.clear()  # nothing that is stored can lack them
            vector.update(self._forgotten)
        for origin, counter in context:
            stored = store.get(origin, counter)
            if stored is not None:
                past = stored.tag.past
                merge_into(vector, past.vector() if isinstance(past, Past) else past)
                if vector.get(origin, 0) < counter:
                    vector[origin] = counter
        return self.explicit(vector)

    def explicit(self, vector: dict[str, int]) -> tuple[Past, int | None]:
        """The past of this vector, which covers all that is stable; and its bits (None if it lacks earlier ones)."""
        lacks = 0
        for origin, delivered in self._delivered.items():
            first = vector.get(origin, 0) + 1
            if first > delivered:
                continue
            run = self._store.by_origin.get(origin)
            earliest = None if run is None else run.get(first)
            if run is None or earliest is None or earliest.sequence < self.base:
                return Past(self.base + len(self.window), 0, 0, (), vector), None
            for counter in range(first, delivered + 1):
                lacks |= 1 << run.at(counter).sequence - self.base
        known = self.full & ~lacks
        return self._past(known), known
