"""The elements of a sequence, found by identity, by a run of identities, and by position."""

import enum
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from crdtcast.datatypes.identities import Identity
from crdtcast.datatypes.ordered import Block, CountedTree


class GoneElement(enum.Enum):
    """Takes the place of an element's value if it has none."""

    GONE = "gone"


GONE: Final = GoneElement.GONE


class Place(NamedTuple):
    """Where an unstable element hangs. `parent` None: at the beginning (to its right) or the end (to its left) of the
    sequence.
    """

    parent: Identity | None
    side: str
    stamp: int


class SequenceElement:
    """An element, or, if its value is GONE, the place of one. `kills` counts the unstable removals that hit it. Once
    its insertion is stable it has no `place`.
    """

    __slots__ = ("identity", "kills", "leaf", "place", "value")

    def __init__(self, identity: Identity, value: Any, place: Place | None) -> None:
        self.identity: tuple[str, int, int, int] = identity
        self.value: Any = value
        self.place: Place | None = place
        self.kills: int = 0
        self.leaf: Block


def age(member: SequenceElement) -> tuple[int, Identity]:
    """Sorts siblings: the newest stands next to their parent. The order extends causality."""
    assert member.place is not None
    return member.place.stamp, member.identity


class ElementIndex(CountedTree[SequenceElement]):
    """Live members have positions; dead ones stand between them without."""

    __slots__ = ()

    def counts(self, item: SequenceElement) -> bool:
        return item.value is not GONE

    def moved(self, item: SequenceElement, leaf: Block) -> None:
        item.leaf = leaf


class Elements:
    """Members by identity. A run costs as much as it has members, whatever length it claims."""

    __slots__ = ("_gone", "_members", "_numbers")

    def __init__(self) -> None:
        self._members: dict[Identity, SequenceElement] = {}
        # Of an insertion of several elements: their numbers, rising, and how many of them are gone.
        self._numbers: dict[tuple[Any, ...], list[int]] = {}
        self._gone: dict[tuple[Any, ...], int] = {}

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, identity: Identity) -> bool:
        return identity in self._members

    def __getitem__(self, identity: Identity) -> SequenceElement:
        return self._members[identity]

    def get(self, identity: Identity) -> SequenceElement | None:
        return self._members.get(identity)

    def add(self, member: SequenceElement) -> None:
        """Add a member. Raises ValueError if there is one of that identity."""
        identity = member.identity
        if identity in self._members:
            raise ValueError(f"two elements have the identity {list(identity)}")
        self._members[identity] = member
        insertion, number = identity[:3], identity[3]
        numbers = self._numbers.get(insertion)
        if numbers is not None:
            insort(numbers, number)
        elif number:
            first = (*insertion, 0)
            self._numbers[insertion] = [0, number] if first in self._members else [number]

    def remove(self, member: SequenceElement) -> None:
        del self._members[member.identity]
        insertion = member.identity[:3]
        numbers = self._numbers.get(insertion)
        if numbers is None:
            return
        gone = self._gone.get(insertion, 0) + 1
        if 2 * gone < len(numbers):
            self._gone[insertion] = gone
            return
        self._gone.pop(insertion, None)
        left = [number for number in numbers if (*insertion, number) in self._members]
        if left:
            self._numbers[insertion] = left
        else:
            del self._numbers[insertion]

    def within(self, run: Sequence[Any]) -> Iterator[SequenceElement]:
        """The members of a run [origin, counter, index, first number, how many]."""
        *insertion, first, count = run
        numbers = self._numbers.get((*insertion,), [0])
        for at in range(bisect_left(numbers, first), len(numbers)):
            if numbers[at] >= first + count:
                return
            member = self._members.get((*insertion, numbers[at]))
            if member is not None:
                yield member
