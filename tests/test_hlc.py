"""Hybrid logical clock: never back, after what it has seen, not dragged away by a wrong clock."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.causality.hlc import HLC, hlc_ms
from crdtcast.transport.log_throttle import ahead

times = st.integers(0, 2**40)


class Wall:
    def __init__(self, ms: int = 0) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


@given(st.lists(times, min_size=1))
def test_stamps_rise_even_if_the_wall_clock_goes_back(walls: list[int]) -> None:
    wall = Wall()
    clock = HLC(wall)
    stamps = []
    for wall.ms in walls:
        stamps.append(clock.now())
    assert stamps == sorted(set(stamps))
    assert all(hlc_ms(stamp) >= ms for stamp, ms in zip(stamps, walls, strict=True))


@given(times, st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_stamp_within_the_bound_is_followed(ms: int, ahead: int, allowed: int) -> None:
    clock = HLC(Wall(ms), max_drift_ms=allowed)
    stamp = (ms + ahead) << 16 | 7
    kept = clock.observe(stamp)
    if ahead <= allowed:
        assert kept == stamp and clock.refused == 0
    else:
        assert kept < stamp and clock.refused == 1
    assert kept < clock.now()
    assert hlc_ms(clock.now()) <= ms + allowed + 1


def test_clock_a_year_ahead_wins_only_within_the_bound() -> None:
    wall = Wall(1_000_000)
    clock = HLC(wall, max_drift_ms=1000)
    clock.observe((1_000_000 + 365 * 86_400_000) << 16)
    wall.ms += 1001
    assert clock.now() == wall.ms << 16
    assert clock.refused == 1


def test_clock_ahead_is_logged_once_per_sender(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HLC(Wall(1_000), max_drift_ms=60_000)
    clock.on_ahead = ahead(logging.getLogger("x"), lambda: 5.0)
    for ms in (61_000, 62_000, 7_201_000):
        clock.observe(ms << 16, "us.0123456789abcdef0")
    clock.observe(91_000 << 16)
    assert [record.getMessage() for record in caplog.records] == [
        "a timestamp of us is 61 s ahead of this machine's clock, and counts as less: set the clocks of both machines",
        "a timestamp of another member is 90 s ahead of this machine's clock, and counts as less: set the clocks of "
        "both machines",
    ]


def test_stamps_of_a_full_millisecond_continue_in_the_next() -> None:
    clock = HLC(Wall(5))
    stamps = [clock.now() for _ in range(70_000)]
    assert len(set(stamps)) == 70_000
    assert hlc_ms(stamps[-1]) == 6
