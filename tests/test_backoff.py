"""Back-off: bounds, growth, jitter."""

import random

from hypothesis import given
from hypothesis import strategies as st

from crdtcast.backoff import Backoff


@given(st.integers(0, 2**32), st.integers(1, 200))
def test_delays_stay_within_half_and_whole_of_the_doubling(seed: int, attempts: int) -> None:
    backoff = Backoff(random.Random(seed), first=0.05, longest=2.0)
    for attempt in range(attempts):
        whole = min(2.0, 0.05 * 2 ** min(attempt, 32))
        assert whole / 2 <= backoff.next_delay() <= whole


def test_reset_restarts_the_delays() -> None:
    backoff = Backoff(random.Random(1), first=1.0, longest=64.0)
    for _ in range(10):
        backoff.next_delay()
    backoff.reset()
    assert backoff.next_delay() <= 1.0


def test_years_of_attempts_do_not_overflow() -> None:
    backoff = Backoff(random.Random(1))
    backoff.attempts = 10**9
    assert backoff.next_delay() <= backoff.longest


def test_two_members_get_different_delays() -> None:
    delays = {Backoff(random.Random(seed)).next_delay() for seed in range(50)}
    assert len(delays) == 50
