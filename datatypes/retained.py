"""The retained log: the last operations of an object with their tags, even after they are stable.

Rule: the *floor* is an object in the state before the oldest retained step. It follows step by step, stability
included; so any state since then can be computed.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from crdtcast.causality.tags import Tag, Vector


class Followed(Protocol):
    """What the floor needs."""

    def effect(self, operation: Sequence[Any], tag: Tag, index: int = 0) -> None: ...
    def stable(self, tag: Tag) -> None: ...


F = TypeVar("F", bound=Followed)


@dataclass(frozen=True, slots=True)
class RetainedStep:
    """A delivery, or, without an operation, the notice that a message is stable."""

    tag: Tag
    index: int
    operation: Sequence[Any] | None

    def take(self, target: Followed) -> None:
        if self.operation is None:
            target.stable(self.tag)
        else:
            target.effect(self.operation, self.tag, self.index)


class Retained(Generic[F]):
    """The steps of the last `most` operations. `floor` has the older ones; `vector` covers its deliveries."""

    __slots__ = ("_steps", "floor", "most", "operations", "vector")

    def __init__(self, most: int, floor: F, vector: Vector | None = None) -> None:
        if most < 1:
            raise ValueError(f"invalid retain={most}: give the number of operations to retain")
        self.most: int = most
        self.floor: F = floor
        self.vector: dict[str, int] = dict(vector or {})
        self.operations: int = 0
        self._steps: deque[RetainedStep] = deque()

    def __iter__(self) -> Iterator[RetainedStep]:
        return iter(self._steps)

    def delivered(self, operation: Sequence[Any], tag: Tag, index: int) -> None:
        self._steps.append(RetainedStep(tag, index, operation))
        self.operations += 1
        while self.operations > self.most:
            self._lower()

    def stable(self, tag: Tag) -> None:
        if self._steps:
            self._steps.append(RetainedStep(tag, 0, None))
        else:
            self.floor.stable(tag)

    def _lower(self) -> None:
        """Apply the oldest operation to the floor, with the stability notices right after it."""
        oldest = self._steps.popleft()
        self.operations -= 1
        oldest.take(self.floor)
        self.vector[oldest.tag.dot.origin] = oldest.tag.dot.counter
        while self._steps and self._steps[0].operation is None:
            self._steps.popleft().take(self.floor)
