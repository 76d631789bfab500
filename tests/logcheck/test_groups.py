"""Several groups in one directory: each is checked for itself, and it is said which is wrong."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from crdtcast import cli
from crdtcast.eventlog.check import Problem, check_logs
from crdtcast.simulator.campaign import run_group_seed
from crdtcast.simulator.campaigns import campaign
from tests.effort import seeds
from tests.logcheck.event_logs import Settings, make_up, write_logs
from tests.logcheck.log_faults import plant

from .village import Village


def write_run(directory: Path, seed: int, fault: str = "") -> None:
    """One run, as a directory for each of its replicas."""
    logs = make_up(Settings(replicas=3, messages=40, seed=seed))
    if fault:
        plant(fault, logs, 1)
    for incarnation, log in logs.items():
        write_logs(directory / incarnation.partition(".")[0], {incarnation: log})


@pytest.mark.parametrize("above", ["", "first/week"])
def test_runs_side_by_side_are_checked_each_for_itself(tmp_path: Path, above: str) -> None:
    write_run(tmp_path / above / "monday", 31)
    write_run(tmp_path / above / "tuesday", 32, "drop")
    write_run(tmp_path / "second", 33)
    result = CliRunner().invoke(cli.main, ["check", str(tmp_path), "--json"])
    assert result.exit_code == 1, result.output
    *text, last = result.stdout.splitlines()
    summary = json.loads(last)
    [wrong] = summary["wrong"]
    assert summary["groups"] == 3
    assert wrong.endswith(f" in {tmp_path / above / 'tuesday'}")
    assert {violation["group"] for violation in summary["first"]} == {wrong}
    said = [line.partition(" events")[0] for line in text if ": group " in line]
    assert sorted(line.partition(":")[0] for line in said) == ["right", "right", "wrong"]


def test_groups_of_one_name_that_were_founded_apart_are_two(tmp_path: Path) -> None:
    for number, seed in enumerate((0, 124)):
        village = Village(tmp_path / str(number), seed, prefix=f"v{number}")
        village.live(200)
        village.come_to_rest()
    together = tmp_path / "together"
    together.mkdir()
    for number in (0, 1):
        for path in (tmp_path / str(number)).iterdir():
            shutil.move(path, together)
    checked = check_logs([together])
    assert checked.violations == ()
    assert len(checked.groups) == 2
    assert all(" of v" in name for name in checked.groups)


def test_copy_of_a_log_is_reported_not_taken_for_a_run(tmp_path: Path) -> None:
    write_run(tmp_path / "logs", 31)
    some = next((tmp_path / "logs").rglob("*.jsonl"))
    (tmp_path / "backup").mkdir()
    copy = tmp_path / "backup" / some.name
    copy.write_bytes(some.read_bytes()[:5000])
    checked = check_logs([tmp_path])
    assert len(checked.groups) == 1
    assert checked.violations[0].problem is Problem.LOG


def test_logs_of_many_simulated_runs_pass_together(tmp_path: Path) -> None:
    tried = seeds(6)
    for seed in tried:
        logs = tmp_path / f"seed-{seed}"
        run_group_seed(seed, campaign("join+leave"), range(3, 5), logs=logs)
    checked = check_logs([tmp_path])
    assert checked.violations == ()
    assert len(checked.groups) == len(tried)
