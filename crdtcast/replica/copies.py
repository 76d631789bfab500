"""Under which dots and indices own operations were sent again after an eviction.

The dots are parked (`crdtcast.engine.reissue`). Indices stay what they were, unless an operation before it in the
message has yielded, or has become several: then the copy says itself which operation each of its own stands for.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from crdtcast.causality.tags import Dot

Sources: TypeAlias = tuple[int, ...]
"""Of each operation of a copy, the index of the one it stands for in the first message."""


class Copies:
    """What the copies of one member's messages say of themselves."""

    def __init__(self) -> None:
        self._sources: dict[Dot, Sources] = {}

    def __bool__(self) -> bool:
        return bool(self._sources)

    def delivered(self, dot: Dot, sources: Sequence[Any]) -> None:
        """An own message says this, for each of its operations. What makes no sense is passed over."""
        if all(type(source) is int for source in sources):
            self._sources[dot] = tuple(sources)

    def forget(self) -> None:
        """All that was sent again is stable."""
        self._sources.clear()

    def source(self, dot: Dot, index: int) -> int:
        """Which operation of the first message operation `index` of a copy stands for; -1 if there is none."""
        sources = self._sources.get(dot)
        if sources is None:
            return index
        return sources[index] if index < len(sources) else -1

    def index(self, dot: Dot, source: int) -> int | None:
        """Where a copy has that operation of the first message: the first of several; None if it has yielded."""
        sources = self._sources.get(dot)
        if sources is None:
            return source
        return sources.index(source) if source in sources else None

    def packed(self) -> list[Any]:
        """For `load`."""
        return [[*dot, list(sources)] for dot, sources in sorted(self._sources.items())]

    def load(self, packed: Iterable[Any]) -> None:
        """Go on from what a former life of this member has packed."""
        for origin, counter, sources in packed:
            self._sources[Dot(origin, counter)] = tuple(sources)


class Renaming:
    """New dots and indices for those by which own operations name each other.

    parked: first dot -> dots of the copies, as it is when this is made; `renamed` is given what it is by then.
    """

    def __init__(self, copies: Copies, parked: Mapping[Dot, Sequence[Dot]]) -> None:
        self._copies = copies
        self._firsts = {copy: first for first, dots in parked.items() for copy in dots}

    def renamed(
        self, parked: Mapping[Dot, Sequence[Dot]], dot: Dot, index: int
    ) -> tuple[Dot, int] | None:
        """Where operation `index` of an own message is now; None if it was not sent again."""
        first = self._firsts.get(dot, dot)
        source = index if first == dot else self._copies.source(dot, index)
        dots = parked.get(first)
        if not dots:
            return None
        found = self._copies.index(dots[-1], source)
        return None if found is None else (dots[-1], found)
