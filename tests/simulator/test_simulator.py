"""Replay, shrinking, the command line, and that a seed or a schedule means the same run everywhere."""

import json
import os
import subprocess
import sys

import pytest

from crdtcast.baselines.simulator.world import World
from crdtcast.engine import Durability
from crdtcast.exceptions import ConfigurationError, UnusableInputError
from crdtcast.simulator.__main__ import main
from crdtcast.simulator.campaign import run_schedule, run_seed
from crdtcast.simulator.faults import Faults
from crdtcast.simulator.schedule import Schedule
from crdtcast.simulator.shrink import shrink
from tests.effort import seeds

from .traces import Trace, load, replay

ALL = Faults.named(("loss", "duplicate", "reorder", "partition", "restart"))
REORDER = Faults.named(("reorder",))


@pytest.mark.parametrize("seed", seeds(6))
def test_the_actions_of_a_run_replay_it(seed):
    outcome = run_seed(seed, 3, ALL)
    again = run_schedule(outcome.schedule)
    assert again.counts == outcome.counts
    assert again.schedule == outcome.schedule


def test_a_failure_is_shrunk_to_what_matters_and_survives_a_file(tmp_path):
    engine = "no-context"
    outcome = next(o for s in range(100) if (o := run_seed(s, 3, REORDER, engine=engine)).kind)
    shrunk = shrink(outcome)
    assert shrunk.kind == outcome.kind
    assert len(shrunk.schedule.actions) < 12 < len(outcome.schedule.actions)
    path = tmp_path / "run.json"
    path.write_text(shrunk.schedule.to_json(shrunk.failure), encoding="utf-8")
    again = run_schedule(Schedule.load(path))
    assert (again.kind, again.failure) == (shrunk.kind, shrunk.failure)
    for n in range(len(shrunk.schedule.actions)):
        actions = shrunk.schedule.actions
        fewer = run_schedule(shrunk.schedule.with_actions(actions[:n] + actions[n + 1 :]))
        assert fewer.kind != shrunk.kind, "every action left is needed"


def test_what_is_impossible_does_nothing():
    world = World(("a", "b"), Durability.IMMEDIATE)
    assert not world.apply(("net", "a", "b", 99))
    assert not world.apply(("link", "a", "b"))
    assert world.apply(("cut", "a", "b"))
    assert not world.apply(("cut", "a", "b"))
    assert not world.apply(("poll", "a"))
    assert not world.apply(("stable", "a"))
    world.drain()


@pytest.mark.parametrize("durability", Durability, ids=lambda d: d.value)
@pytest.mark.parametrize("trace", load("schedule"), ids=str)
def test_schedules_that_break_published_algorithms_do_not_break_ours(
    trace: Trace, durability: Durability
):
    """Joins, leaves and evictions in them are passed over: the set of names is fixed so far."""
    world = replay(trace, durability)
    assert not world.checker.findings


def fingerprint(hash_seed: str) -> str:
    program = (
        "import hashlib, json\n"
        "from crdtcast.simulator.campaign import run_seed\n"
        "from crdtcast.simulator.faults import Faults\n"
        "from crdtcast.simulator.faults import ALL\n"
        "for seed in range(4):\n"
        "    o = run_seed(seed, 4, Faults.named(ALL))\n"
        "    text = o.schedule.to_json() + json.dumps(sorted(o.counts.items()))\n"
        "    print(hashlib.sha256(text.encode()).hexdigest())\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return result.stdout


@pytest.mark.process
def test_runs_do_not_depend_on_the_hash_seed():
    assert fingerprint("1") == fingerprint("4242")


class TestCommandLine:
    def test_a_clean_campaign(self, capsys):
        assert main(["--seeds", "0:4", "--members", "3", "--json"]) == 0
        last = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert (last["runs"], last["failures"]) == (5, 0)
        assert last["delivered"] > 0

    def test_a_failure_is_shrunk_written_and_replayed(self, capsys, tmp_path):
        arguments = ["--seeds", "10:19", "--faults", "reorder", "--engine", "no-context"]
        assert main([*arguments, "--write", str(tmp_path), "--json"]) == 1
        output = capsys.readouterr().out
        assert json.loads(output.splitlines()[-1])["failures"] > 0
        written = sorted(tmp_path.iterdir())
        assert written
        assert str(written[0]) in output
        assert main(["--replay", str(written[0])]) == 1
        assert "1 runs, 1 failures" in capsys.readouterr().out

    def test_what_makes_no_sense(self, capsys, tmp_path):
        assert main(["--faults", "gremlins"]) == 2
        assert "unknown fault 'gremlins'" in capsys.readouterr().err
        broken = tmp_path / "broken.json"
        broken.write_text("{}", encoding="utf-8")
        assert main(["--replay", str(broken)]) == 2
        assert main(["--seeds", "9:1"]) == 2


def test_faults_by_name():
    assert Faults.named(("loss", "restart")).names == ("loss", "restart")
    assert Faults.named(()).names == ()
    with pytest.raises(ConfigurationError):
        Faults.named(("nonsense",))


def test_a_file_of_another_format_is_refused(tmp_path):
    path = tmp_path / "run.json"
    path.write_text('{"format": 99}', encoding="utf-8")
    with pytest.raises(UnusableInputError, match="format 99"):
        Schedule.load(path)
