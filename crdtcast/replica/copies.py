"""The dots and indices under which own operations were sent again after an eviction.

The dots are parked (`crdtcast.engine.reissue`). Indices stay the same, unless an earlier operation in the message has
yielded or became several ones: then the copy says for each of its operations which one it stands for.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from crdtcast.causality.tags import Dot

Sources: TypeAlias = tuple[int, ...]
"""For each operation of a copy, the index of the one that it stands for in the first message."""


class Copies:
    """The sources that the copies of one member's messages give."""

    def __init__(self) -> None:
        self._sources: dict[Dot, Sources] = {}

    def __bool__(self) -> bool:
        return bool(self._sources)

    def delivered(self, dot: Dot, sources: Sequence[Any]) -> None:
        """Note the sources of an own message, one for each operation. Invalid ones are ignored."""
        if all(type(source) is int for source in sources):
            self._sources[dot] = tuple(sources)

    def forget(self) -> None:
        """Forget the sources: all that was sent again is stable."""
        self._sources.clear()

    def source(self, dot: Dot, index: int) -> int:
        """The operation of the first message that operation `index` of a copy stands for; -1 if there is none."""
        sources = self._sources.get(dot)
        if sources is None:
            return index
        return sources[index] if index < len(sources) else -1

    def index(self, dot: Dot, source: int) -> int | None:
        """The index of that operation of the first message in a copy: the first of several; None if it has yielded."""
        sources = self._sources.get(dot)
        if sources is None:
            return source
        return sources.index(source) if source in sources else None

    def packed(self) -> list[Any]:
        """The data for `load`."""
        return [[*dot, list(sources)] for dot, sources in sorted(self._sources.items())]

    def load(self, packed: Iterable[Any]) -> None:
        """Continue from what a former life of this member has packed."""
        for origin, counter, sources in packed:
            self._sources[Dot(origin, counter)] = tuple(sources)


class Renaming:
    """New dots and indices for the old ones by which own operations name each other.

    parked: first dot -> dots of the copies, at construction; `renamed` gets the current ones.
    """

    def __init__(self, copies: Copies, parked: Mapping[Dot, Sequence[Dot]]) -> None:
        self._copies = copies
        self._firsts = {copy: first for first, dots in parked.items() for copy in dots}

    def renamed(
        self, parked: Mapping[Dot, Sequence[Dot]], dot: Dot, index: int
    ) -> tuple[Dot, int] | None:
        """The place of operation `index` of an own message now; None if it was not sent again."""
        first = self._firsts.get(dot, dot)
        source = index if first == dot else self._copies.source(dot, index)
        dots = parked.get(first)
        if not dots:
            return None
        found = self._copies.index(dots[-1], source)
        return None if found is None else (dots[-1], found)
