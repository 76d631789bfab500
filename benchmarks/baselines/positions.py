"""Vectors as in the literature: one counter for each member of a fixed group, at the same position everywhere."""

from collections.abc import Iterator, Mapping, Sequence

from crdtcast.exceptions import ConfigurationError


class BaselinePositions:
    """The members in the order of their ids, and the position of each. `own` is the position of `me`.

    Raises ConfigurationError unless `members` are two or more different ids with `me` among them.
    """

    __slots__ = ("members", "of", "own")

    def __init__(self, me: str, members: Sequence[str]) -> None:
        self.members: tuple[str, ...] = tuple(sorted(members))
        self.of: dict[str, int] = {member: position for position, member in enumerate(self.members)}
        if len(self.of) != len(self.members) or len(self.of) < 2 or me not in self.of:
            raise ConfigurationError(
                f"{me} cannot be in a group of {', '.join(self.members) or 'no members'}: give "
                "every member the same list of two or more different ids, including its own"
            )
        self.own: int = self.of[me]


class VectorView(Mapping[str, int]):
    """Counters by position as a vector by origin, without a copy.

    less: the position whose counter is reduced by one, since a message is not in its own past; or -1.
    """

    __slots__ = ("_less", "_positions", "counters")

    def __init__(
        self, positions: BaselinePositions, counters: Sequence[int], less: int = -1
    ) -> None:
        self._positions = positions
        self.counters: Sequence[int] = counters
        self._less = less

    def __getitem__(self, origin: str) -> int:
        position = self._positions.of[origin]
        counter = self.counters[position]
        return counter - 1 if position == self._less else counter

    def __iter__(self) -> Iterator[str]:
        return iter(self._positions.members)

    def __len__(self) -> int:
        return len(self._positions.members)

    def __repr__(self) -> str:
        return repr(dict(self))
