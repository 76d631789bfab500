"""The exact past of a message, from its reduced context and the order of delivery here; a vector only if asked for.

A vector for every message would cost the number of members in time and in memory, each time. So a past is kept as what
it lacks: everything delivered here before the message, except some recent messages, one bit each. These bits are the
intersection of what the messages of the context lack. Two facts make that exact: a dot of the context that is not
stable is still stored, and what is stable here lies in the past of everything delivered later. A past that lacks
messages from far back (at the end of a partition) is kept as a vector instead.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

from crdtcast.engine.store import Store, Stored
from crdtcast.tags import Dot, Vector, merge_into

SEGMENT = 16
"""Messages between two saved vectors: a past that is asked for starts from the last one."""

FAR = 2048
"""How many places back in the order of delivery the bits reach."""


class Segment:
    """A stretch of the order of delivery: the vector before it, the number of its first message, its dots."""

    __slots__ = ("base", "dots", "first")

    def __init__(self, first: int, base: dict[str, int]) -> None:
        self.first = first
        self.base = base
        self.dots: list[Dot] = []


class Past(Mapping[str, int]):
    """A vector that is worked out when it is first looked into. It keeps alive only the few segments it needs."""

    __slots__ = ("_floor", "_missing", "_segments", "_sequence", "_vector")

    def __init__(
        self,
        sequence: int,
        missing: int,
        floor: Vector,
        segments: tuple[Segment, ...],
        vector: dict[str, int] | None = None,
    ) -> None:
        self._sequence = sequence
        self._missing = missing
        self._floor = floor
        self._segments = segments
        self._vector = vector

    def vector(self) -> dict[str, int]:
        """The past as a dictionary. To be read only."""
        vector = self._vector
        if vector is None:
            vector = self._vector = self._work_out()
            self._segments = ()
            self._floor = {}
        return vector

    def _work_out(self) -> dict[str, int]:
        segments, place = self._segments, self._sequence
        index = len(segments) - 1
        vector = segments[index].base.copy()
        for origin, counter in islice(segments[index].dots, place - segments[index].first):
            vector[origin] = counter
        missing, floor = self._missing, self._floor
        while missing:
            # The nearest one first, so that the earliest one of an origin has the last word.
            step = (missing & -missing).bit_length()
            missing >>= step
            place -= step
            while place < segments[index].first:
                index -= 1
            origin, counter = segments[index].dots[place - segments[index].first]
            if counter > floor.get(
                origin, 0
            ):  # else it was stable: no bit is needed to know that it is in
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
    """The order of delivery at one member, and the pasts that follow from it."""

    __slots__ = ("_delivered", "_forgotten", "_forgotten_at", "_recent", "_segment", "_store")

    def __init__(self, store: Store, delivered: Vector) -> None:
        self._store = store
        self._delivered = dict(delivered)
        self._segment = Segment(store.sequence + 1, dict(delivered))
        self._recent = [self._segment]
        # Dropped origins are in every past, though `stable` names them no more. What is stored may still lack them.
        self._forgotten: dict[str, int] = {}
        self._forgotten_at = 0

    def record(self, dot: Dot) -> None:
        """`dot` was delivered (or sent) just now."""
        segment = self._segment
        if len(segment.dots) == SEGMENT:
            segment = self._segment = Segment(segment.first + SEGMENT, self._delivered.copy())
            self._recent.append(segment)
            if len(self._recent) > 2 * (FAR // SEGMENT + 2):
                del self._recent[: -(FAR // SEGMENT + 2)]
        segment.dots.append(dot)
        self._delivered[dot[0]] = dot[1]

    def forget(self, origin: str) -> None:
        """An incarnation was dropped: everything of it is before whatever comes."""
        self._forgotten[origin] = self._delivered.pop(origin, 0)
        self._forgotten_at = self._store.sequence

    def rest(self) -> None:
        """Nothing is unstable, so no later message lacks anything delivered so far: begin anew."""
        if len(self._recent) > 1:
            self._segment = Segment(self._store.sequence + 1, dict(self._delivered))
            self._recent = [self._segment]
            self._forgotten.clear()

    def everything(self) -> Past:
        """All that was delivered or sent here."""
        return Past(self._store.sequence + 1, 0, {}, (self._segment,))

    def of(self, context: tuple[Dot, ...], stable: dict[str, int]) -> tuple[Past, int | None]:
        """The past of a message with this context, all of it delivered here, and what it lacks (None: too much)."""
        store = self._store
        sequence = store.sequence + 1
        by_origin = store.by_origin
        missing = -1
        for origin, counter in context:
            by_counter = by_origin.get(origin)
            if by_counter is None:
                continue
            stored = by_counter.get(counter)
            if stored is None:
                continue
            lacks = stored[4]
            if lacks is None:
                return self._from_vectors(context, stable)
            distance = sequence - stored[0]
            if missing < 0 or missing.bit_length() >= distance:
                # What it lacks, moved to this message's place, and whatever was delivered after it.
                missing &= (lacks << distance) | ((1 << distance - 1) - 1)
        if not missing:
            return Past(sequence, 0, {}, (self._segment,)), 0
        oldest = store.oldest(stable)
        if oldest is None:
            return Past(sequence, 0, {}, (self._segment,)), 0
        reach = sequence - oldest[0]
        if reach > FAR and (missing < 0 or missing.bit_length() > FAR):
            return self._from_vectors(context, stable)
        missing &= (1 << reach) - 1  # what lies before the oldest unstable message is stable
        if self._forgotten:
            stable = self._with_forgotten(stable, oldest)
        return self._past(sequence, missing, stable), missing

    def _with_forgotten(self, stable: dict[str, int], oldest: Stored | None) -> dict[str, int]:
        if oldest is None or oldest.sequence > self._forgotten_at:
            self._forgotten.clear()  # nothing that is stored can lack them
        return {**stable, **self._forgotten}

    def _past(self, sequence: int, missing: int, stable: dict[str, int]) -> Past:
        segment = self._segment
        first = sequence - missing.bit_length()
        if first >= segment.first:
            return Past(sequence, missing, stable, (segment,))
        needed = (segment.first - first + SEGMENT - 1) // SEGMENT + 1
        return Past(sequence, missing, stable, tuple(self._recent[-needed:]))

    def _from_vectors(
        self, context: tuple[Dot, ...], stable: dict[str, int]
    ) -> tuple[Past, int | None]:
        if self._forgotten:
            stable = self._with_forgotten(stable, self._store.oldest(stable))
        vector = stable.copy()
        for origin, counter in context:
            stored = self._store.get(origin, counter)
            if stored is not None:
                past = stored.tag.past
                merge_into(vector, past.vector() if isinstance(past, Past) else past)
                if vector.get(origin, 0) < counter:
                    vector[origin] = counter
        return self.explicit(vector, stable)

    def explicit(self, vector: dict[str, int], stable: dict[str, int]) -> tuple[Past, int | None]:
        """The past that this vector says, which covers all that is stable; and what it lacks (None: too much)."""
        sequence = self._store.sequence + 1
        missing = 0
        for origin, delivered in self._delivered.items():
            first = vector.get(origin, 0) + 1
            if first > delivered:
                continue
            by_counter = self._store.by_origin.get(origin, {})
            earliest = by_counter.get(first)
            if earliest is None or sequence - earliest.sequence > FAR:
                return Past(sequence, 0, {}, (), vector), None
            for counter in range(first, delivered + 1):
                missing |= 1 << sequence - by_counter[counter].sequence - 1
        return self._past(sequence, missing, stable), missing
