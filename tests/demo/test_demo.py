"""The whole demo as a person runs it: its last line, its exit code, and that it leaves nothing
behind.
"""

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.demo.running import assert_good, demo, left_behind

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc"),
]


def test_three_regions_converge_to_the_exact_counts(short_path: Path) -> None:
    with demo(short_path, "--no-audit") as process:
        stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr + stdout
    assert_good(json.loads(stdout.splitlines()[-1]), "skipped")
    assert left_behind(short_path) == []


@pytest.mark.parametrize(
    ("scene", "number"),
    [("Starting three servers", signal.SIGTERM), ("Counting words", signal.SIGINT)],
)
def test_a_signal_ends_everything_that_was_started(
    short_path: Path, scene: str, number: signal.Signals
) -> None:
    with demo(short_path, "--no-audit") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if scene in line:
                process.send_signal(number)
                break
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr + stdout
    assert "interrupted" in stderr
    assert left_behind(short_path) == []
