"""The path of a write stays as thin as it is: `benchmarks/bytecodes.json` holds what it costs, here and elsewhere."""

import json
import sys

import pytest

from benchmarks.bytecodes import FIGURES, PATTERNS, measured

RECORDED = json.loads(FIGURES.read_text())
OWN, OTHER = RECORDED["own"], RECORDED["other"]
ORDER = [*PATTERNS]
WRITES = 100
MORE = 1.1
"""What few writes show is within a tenth of what many do."""
TRIES = 8
"""Timers, and what becomes stable, only add to some of the tries: the least count is the one to believe."""


@pytest.mark.process
@pytest.mark.skipif(
    sys.version_info[:2] != tuple(map(int, RECORDED["python"].split("."))),
    reason=f"counts of instructions are those of Python {RECORDED['python']} only",
)
@pytest.mark.parametrize("command", OWN)
def test_a_write_takes_no_more_instructions_than_recorded(command: str) -> None:
    recorded = {("own", p): n for p, n in OWN[command].items()}
    recorded |= {("other", p): n for p, n in OTHER[command].items()}
    counted: dict[tuple[str, str], int] = {}
    wanted = ORDER
    for _ in range(TRIES):
        for result in measured(command, WRITES, other=True, patterns=wanted):
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


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("command", OWN)
def test_remote_write_takes_at_most_half_the_instructions(command: str, pattern: str) -> None:
    assert 2 * OTHER[command][pattern] <= OWN[command][pattern]
