"""`crdtcast chaos` as its users run it. Continuous integration runs it for two minutes beside the linters (`.ci/run`);
here are a few seconds, and longer runs that are `slow`.
"""

import json
import subprocess
import sys

import pytest

from tests.preloaded import crdtcast

pytestmark = pytest.mark.process


def chaos(*options: str, seconds: float) -> tuple[int, dict[str, object], str]:
    done = subprocess.run(
        [sys.executable, "-m", "crdtcast", "chaos", "--json", *options],
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow
def test_a_few_seconds_of_faults_lose_nothing() -> None:
    faults = ("--faults", "kill,black-hole,disk-full,sync-error", "--network", "proxies")
    plan = ("--nodes", "3", "--minutes", "0.17", "--seed", "288")
    code, figures, said = chaos(*plan, *faults, seconds=200)
    assert code == 0 and figures["ok"] is True, said
    assert int(str(figures["acknowledged"])) > 50
    assert int(str(figures["events_checked"])) > 300
    kinds = {"kill", "black-hole", "disk-full", "sync-error"}
    assert set(figures["episodes"]) == kinds  # type: ignore[call-overload]
    limited = "cannot mount test file systems" in said
    assert figures["full_disks"] == ("limit" if limited else "tmpfs")
    assert (
        int(str(figures["ended_full"])) >= 2
    )  # while it ran, and at a start; more on an idle machine


def test_a_fault_that_does_not_exist_is_one_line() -> None:
    done = crdtcast("chaos", "--faults", "kill,earthquake")
    assert done.returncode == 2
    assert "earthquake" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "seed"), [(3, 1), (5, 2), (7, 3)])
def test_two_minutes_of_faults_lose_nothing(nodes: int, seed: int) -> None:
    code, figures, said = chaos(
        "--nodes", str(nodes), "--minutes", "2", "--seed", str(seed), seconds=580
    )
    assert code == 0 and figures["ok"] is True, said
