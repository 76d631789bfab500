"""The failure detector: who is silent becomes suspect, who is not does not, and a pause of one's own
accuses nobody.
"""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from crdtcast.engine.failure_detector import FailureDetector, Suspected, Trusted

INTERVAL = 5.0
QUARTER = INTERVAL / 4
ordinary = st.lists(st.floats(0.001, 1.25 * INTERVAL), max_size=60)
any_gaps = st.lists(st.floats(0.001, 50 * INTERVAL), max_size=60)


def watching(*peers: str) -> FailureDetector:
    detector = FailureDetector(INTERVAL)
    detector.watch(peers, 0.0)
    return detector


def live(detector: FailureDetector, gaps: list[float], peer: str = "b") -> float:
    """Observe each quarter of an interval while frames come with these gaps; when the last came."""
    arrivals = [0.0]
    for gap in gaps:
        arrivals.append(arrivals[-1] + gap)
    observed = 0.0
    for before, after in pairwise(arrivals):
        while observed + QUARTER < after:
            observed += QUARTER
            detector.heard(peer, before)
            detector.observe(observed)
        detector.heard(peer, after)
    return arrivals[-1]


def wait(detector: FailureDetector, begin: float, seconds: float) -> list[float]:
    """Times at which somebody became suspect while nothing comes."""
    found = []
    for step in range(1, int(seconds / QUARTER) + 1):
        now = begin + step * QUARTER
        found += [now for change in detector.observe(now) if isinstance(change, Suspected)]
    return found


@given(ordinary)
def test_peer_heard_in_time_is_never_suspect(gaps: list[float]) -> None:
    detector = watching("b")
    end = live(detector, gaps)
    detector.observe(end)
    assert not detector.suspects(end)
    assert not wait(detector, end, 1.25 * INTERVAL)


@given(any_gaps)
def test_silent_peer_becomes_suspect_after_any_history(gaps: list[float]) -> None:
    detector = watching("b")
    end = live(detector, gaps)
    detector.observe(end)
    (found,) = wait(detector, end, 9 * INTERVAL)
    suspect = detector.suspects(end + 9 * INTERVAL)
    assert suspect["b"].level >= detector.threshold
    assert suspect["b"].silence >= 8 * INTERVAL
    assert end < found <= end + 8 * INTERVAL + QUARTER


@given(any_gaps, st.floats(0, 1e6), st.floats(0, 1e6))
def test_the_level_is_finite_and_rises_with_silence(
    gaps: list[float], first: float, second: float
) -> None:
    detector = watching("b")
    end = live(detector, gaps)
    low, high = sorted((first, second))
    assert 0 <= detector.level("b", end + low) <= detector.level("b", end + high) < float("inf")


@given(ordinary, st.floats(2 * INTERVAL, 1e7))
def test_own_pause_makes_no_peer_suspect(gaps: list[float], pause: float) -> None:
    detector = watching("b")
    end = live(detector, gaps)
    detector.observe(end)
    assert detector.observe(end + pause) == []
    detector.heard("b", end + pause + QUARTER)
    assert detector.observe(end + pause + QUARTER) == []
    assert len(wait(detector, end + pause + QUARTER, 9 * INTERVAL)) == 1, "blind afterwards"


def test_suspect_is_trusted_after_a_frame_and_each_is_told_once() -> None:
    detector = watching("b", "c")
    changes = []
    for step in range(1, 200):
        now = step * QUARTER
        detector.heard("c", now)
        if step > 100:
            detector.heard("b", now)
        changes += detector.observe(now)
    (suspected, trusted) = changes
    assert isinstance(suspected, Suspected) and isinstance(trusted, Trusted)
    assert suspected.peer == trusted.peer == "b"
    assert 2 * INTERVAL < suspected.silence < 3 * INTERVAL
    assert trusted.after == 101 * QUARTER - suspected.silence


def test_a_peer_that_is_slow_by_habit_is_given_longer() -> None:
    quick, slow = watching("b"), watching("b")
    live(quick, [INTERVAL] * 40)
    end = live(slow, [INTERVAL, 2.4 * INTERVAL] * 20)
    assert slow.level("b", end + 2.5 * INTERVAL) < quick.threshold
    assert quick.level("b", 40 * INTERVAL + 2.5 * INTERVAL) > quick.threshold


def test_only_monitored_peers_become_suspect() -> None:
    detector = watching("b")
    detector.heard("stranger", 1.0)
    assert wait(detector, 0.0, 9 * INTERVAL)
    detector.watch([], 9 * INTERVAL)
    assert not detector.suspects(9 * INTERVAL)
    detector.watch(["b"], 10 * INTERVAL)
    assert detector.level("b", 10 * INTERVAL) < 1, "the silence of a former life counts"
