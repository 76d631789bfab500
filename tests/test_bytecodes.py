"""The path of a write stays as thin as it is: `benchmarks/bytecodes.json` holds what it costs, here and elsewhere.

The counts are slow tests: beside others they need more tries. The continuous integration runs them alone.
"""

import json
import sys
from typing import Any

import pytest

from benchmarks.bytecodes import FIGURES, PATTERNS, WRITES, measured

RECORDED = json.loads(FIGURES.read_text())
FIXED, GROUP = RECORDED, RECORDED["group"]
CASES = [(FIXED, command) for command in FIXED["own"]] + [
    (GROUP, command) for command in GROUP["own"]
]
ORDER = [*PATTERNS]
MORE = 1.1
TRIES = 8
"""Timers only add to some of the tries: the least count is the one to believe."""

MOST_OF_STAGE = 20
"""A stage of few instructions may have so many more."""
ONLY_THAT_PYTHON = pytest.mark.skipif(
    sys.version_info[:2] != tuple(map(int, RECORDED["python"].split("."))),
    reason=f"counts of instructions are those of Python {RECORDED['python']} only",
)


def name_of(case: object) -> str:
    return case if isinstance(case, str) else "group" if case is GROUP else "fixed"


@pytest.mark.slow
@pytest.mark.process
@ONLY_THAT_PYTHON
@pytest.mark.parametrize(("figures", "command"), CASES, ids=name_of)
def test_a_write_takes_no_more_instructions_than_recorded(
    figures: dict[str, Any], command: str
) -> None:
    recorded = {("own", p): n for p, n in figures["own"][command].items()}
    recorded |= {("other", p): n for p, n in figures["other"][command].items()}
    counted: dict[tuple[str, str], int] = {}
    wanted = ORDER
    for _ in range(TRIES):
        for result in measured(
            command, WRITES, other=True, grouped=figures is GROUP, patterns=wanted
        ):
            assert result.other is not None
            for region, each in (("own", result), ("other", result.other)):
                place = region, each.pattern
                counted[place] = min(round(each.own), counted.get(place, round(each.own)))
        print(f"recorded {recorded}, counted {counted}")
        assert counted.keys() == recorded.keys()
        risen = {place: n for place, n in counted.items() if n > MORE * recorded[place]}
        if not risen:
            return
        # A pattern costs less behind those before it, of which the gateways are warm.
        last = max(ORDER.index(pattern) for _, pattern in risen)
        wanted = ORDER[: last + 1]
    raise AssertionError(
        f"risen by more than a tenth: {risen}; see python -m benchmarks.bytecodes --other --functions"
    )


@pytest.mark.slow
@pytest.mark.process
@ONLY_THAT_PYTHON
@pytest.mark.parametrize("figures", [FIXED, GROUP], ids=name_of)
def test_no_stage_of_a_write_takes_more_than_recorded(figures: dict[str, Any]) -> None:
    pattern = ORDER[0]
    recorded = figures["stages"][pattern]
    for _ in range(TRIES):
        (result,) = measured("SADD", WRITES, grouped=figures is GROUP, patterns=[pattern])
        assert sum(result.stages.values()) == pytest.approx(
            result.own
        )  # so no module lacks a stage
        limits = {stage: MORE * n + MOST_OF_STAGE for stage, n in recorded.items()}
        risen = {stage: n for stage, n in result.stages.items() if n > limits[stage]}
        if not risen:
            return
    raise AssertionError(f"risen: {risen}, recorded {recorded}")


@pytest.mark.parametrize("figures", [FIXED, GROUP], ids=name_of)
def test_the_recorded_stages_sum_up_to_the_recorded_count(figures: dict[str, Any]) -> None:
    for pattern, stages in figures["stages"].items():
        assert sum(stages.values()) == pytest.approx(
            figures["own"]["SADD"][pattern], abs=len(stages)
        )


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(("figures", "command"), CASES, ids=name_of)
def test_remote_write_takes_about_half_the_instructions(
    figures: dict[str, Any], command: str, pattern: str
) -> None:
    assert figures["other"][command][pattern] <= 0.51 * figures["own"][command][pattern]
