"""The walk over metadata: what counts, and that nothing counts twice."""

import sys
from collections import deque
from dataclasses import dataclass
from enum import Enum

from benchmarks.baselines.sizes import metadata_bytes


@dataclass(frozen=True, slots=True)
class _Slotted:
    name: str
    payload: bytes


class _Plain:
    def __init__(self) -> None:
        self.counters = [1000, 2000]


class _Colour(Enum):
    RED = 1


def test_a_shared_object_counts_once() -> None:
    shared = (1000, 2000)
    once = metadata_bytes([shared])
    assert metadata_bytes([shared, shared]) == once + sys.getsizeof([0, 0]) - sys.getsizeof([0])
    assert metadata_bytes(shared, shared) == metadata_bytes(shared)


def test_payloads_and_interpreter_constants_count_nothing() -> None:
    assert metadata_bytes(b"x" * 1000, None, True, 5, _Colour.RED, int, len) == 0
    assert metadata_bytes(1000) == sys.getsizeof(1000)


def test_size_includes_containers_slots_and_attributes() -> None:
    name = "a name that is no literal elsewhere"
    slotted = _Slotted(name, b"payload")
    assert metadata_bytes(slotted) == sys.getsizeof(slotted) + sys.getsizeof(name)
    plain = _Plain()
    assert metadata_bytes(plain) > metadata_bytes(plain.counters) > 2 * sys.getsizeof(1000)
    for made in ({name: 1}, [name], (name,), {name}, frozenset([name]), deque([name])):
        assert metadata_bytes(made) == sys.getsizeof(made) + sys.getsizeof(name)


def test_a_deep_structure_does_not_recurse() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert metadata_bytes(deep) >= 100_000 * sys.getsizeof([0])
