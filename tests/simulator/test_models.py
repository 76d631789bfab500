"""The models draw what the thesis says they draw."""

import math
import random
import statistics

import pytest

from benchmarks.experiments.models import (
    FixedInterval,
    FixedLatency,
    LognormalLatency,
    MatrixLatency,
    PoissonInterval,
    SlowLink,
    WeibullLatency,
)
from crdtcast.exceptions import ConfigurationError

DRAWS = 20_000


def draws(model: object, sender: int = 0, receiver: int = 1) -> list[float]:
    chance = random.Random(20231)
    return [model.draw(chance, sender, receiver) for _ in range(DRAWS)]  # type: ignore[attr-defined]


def test_weibull_lies_between_its_base_and_its_cut() -> None:
    drawn = draws(WeibullLatency(10))
    assert min(drawn) > 10
    assert max(drawn) <= 10 * (1 + 3 * 0.15)
    assert statistics.mean(drawn) == pytest.approx(11.329, rel=0.005)


def test_weibull_is_cut_and_not_drawn_again() -> None:
    # With a shape of 0.5 a sixth of the draws is above three times the scale.
    drawn = draws(WeibullLatency(10, shape=0.5))
    cut = 10 * (1 + 3 * 0.15)
    assert drawn.count(cut) / DRAWS == pytest.approx(math.exp(-math.sqrt(3)), rel=0.05)


def test_the_base_for_a_mean_is_that_of_the_thesis() -> None:
    assert WeibullLatency.with_mean(5).base_ms == pytest.approx(4.4135, abs=0.0005)
    assert statistics.mean(draws(WeibullLatency.with_mean(10))) == pytest.approx(10, rel=0.005)


def test_lognormal_has_its_median_and_a_tail() -> None:
    drawn = draws(LognormalLatency(20, sigma=0.5))
    assert statistics.median(drawn) == pytest.approx(20, rel=0.02)
    assert max(drawn) > 60


def test_poisson_intervals_are_cut_at_four_times_the_mean() -> None:
    chance = random.Random(1)
    drawn = [PoissonInterval(100).draw(chance) for _ in range(DRAWS)]
    assert max(drawn) == 400
    assert drawn.count(400) / DRAWS == pytest.approx(math.exp(-4), rel=0.15)
    assert statistics.mean(drawn) == pytest.approx(100 * (1 - math.exp(-4)), rel=0.02)


def test_fixed_models_are_fixed() -> None:
    assert set(draws(FixedLatency(10))) == {10}
    assert FixedInterval(7).draw(random.Random(1)) == 7


def test_a_matrix_is_read_by_sender_and_receiver() -> None:
    model = MatrixLatency.parse("0,1,2\n3,0,4\n\n5,6,0\n")
    chance = random.Random(1)
    assert [model.draw(chance, s, r) for s, r in ((0, 2), (2, 0), (1, 0))] == [2, 5, 3]


def test_a_slow_link_is_slow_both_ways_and_alone() -> None:
    model = SlowLink(FixedLatency(10), slow_ms=100)
    chance = random.Random(1)
    pairs = [(s, r) for s in range(3) for r in range(3) if s != r]
    assert {p for p in pairs if model.draw(chance, *p) == 100} == {(0, 1), (1, 0)}
    assert {model.draw(chance, *p) for p in pairs} == {10, 100}


@pytest.mark.parametrize("text", ["0,1\n2", "0,1,2\n1,0,2", "0,x\n1,0", "0,0\n1,0", "0,inf\n1,0"])
def test_a_wrong_matrix_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        MatrixLatency.parse(text)


@pytest.mark.parametrize("model", [FixedLatency, WeibullLatency, PoissonInterval, FixedInterval])
@pytest.mark.parametrize("ms", [0, -1, math.nan, math.inf])
def test_invalid_duration_is_refused(model: type, ms: float) -> None:
    with pytest.raises(ConfigurationError, match="above 0"):
        model(ms)
