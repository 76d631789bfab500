import gc
from collections.abc import Iterator, Mapping

import pytest

from crdtcast.lowlevel import rare_full_collections


class Clock:
    """On which each full collection takes a second, if it is told of them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def collected(self, phase: str, info: Mapping[str, int]) -> None:
        if info["generation"] == 2 and phase == "start":
            self.now += 1.0


@pytest.fixture
def clock() -> Iterator[Clock]:
    callbacks, thresholds = list(gc.callbacks), gc.get_threshold()
    yield (clock := Clock())
    gc.callbacks.remove(clock.collected)
    assert (gc.callbacks, gc.get_threshold()) == (callbacks, thresholds)


def full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


def hold_much() -> list[list[int]]:
    """More objects than there are: that is worth a full collection."""
    return [[] for _ in range(len(gc.get_objects()) + 200_000)]


def test_longer_full_collections_run_less_often(clock: Clock) -> None:
    with rare_full_collections(share=0.01, clock=clock):
        gc.callbacks.append(clock.collected)
        gc.collect()
        before = full_collections()
        held = [hold_much()]
        clock.now += 99
        held.append(hold_much())
        assert full_collections() == before
        clock.now += 2
        held.append(hold_much())
        assert full_collections() == before + 1
        held.append(hold_much())
        assert full_collections() == before + 1
        clock.now += 101
        held.append(hold_much())
        assert full_collections() == before + 2


@pytest.mark.parametrize(
    ("usual", "inside"),
    [((700, 10, 10), (10_000, 3)), ((0, 10, 10), (0, 10)), ((50_000, 20, 10), (50_000, 20))],
    ids=["of CPython", "none", "more"],
)
def test_young_collections_are_rarer_but_not_switched_on(
    usual: tuple[int, int, int], inside: tuple[int, int]
) -> None:
    before = gc.get_threshold()
    gc.set_threshold(*usual)
    try:
        with rare_full_collections():
            assert gc.get_threshold()[:2] == inside
            gc.collect()
            assert gc.get_threshold()[:2] == inside
        assert gc.get_threshold() == usual
    finally:
        gc.set_threshold(*before)


def test_error_in_the_block_restores_the_gc_settings(clock: Clock) -> None:
    gc.callbacks.append(clock.collected)
    with pytest.raises(ValueError, match="mine"), rare_full_collections():
        gc.collect()
        assert gc.get_threshold()[2] > 1_000_000
        raise ValueError("mine")
