"""Runs vectors: every causal delivery order of the events must give the expected value at every replica.

Each order is run twice: with no stability, and with stability as early as its definition allows. Orders are the linear
extensions of the causal order; there can be factorially many, so at most MAX_ORDERS are run.
"""

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

from crdtcast.causality.hlc import HLC
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import PureOpCRDT, Site
from crdtcast.datatypes.canonical import canonical
from crdtcast.exceptions import InvalidOperationError
from crdtcast.testing.vectors.format import Vector
from crdtcast.testing.vectors.nested_types import NESTED_TYPES
from crdtcast.testing.vectors.types import SIMPLE_TYPES, VectorType

MAX_ORDERS: Final = 5040
"""Most orders run for one vector, or one view of it (7!: all orders of seven concurrent events)."""


VECTOR_TYPES: Final[Mapping[str, VectorType]] = {**SIMPLE_TYPES, **NESTED_TYPES}


class VectorOutcome(enum.Enum):
    PASSED = "pass"
    FAILED = "fail"
    UNSUPPORTED = "not supported yet"


@dataclass(frozen=True, slots=True)
class VectorResult:
    """The result of a vector. `detail`: the difference, or what is missing; `orders`: how many were run."""

    vector: Vector
    outcome: VectorOutcome
    detail: str = ""
    orders: int = 0
    capped: bool = False


@dataclass(frozen=True, slots=True)
class _Step:
    """An accepted event, ready for delivery."""

    position: int
    tag: Tag
    operation: list[Any]


class _Difference(Exception):
    """A vector failed; the message says how."""


def run_vector(vector: Vector, types: Mapping[str, VectorType] = VECTOR_TYPES) -> VectorResult:
    """Run one vector with the type that `types` has for it."""
    mapped = types.get(vector.type)
    if mapped is None:
        return VectorResult(vector, VectorOutcome.UNSUPPORTED, f"type {vector.type}")
    missing = sorted({event.op for event in vector.events} - set(mapped.operations))
    if missing:
        return VectorResult(vector, VectorOutcome.UNSUPPORTED, f"operation {', '.join(missing)}")
    run = _Run(vector, mapped)
    try:
        run.all()
    except _Difference as difference:
        return VectorResult(vector, VectorOutcome.FAILED, str(difference), run.orders, run.capped)
    return VectorResult(vector, VectorOutcome.PASSED, "", run.orders, run.capped)


class _Run:
    def __init__(self, vector: Vector, mapped: VectorType) -> None:
        self.vector = vector
        self.mapped = mapped
        self.steps: dict[int, _Step] = {}
        self.orders = 0
        self.capped = False

    def all(self) -> None:
        self._prepare()
        everything = frozenset(range(len(self.vector.events)))
        self.orders = self._deliver(everything, self.vector.expect, "", self.vector.pure_log_size)
        for view in self.vector.views:
            ids = ", ".join(self.vector.events[position].id for position in sorted(view.seen))
            self._deliver(view.seen, view.value, f"having seen only {ids}, ", None)

    def _prepare(self) -> None:
        """Prepare each event on exactly its causal past; an event that the source refuses is not sent."""
        dots: dict[str, Dot] = {}
        for position, event in enumerate(self.vector.events):
            past = [self.steps[earlier] for earlier in sorted(event.past) if earlier in self.steps]
            args, time_ms = self.mapped.arguments(event.args)
            args = self.mapped.resolve(args, dots)
            source = self.mapped.crdt()
            source.site = Site(event.replica, HLC(partial(int, time_ms)))
            for step in past:
                source.effect(step.operation, step.tag)
            try:
                operation = source.prepare(self.mapped.operations[event.op], *args)
            except InvalidOperationError as refusal:
                if not event.rejected:
                    raise _Difference(f"{event.id} was refused: {refusal}") from refusal
                continue
            if event.rejected:
                raise _Difference(f"{event.id} was not refused")
            vector: dict[str, int] = {}
            for step in past:
                vector[step.tag.dot.origin] = step.tag.dot.counter
            dot = Dot(event.replica, vector.get(event.replica, 0) + 1)
            self.steps[position] = _Step(position, Tag(dot, (), vector), operation)
            dots[event.id] = dot

    def _deliver(
        self, seen: frozenset[int], expected: Any, where: str, log_size: int | None
    ) -> int:
        wanted = [self.steps[position] for position in sorted(seen) if position in self.steps]
        predecessors = [
            frozenset(other for other, step in enumerate(wanted) if step.tag < each.tag)
            for each in wanted
        ]
        orders = linear_extensions(predecessors)
        run = 0
        for order in islice(orders, MAX_ORDERS):
            run += 1
            steps = [wanted[index] for index in order]
            replica = self._replica(steps, expected, where)
            if log_size is not None and replica.log_size != log_size:
                raise _Difference(
                    f"expected {log_size} operations in the log, got {replica.log_size} "
                    f"({where}{self._order(steps)})"
                )
            self._stabilising_replica(steps, expected, where)
        self.capped = self.capped or next(orders, None) is not None
        return run

    def _replica(self, steps: Sequence[_Step], expected: Any, where: str) -> PureOpCRDT[Any]:
        replica = self.mapped.crdt()
        for step in steps:
            replica.effect(step.operation, step.tag)
        self._compare(replica, expected, f"{where}{self._order(steps)}")
        return replica

    def _stabilising_replica(self, steps: Sequence[_Step], expected: Any, where: str) -> None:
        """The same, with each message stable as soon as all later deliveries depend on it."""
        replica = self.mapped.crdt()
        unstable: list[_Step] = []
        to_come = dict(self.steps)
        for step in steps:
            replica.effect(step.operation, step.tag)
            unstable.append(step)
            del to_come[step.position]
            for candidate in list(unstable):
                if all(candidate.tag < later.tag for later in to_come.values()):
                    replica.stable(candidate.tag)
                    unstable.remove(candidate)
        self._compare(replica, expected, f"{where}{self._order(steps)}, stability at its earliest")
        if not unstable and replica.log_size:
            raise _Difference(
                f"{replica.log_size} operations stay in the log, although all are stable"
            )

    def _compare(self, replica: PureOpCRDT[Any], expected: Any, where: str) -> None:
        value = self.mapped.show(replica.value)
        if canonical(value) != canonical(expected):
            raise _Difference(f"expected {expected!r}, got {value!r} ({where})")

    def _order(self, steps: Sequence[_Step]) -> str:
        return "order " + " ".join(self.vector.events[step.position].id for step in steps)


def linear_extensions(predecessors: Sequence[frozenset[int]]) -> Iterator[tuple[int, ...]]:
    """Every order of 0 … n-1 in which each comes after its predecessors, in lexicographic order.

    `predecessors` must be closed transitively, or at least acyclic. Written as a loop, so that long chains do not
    recurse.
    """
    count = len(predecessors)
    order: list[int] = []
    placed: set[int] = set()

    def candidates() -> Iterator[int]:
        return iter(
            [each for each in range(count) if each not in placed and predecessors[each] <= placed]
        )

    if count == 0:
        yield ()
        return
    open_choices = [candidates()]
    while open_choices:
        chosen = next(open_choices[-1], None)
        if chosen is None:
            open_choices.pop()
            if order:
                placed.discard(order.pop())
            continue
        order.append(chosen)
        placed.add(chosen)
        if len(order) == count:
            yield tuple(order)
        open_choices.append(candidates())
