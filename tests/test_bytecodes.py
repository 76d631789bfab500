"""The path of a write stays as thin as it is: `benchmarks/bytecodes.json` holds what it costs."""

import json
import sys

import pytest

from benchmarks.bytecodes import FIGURES, measured

pytestmark = pytest.mark.process

RECORDED = json.loads(FIGURES.read_text())
WRITES = 100
MORE = 1.1
"""What few writes show is within a tenth of what many do."""
TRIES = 8
"""On a busy machine timers fire more often for each write, which only adds: the least count is the one to believe."""


@pytest.mark.skipif(
    sys.version_info[:2] != tuple(map(int, RECORDED["python"].split("."))),
    reason=f"counts of instructions are those of Python {RECORDED['python']} only",
)
@pytest.mark.parametrize("command", RECORDED["own"])
def test_a_write_takes_no_more_instructions_than_recorded(command: str) -> None:
    recorded = RECORDED["own"][command]
    counted: dict[str, int] = {}
    for _ in range(TRIES):
        for result in measured(command, WRITES):
            own = round(result.own)
            counted[result.pattern] = min(own, counted.get(result.pattern, own))
        print(f"recorded {recorded}, counted {counted}")
        assert counted.keys() == recorded.keys()
        risen = {name: n for name, n in counted.items() if n > MORE * recorded[name]}
        if not risen:
            return
    raise AssertionError(
        f"risen by more than a tenth: {risen}; see python -m benchmarks.bytecodes --functions"
    )
