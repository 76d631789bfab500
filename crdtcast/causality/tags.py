"""Dots, vectors and tags: the causal vocabulary of all other modules. This file knows no messages and no network.

A *dot* names a message by the incarnation that sent it and a counter from 1 without gaps. A *vector* maps an origin to
the highest counter of a downward-closed set of dots. A *tag* is what the application gets with a payload: it answers
"before or concurrent" exactly (end-to-end happens-before, Younes 2023, chapter 3).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from operator import ge
from typing import Any, Final, NamedTuple

Vector = Mapping[str, int]
"""Origin -> highest counter. An absent origin counts as 0."""
MAX_COUNTER: Final = 2**63 - 1

make_tuple: Final[Callable[..., Any]] = tuple.__new__
"""Makes a named tuple, `make_tuple(Dot, (origin, counter))`, in a third of the time of a call of its class. For types
with one value per message, effect or commit.
"""


class Dot(NamedTuple):
    """Identity of one message: `origin` is an incarnation id, `counter` runs 1, 2, 3, … without gaps."""

    origin: str
    counter: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.counter}"


def covers(vector: Vector, dot: Dot) -> bool:
    """Whether the downward-closed set that `vector` stands for contains `dot`."""
    return vector.get(dot.origin, 0) >= dot.counter


def merge_into(vector: dict[str, int], other: Vector) -> None:
    """Raise `vector`, in place, to the least upper bound of both."""
    for origin, counter in other.items():
        if counter > vector.get(origin, 0):
            vector[origin] = counter


def dominates(larger: Vector, smaller: Vector) -> bool:
    """Whether every dot under `smaller` lies under `larger`, too."""
    return all(map(ge, map(larger.get, smaller, repeat(0)), smaller.values()))


@dataclass(slots=True, eq=False)
class Tag:
    """What the middleware knows of one message, fixed by its sender at the moment of sending. Read only.

    `context` is the reduced context, the direct causal dependencies: the maximal dots that the sender had delivered or
    sent, at most one an origin. `past` is the full vector of the message's causal past, without the message itself; two
    tags are compared by one look-up in it. `a < b` says that a happened before b; `a.concurrent(b)` says that neither
    happened before the other. Tags are equal, and hash alike, when their dots are equal.
    """

    dot: Dot
    context: tuple[Dot, ...] = ()
    past: Vector = field(default_factory=dict)

    def __lt__(self, other: "Tag") -> bool:
        return other.past.get(self.dot.origin, 0) >= self.dot.counter

    def concurrent(self, other: "Tag") -> bool:
        """Whether neither message happened before the other, and they are not the same message."""
        return self.dot != other.dot and not self < other and not other < self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tag) and self.dot == other.dot

    def __hash__(self) -> int:
        return hash(self.dot)

    def __str__(self) -> str:
        return f"{self.dot} after {{{', '.join(sorted(map(str, self.context)))}}}"
