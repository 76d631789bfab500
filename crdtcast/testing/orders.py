"""Checks a CRDT in every causal order of small cases: nothing random, nothing left out.

All histories of up to so many operations are made: which member issues what, after which others. Each is delivered in
all of its causal orders, once with no stability and once with stability as early as possible. Small histories come
first, so the first failure is a shortest one. (The idea that small cases, in full, find most faults: Jackson, "Software
Abstractions", 2006.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from crdtcast.causality.hlc import HLC
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes.canonical import canonical
from crdtcast.datatypes.pure import PureOpCRDT
from crdtcast.datatypes.site import Site
from crdtcast.exceptions import InvalidOperationError
from crdtcast.testing.crdt_check import Specification, Tried
from crdtcast.testing.model_group import Call, VisibleOperation
from crdtcast.testing.vectors.run import linear_extensions


@dataclass(frozen=True, slots=True)
class OrderPlace:
    """A message's place in a history: its sender, and the positions of all messages before it."""

    member: int
    past: frozenset[int]


@dataclass(frozen=True, slots=True)
class EveryOrder:
    """The number of histories that ran, and of their deliveries in some order. `refused` counts histories with an
    operation that the type refuses.
    """

    histories: int
    runs: int
    refused: int


def check_every_order(
    crdt: type[PureOpCRDT[Any]],
    calls: Sequence[Sequence[Any]],
    specification: Specification,
    *,
    operations: int = 3,
    members: int = 3,
) -> EveryOrder:
    """Run all histories of up to `operations` operations by up to `members` members, in every causal order. Raises
    AssertionError, with the history as a note, for the first that fails.

    calls: tuples (name, argument, ...); each operation is one of them.

    Checked after every delivery: the value; that stability, as early as possible, does not change it; that equal
    operations give equal digests; that a snapshot restores to the same state. Checked at the end: an empty log once all
    is stable. The number of runs grows fast: with 4 calls there are 2,692 orders of 3 operations, and a hundred times
    as many of 4.
    """
    histories = runs = refused = 0
    tried = Tried()
    chosen = [Call(*call) for call in calls]
    for size in range(1, operations + 1):
        for places in shapes(size, members):
            predecessors = [place.past for place in places]
            orders = list(linear_extensions(predecessors))
            for given in product(chosen, repeat=size):
                history = _History(crdt, places, given, specification, tried)
                if not history.prepared:
                    refused += 1
                    continue
                histories += 1
                for order in orders:
                    runs += 1
                    history.run(order)
    tried.check(crdt)
    return EveryOrder(histories, runs, refused)


def shapes(size: int, members: int) -> Iterator[list[OrderPlace]]:
    """Every way in which `size` messages of up to `members` members can depend on each other. New members appear in
    order, the first as member 0: other names would make no other history.
    """

    def extended(places: list[OrderPlace]) -> Iterator[list[OrderPlace]]:
        if len(places) == size:
            yield places
            return
        count = len(places)
        used = 1 + max((place.member for place in places), default=-1)
        for seen in range(1 << count):
            past = frozenset(n for n in range(count) if seen >> n & 1)
            if any(not places[n].past <= past for n in past):
                continue
            for member in range(min(used + 1, members)):
                own = {n for n, place in enumerate(places) if place.member == member}
                if own <= past:
                    yield from extended([*places, OrderPlace(member, past)])

    return extended([])


class _History:
    def __init__(
        self,
        crdt: type[PureOpCRDT[Any]],
        places: Sequence[OrderPlace],
        calls: Sequence[Call],
        specification: Specification,
        tried: Tried,
    ) -> None:
        self.crdt = crdt
        self.tried = tried
        self.places = places
        self.calls = calls
        self.specification = specification
        self.messages: list[VisibleOperation] = []
        self.expected: dict[frozenset[int], tuple[Any, bytes]] = {}
        self.digests: dict[frozenset[int], str] = {}
        self.prepared = self._prepare()

    def _prepare(self) -> bool:
        """Issue each operation at a source that has delivered exactly its past."""
        for place, call in zip(self.places, self.calls, strict=True):
            source = self._new(_name(place.member))
            vector: dict[str, int] = {}
            for position in sorted(place.past):
                message = self.messages[position]
                source.effect([message.name, *message.args], message.tag)
                vector[message.tag.dot.origin] = message.tag.dot.counter
            try:
                name, *args = source.prepare(call.name, *call.args)
            except InvalidOperationError as refusal:
                self.tried.refusals.setdefault(call.name, []).append(str(refusal))
                return False
            self.tried.accepted.add(call.name)
            origin = _name(place.member)
            tag = Tag(Dot(origin, vector.get(origin, 0) + 1), (), vector)
            self.messages.append(VisibleOperation(name, tuple(args), tag, 0, 0))
        return True

    def _new(self, owner: str) -> PureOpCRDT[Any]:
        made = self.crdt()
        made.site = Site(owner, HLC(lambda: 0))
        return made

    def run(self, order: Sequence[int]) -> None:
        for stabilising in (False, True):
            steps: list[str] = []
            try:
                self._run(order, stabilising, steps)
            except Exception as error:
                error.add_note(f"{self.crdt.__name__}, steps taken:\n{self._shown(steps)}")
                raise

    def _run(self, order: Sequence[int], stabilising: bool, steps: list[str]) -> None:
        replica = self._new("observer")
        unstable: list[int] = []
        for number, position in enumerate(order):
            message = self.messages[position]
            steps.append(f"a replica delivers {message.tag.dot}")
            replica.effect([message.name, *message.args], message.tag)
            self._check(replica, order[: number + 1])
            unstable.append(position)
            if not stabilising:
                continue
            for candidate in list(unstable):
                tag = self.messages[candidate].tag
                if all(tag < self.messages[later].tag for later in order[number + 1 :]):
                    steps.append(f"{tag.dot} becomes stable there")
                    replica.stable(tag)
                    unstable.remove(candidate)
                    self._check(replica, order[: number + 1])
            replica = self._restarted(replica, steps)
        for position in unstable:
            steps.append(f"{self.messages[position].tag.dot} becomes stable there")
            replica.stable(self.messages[position].tag)
            self._check(replica, order)
        assert replica.log_size == 0, (
            f"{replica.log_size} entries stay in the log, although all operations are stable"
        )

    def _restarted(self, replica: PureOpCRDT[Any], steps: list[str]) -> PureOpCRDT[Any]:
        steps.append("it restarts from a snapshot")
        snapshot = replica.snapshot()
        restored = self.crdt.restore(snapshot)
        restored.site = replica.site
        assert restored.snapshot() == snapshot, "the snapshot differs after a restore"
        assert restored.log_size == replica.log_size, "the log differs after a restore"
        return restored

    def _check(self, replica: PureOpCRDT[Any], delivered: Sequence[int]) -> None:
        seen = frozenset(delivered)
        if seen not in self.expected:
            worth = self.specification([self.messages[position] for position in delivered])
            self.expected[seen] = worth, canonical(worth)
        expected, encoded = self.expected[seen]
        value = replica.value
        assert canonical(value) == encoded, f"the value is {value!r}, but should be {expected!r}"
        digest = self.digests.setdefault(seen, replica.digest())
        assert digest == replica.digest(), "the digest depends on the order of delivery"

    def _shown(self, steps: Sequence[str]) -> str:
        lines = []
        for place, call, message in zip(self.places, self.calls, self.messages, strict=False):
            seen = ", ".join(str(self.messages[n].tag.dot) for n in sorted(place.past))
            member = _name(place.member)
            lines.append(f"{member} issues {call!r} as {message.tag.dot}, has seen {seen or '-'}")
        return "\n".join(f"{n:4} {line}" for n, line in enumerate([*lines, *steps], start=1))


def _name(member: int) -> str:
    return chr(ord("a") + member)
