"""Registers against their specifications, the bound on clocks, and mutations that the harness must
catch.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from crdtcast.causality.hlc import HLC
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import Arrived, Entry, LWWRegister, MVRegister, PureOpCRDT, Site
from crdtcast.datatypes.canonical import canonical, rank
from crdtcast.exceptions import InvalidOperationError
from crdtcast.testing import VisibleOperation, check_crdt, weighted
from tests.datatypes import cases
from tests.datatypes.cases import Case

values = st.sampled_from(["x", "y", 1, 1.0, True, [1], {"k": [b"v"]}, None])
operations = weighted(
    (5, st.tuples(st.just("assign"), values)),
    (1, st.sampled_from([("reset",), ("clear",)])),
)


def surviving(visible: Sequence[VisibleOperation]) -> list[VisibleOperation]:
    """The assignments that came before no other operation."""
    return [
        one for one in visible if one.name == "assign" and not any(one < other for other in visible)
    ]


def all_concurrent(visible: Sequence[VisibleOperation]) -> list[Any]:
    distinct = {canonical(one.args[0]): one.args[0] for one in surviving(visible)}
    return sorted(distinct.values(), key=rank)


def last_by_the_clock(visible: Sequence[VisibleOperation]) -> Any:
    written = [(one.args[1], rank(one.args[0]), one.args[0]) for one in surviving(visible)]
    return max(written, key=lambda write: write[:2])[2] if written else None


CALLS = [("assign", 1), ("assign", 2), ("reset",)]
CASES = [
    Case(MVRegister, operations, all_concurrent, CALLS),
    Case(LWWRegister, operations, last_by_the_clock, CALLS),
]


class KeepsTheLastDelivered(MVRegister):
    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return True


class KeepsTheLastStable(MVRegister):
    def stabilise(self, entry: Entry) -> None:
        self._stable = [entry.content]


class OverwrittenStaysStable(MVRegister):
    def clear_stable(self, slot: Any) -> None:
        pass


class ShowsRepetitions(MVRegister):
    @property
    def value(self) -> list[Any]:
        written = [entry.content for entry in self.log.in_slot(None)]
        return sorted([*self._stable, *written], key=rank)


class DropsTheLoserAtDelivery(LWWRegister):
    """A reset that saw only the winner must bring it out."""

    def obsolete(self, old: Entry, new: Arrived) -> bool:
        loses = new.name == "assign" and old.content[1] < new.args[1]
        return loses or super().obsolete(old, new)


class LastDeliveredWins(LWWRegister):
    def obsolete(self, old: Entry, new: Arrived) -> bool:
        return True


class ForgetsTheTimeAtStability(LWWRegister):
    """A concurrent write that is not stable yet wins, whatever its time."""

    def stabilise(self, entry: Entry) -> None:
        super().stabilise(entry)
        self._stable[1] = 0


class LastStableWins(LWWRegister):
    def stabilise(self, entry: Entry) -> None:
        self._stable = list(entry.content)


class TieGoesToTheFirst(LWWRegister):
    """Of equal times, the one delivered first."""

    @property
    def value(self) -> Any:
        written = [entry.content for entry in self.log.in_slot(None)]
        candidates = [self._stable, *written] if self._stable else written
        return max(candidates, key=lambda write: write[1])[0] if candidates else None


class OneIsTrue(LWWRegister):
    """Values are compared as Python does."""

    def stabilise(self, entry: Entry) -> None:
        super().stabilise(entry)
        if self._stable[0] == 1:
            self._stable[0] = 1


@pytest.mark.parametrize(
    "mutant",
    [
        KeepsTheLastDelivered,
        KeepsTheLastStable,
        OverwrittenStaysStable,
        ShowsRepetitions,
        DropsTheLoserAtDelivery,
        LastDeliveredWins,
        ForgetsTheTimeAtStability,
        LastStableWins,
        TieGoesToTheFirst,
        OneIsTrue,
    ],
)
def test_the_harness_catches(mutant: type[PureOpCRDT[Any]]) -> None:
    specification = cases.of(mutant, CASES).specification
    with pytest.raises(AssertionError, match=mutant.__name__):
        check_crdt(mutant, operations, specification, examples=2000, seed=2, shrink=False)


def tag(origin: str, counter: int, **past: int) -> Tag:
    return Tag(Dot(origin, counter), (), past)


def register_at(now_ms: list[int], owner: str, max_drift_ms: int = 1000) -> LWWRegister:
    register = LWWRegister()
    register.site = Site(owner, HLC(lambda: now_ms[0], max_drift_ms))
    return register


def test_fast_clock_wins_only_over_concurrent_writes() -> None:
    now, year_ahead = [1000], [1000 + 365 * 86_400_000]
    fast, slow = register_at(year_ahead, "fast"), register_at(now, "slow")
    ahead = fast.prepare("assign", "ahead")
    concurrent = slow.prepare("assign", "concurrent")
    slow.effect(concurrent, tag("slow", 1))
    slow.effect(ahead, tag("fast", 1))
    assert slow.value == "ahead"
    later = slow.prepare("assign", "later")
    assert later[2] < ahead[2]
    slow.effect(later, tag("slow", 2, slow=1, fast=1))
    assert slow.value == "later"
    assert slow.site is not None
    assert slow.site.clock.refused > 0


def test_write_from_a_slow_clock_is_later_than_what_it_saw() -> None:
    now = [5]
    register = register_at(now, "slow")
    register.effect(["assign", "x", 900 << 16], tag("b", 1))
    assert register.prepare("assign", "y")[2] == (900 << 16) + 1
    restored = LWWRegister.restore(register.snapshot())
    restored.site = Site("slow", HLC(lambda: 5, 1000))
    assert restored.prepare("assign", "y")[2] == (900 << 16) + 1


def test_a_register_without_a_clock_cannot_be_written() -> None:
    with pytest.raises(InvalidOperationError, match="set `site`"):
        LWWRegister().prepare("assign", 1)


@pytest.mark.parametrize("crdt", [MVRegister, LWWRegister])
def test_a_value_is_a_copy(crdt: type[PureOpCRDT[Any]]) -> None:
    register = crdt()
    register.site = Site("a", HLC(lambda: 1))
    register.effect(register.prepare("assign", [[1]]), tag("a", 1))
    before = register.snapshot()
    for stable in (False, True):
        if stable:
            register.stable(tag("a", 1))
            before = register.snapshot()
        register.value[0].append(2)
        assert register.snapshot() == before
