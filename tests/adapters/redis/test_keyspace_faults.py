"""Each rule on values that is left out is found by the random schedules (docs/redis-rules.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from crdtcast.adapters.redis.commit.plan import Plan
from crdtcast.adapters.redis.recorded.record import SCORE_SCRIPT
from crdtcast.adapters.redis.store import slot_value, unstable
from crdtcast.adapters.redis.store.effects import RedisType
from crdtcast.adapters.redis.store.keyspace import INT64_MAX, INT64_MIN, Keyspace
from crdtcast.adapters.redis.store.slot_value import (
    Atoms,
    Number,
    Only,
    Register,
    Worth,
    number_of,
    text_of,
    worth_of,
)
from crdtcast.adapters.redis.store.unstable import SlotLog, UnstableLog
from crdtcast.adapters.redis.types import TYPES
from crdtcast.adapters.redis.types.exact_values import ExactValues
from crdtcast.adapters.redis.types.native import Content
from crdtcast.causality.tags import Dot, Tag
from tests.adapters.redis import test_keyspace_model
from tests.adapters.redis.test_keyspace_model import (
    Replica,
    random_command,
    random_score,
    reset,
    run,
    three_replicas,
)

pytestmark = pytest.mark.process

_SEEDS_TRIED = 40
Patch = pytest.MonkeyPatch


# Removals


def kills_everything(patch: Patch) -> None:
    """What a removal had not seen goes, too."""
    patch.setattr(unstable, "comes_before", lambda atom, tag: True)


def keeps_stable_slots(patch: Patch) -> None:
    """A removal of slots takes what is unstable only."""
    kill_slots = UnstableLog.kill_slots

    def kill(
        self: UnstableLog, key: bytes, type_: RedisType, slots: Collection[bytes], tag: Tag
    ) -> Collection[bytes]:
        had = set(self.of(key, type_).slots())
        return [slot for slot in kill_slots(self, key, type_, slots, tag) if slot in had]

    patch.setattr(UnstableLog, "kill_slots", kill)


def keeps_stable_keys(patch: Patch) -> None:
    """The same of a removal of a whole key."""
    kill_key = Keyspace.kill_key

    def kill(self: Keyspace, key: bytes, tag: Tag, plan: Plan, *own: Any, **named: Any) -> int:
        is_stable = not (own or self.log.key(key))
        return -1 if is_stable else kill_key(self, key, tag, plan, *own, **named)

    patch.setattr(Keyspace, "kill_key", kill)


# Registers


def drops_the_loser(patch: Patch) -> None:
    """Of two concurrent values the one that loses is forgotten as the other arrives."""
    write = SlotLog.write

    def keep_one(self: SlotLog, registers: Mapping[bytes, Register], tag: Tag) -> None:
        write(self, registers, tag)
        for slot in registers:
            self.held[slot] = (max(self.held[slot], key=_rank),)

    patch.setattr(SlotLog, "write", keep_one)


def _rank(atom: Any) -> Any:
    return atom.rank


def writes_without_kill(patch: Patch) -> None:
    """A value stands beside those that it had seen."""

    def write(self: SlotLog, registers: Mapping[bytes, Register], tag: Tag) -> None:
        for slot, register in registers.items():
            self.held[slot] = (*self.held.get(slot, ()), register)

    def put(
        self: UnstableLog,
        key: bytes,
        type_: RedisType,
        values: Mapping[bytes, bytes],
        dot: Dot,
        timestamp: int,
        index: int,
        only: Only = Only.ALWAYS,
    ) -> None:
        self.write(key, type_, values, Tag(dot, (), {}), timestamp, index, only)

    patch.setattr(SlotLog, "write", write)
    patch.setattr(UnstableLog, "put", put)


def shows_the_last_arrival(patch: Patch) -> None:
    """Of concurrent values the one that came last shows."""

    def worth(atoms: Atoms, deltas: Collection[Number]) -> Worth | None:
        return worth_of(atoms[-1:], deltas)

    patch.setattr(unstable, "worth_of", worth)


# Stability


def forgets_nothing(patch: Patch) -> None:
    patch.setattr(UnstableLog, "stabilise", lambda self, dot: None)


def folds_presences_at_delivery(patch: Patch) -> None:
    patch.setattr(UnstableLog, "one", lambda self, *rest: None)


def folds_increments_at_delivery(patch: Patch) -> None:
    increment = UnstableLog.increment

    def fold(self: UnstableLog, key: bytes, *rest: Any) -> None:
        increment(self, key, *rest)
        tag: Tag = rest[-2]
        self.stabilise(tag.dot)

    patch.setattr(UnstableLog, "increment", fold)


def folds_values_at_delivery(patch: Patch) -> None:
    for name, place in (("write", 3), ("put", 3), ("assign", 4)):
        method = getattr(UnstableLog, name)

        def fold(
            self: UnstableLog, *words: Any, method: Any = method, place: int = place
        ) -> SlotLog | None:
            log: SlotLog | None = method(self, *words)
            told = words[place]
            kept = None if log is None else log.copy()
            self.stabilise(told.dot if isinstance(told, Tag) else told)
            return kept

        patch.setattr(UnstableLog, name, fold)


def _changes_sums_at_stability(patch: Patch, change: Callable[[Number], Number]) -> None:
    stabilise, settle = UnstableLog.stabilise, Keyspace.settle

    def fold(self: UnstableLog, dot: Dot) -> None:
        counted = getattr(self, "counted", set())
        for key, type_, slots, *_ in self._by_dot.get(dot, ()):
            if isinstance(slots, bytes):
                counted.add((key, type_, slots))
        self.counted = counted  # type: ignore[attr-defined]
        stabilise(self, dot)

    def show(self: Keyspace, plan: Plan) -> None:
        for key, type_, slot in getattr(self.log, "counted", ()):
            is_string = type_ is RedisType.STRING
            known = self.known(key) if is_string else self.number(key, type_, slot)
            text = getattr(known, "text", b"%d" % known if isinstance(known, int) else b"")
            number = number_of(text)
            if number is not None and change(number) != number:
                self._fill(key, type_, {slot: text_of(change(number))}, plan)
        self.log.counted = set()  # type: ignore[attr-defined]
        settle(self, plan)

    patch.setattr(UnstableLog, "stabilise", fold)
    patch.setattr(Keyspace, "settle", show)


def rounds_at_stability(patch: Patch) -> None:
    """A sum becomes what a double can hold."""
    _changes_sums_at_stability(patch, lambda number: number_of(_text_of_double(number)) or 0)


def _text_of_double(number: Number) -> bytes:
    return format(float(number), ".17g").encode()


def clamps_at_stability(patch: Patch) -> None:
    """A sum becomes what 64 bits can hold."""
    _changes_sums_at_stability(patch, lambda number: min(max(number, INT64_MIN), INT64_MAX))


# Conditions


def greatest_is_the_last(patch: Patch) -> None:
    """A value that was written only to make it greater is like any other."""
    patch.setattr(slot_value, "shown_of", lambda registers: max(registers, key=_rank))


def one_condition_counts_for_all(patch: Patch) -> None:
    """The greatest shows as soon as one was written only to make it greater."""

    def shown_of(registers: Collection[Register]) -> Register:
        only = max(register.only for register in registers)
        if only is Only.ALWAYS:
            return max(registers, key=_rank)
        same = [Register(*register[:4], only) for register in registers]
        return slot_value_shown_of(same)

    patch.setattr(slot_value, "shown_of", shown_of)


slot_value_shown_of = slot_value.shown_of

# Exact values


def forgets_exact_values(patch: Patch) -> None:
    """The double of a score is its value."""
    patch.setattr(ExactValues, "of", lambda self, key, type_, slot, native: native)


def keeps_exact_values_of_what_is_written_over(patch: Patch) -> None:
    written = ExactValues.written

    def note(self: ExactValues, key: bytes, type_: RedisType, content: Content) -> None:
        shown = TYPES[type_].shown
        written(self, key, type_, {s: w for s, w in content.items() if shown(w) != w})

    patch.setattr(ExactValues, "written", note)


def _other_script(patch: Patch, before: bytes, after: bytes) -> None:
    assert before in SCORE_SCRIPT
    patch.setattr(test_keyspace_model, "SCORE_SCRIPT", SCORE_SCRIPT.replace(before, after))


def script_adds_doubles(patch: Patch) -> None:
    _other_script(patch, b"if near ~= number(reply) then", b"if false then")


def script_knows_no_exact_values(patch: Patch) -> None:
    _other_script(patch, b"if old and kept", b"if false and kept")


def script_takes_all_digits(patch: Patch) -> None:
    """A double stands for 17 digits."""
    _other_script(patch, b"for digits = 15, 17 do", b"for digits = 17, 17 do")


FAULTS = {
    kills_everything: 0,
    keeps_stable_slots: 0,
    keeps_stable_keys: 3,
    drops_the_loser: 1,
    writes_without_kill: 0,
    shows_the_last_arrival: 1,
    forgets_nothing: 0,
    folds_presences_at_delivery: 0,
    folds_increments_at_delivery: 0,
    folds_values_at_delivery: 1,
    rounds_at_stability: 3,
    clamps_at_stability: 19,
}
"""A seed that has found each, from which on others are tried."""
OF_SCORES = {
    greatest_is_the_last: 0,
    one_condition_counts_for_all: 0,
    forgets_exact_values: 0,
    keeps_exact_values_of_what_is_written_over: 0,
    script_adds_doubles: 0,
    script_knows_no_exact_values: 0,
    script_takes_all_digits: 0,
}
"""The same in schedules of scores."""


@pytest.fixture
def replicas() -> Iterator[list[Replica]]:
    with three_replicas() as made:
        yield made


@pytest.mark.parametrize("fault", [*FAULTS, *OF_SCORES], ids=lambda fault: fault.__name__)
def test_fault_is_found(
    replicas: list[Replica], monkeypatch: Patch, fault: Callable[[Patch], None]
) -> None:
    fault(monkeypatch)
    seeds, pick = FAULTS, random_command
    if fault in OF_SCORES:
        seeds, pick = OF_SCORES, random_score
    for seed in range(seeds[fault], seeds[fault] + _SEEDS_TRIED):
        reset(replicas)
        try:
            run(replicas, seed, pick=pick)
        except AssertionError:
            print("found with seed", seed)
            return
    pytest.fail("no schedule finds it")
