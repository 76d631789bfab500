"""`crdtcast simulate`: options, configuration files, replays, logs, exit codes."""

import json

import pytest
from click.testing import CliRunner

from crdtcast.baselines.simulator.published_world import BASELINES
from crdtcast.cli import main
from crdtcast.exceptions import ConfigurationError, UnusableInputError
from crdtcast.simulator.plan import RunPlan, load_plan, parse_range


def simulate(*arguments):
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


def last(result):
    return json.loads(result.stdout.splitlines()[-1])


def test_a_campaign_by_name():
    result = simulate("--campaign", "join+leave", "--seeds", "0:5", "--members", "3:4", "--json")
    assert result.exit_code == 0, result.output
    totals = last(result)
    assert (totals["runs"], totals["failures"]) == (6, 0)
    assert totals["stable"] > 0


def test_what_operators_had_to_do_is_told():
    arguments = ["--campaign", "one-eviction", "--seeds", "0:9"]
    totals = last(simulate(*arguments, "--json"))
    assert totals["evict_asked"] > 0
    assert totals["second_steps"] == totals["second_forced"] + totals["second_replaced"]
    said = simulate(*arguments).stdout.splitlines()[-1]
    assert said == (
        f"10 runs, 0 failures; {totals['evict_asked']} evictions asked, {totals['second_steps']} second steps"
        f" ({totals['second_forced']} forced, {totals['second_replaced']} replaced)"
    )
    assert "second_steps" not in last(simulate("--seeds", "0:1", "--json"))  # nobody to evict


@pytest.mark.parametrize("engine", BASELINES)
def test_a_published_engine(engine, tmp_path):
    plan = RunPlan(engine=engine)
    assert plan.run(7).schedule == plan.run(7).schedule
    result = simulate("--engine", engine, "--members", "2:4", "--seeds", "0:19", "--json")
    assert result.exit_code == 0, result.output
    totals = last(result)
    assert totals["runs"] == 20
    assert totals["doubled"] and totals["reordered"]
    assert totals["stable"] == totals["sent"] + totals["delivered"]
    path = tmp_path / "run.json"
    path.write_text(plan.run(7).schedule.to_json(), encoding="utf-8")
    assert simulate("--replay", path).exit_code == 0


def test_faults_choose_the_kind_of_group():
    assert not RunPlan(faults=("loss", "restart")).dynamic
    assert RunPlan(faults=("loss", "join")).dynamic
    assert RunPlan(engine="group", faults=("loss",)).dynamic
    result = simulate("--faults", "loss,join,evict", "--seeds", "0:2", "--members", "3", "--json")
    assert result.exit_code == 0, result.output
    assert "join_asked" in last(result)


@pytest.mark.process
def test_more_processes_make_no_difference():
    arguments = ["--campaign", "static", "--seeds", "0:11", "--members", "3", "--json"]
    assert last(simulate(*arguments)) == last(simulate(*arguments, "--jobs", "2"))


def test_a_mutant_fails_is_written_and_replayed(tmp_path):
    arguments = [
        "--campaign",
        "join+leave",
        "--engine",
        "no-context",
        "--members",
        "3",
        "--seeds",
        "0:9",
    ]
    result = simulate(*arguments, "--write", tmp_path, "--json")
    assert result.exit_code == 1
    assert last(result)["failures"] > 0
    written = sorted(tmp_path.iterdir())
    assert str(written[0]) in result.stdout
    again = simulate("--replay", written[0])
    assert again.exit_code == 1
    assert "1 runs, 1 failures" in again.stdout


def test_logs_are_those_of_real_nodes(tmp_path):
    arguments = ["--campaign", "join+leave", "--seeds", "0:3", "--members", "3", "--logs", tmp_path]
    assert simulate(*arguments).exit_code == 0
    runs = sorted(tmp_path.iterdir())
    assert [run.name for run in runs] == [f"seed-{n}" for n in range(4)]
    for run in runs:
        checked = CliRunner().invoke(main, ["check", str(run)])
        assert checked.exit_code == 0, checked.output


def test_a_scope():
    result = simulate("--exhaustive", "replace", "--json")
    assert result.exit_code == 0
    assert "replace: all" in result.stdout
    assert last(result)["states replace"] > 10
    assert simulate("--exhaustive", "sends", "--engine", "no-context").exit_code == 1
    assert "the first 5 states" in simulate("--exhaustive", "mutual", "--limit", "5").stdout


def test_a_configuration_file(tmp_path):
    path = tmp_path / "campaign.toml"
    path.write_text(
        'seeds = "0:3"\nmembers = "3"\ncampaign = "two-evictions"\nfaults = ["loss", "evict"]\n'
        "witnesses = 0\n[limits]\nevictions = 1\n",
        encoding="utf-8",
    )
    plan = RunPlan(**load_plan(path))
    assert plan.seeds == range(4)
    assert plan.faults == ("loss", "evict")
    result = simulate("--config", path, "--seeds", "0:1", "--json")
    assert result.exit_code == 0, result.output
    assert last(result)["runs"] == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("seed = 1", "unknown key 'seed'"),
        ("seeds =", "cannot read"),
        ('faults = "loss"', "faults is a list"),
        ('[limits]\nevictions = "many"', r"\[limits\] holds numbers"),
    ],
)
def test_a_file_that_makes_no_sense(tmp_path, text, says):
    path = tmp_path / "campaign.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UnusableInputError, match=says):
        load_plan(path)
    assert simulate("--config", path).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--campaign", "nonsense"], "unknown campaign 'nonsense'"),
        (["--engine", "nonsense"], "unknown engine 'nonsense'"),
        (["--engine", "names", "--campaign", "static"], "fixed set of members"),
        (["--faults", "gremlins"], "unknown fault 'gremlins'"),
        (["--members", "0"], "members must be 1 to"),
        (["--members", "x"], "crdtcast simulate: 'x' is not FIRST:LAST"),
        (["--members", "9:3"], "the smaller number comes first, 3:9"),
        (["--engine", "cbcast", "--campaign", "restart"], "cannot run the campaign 'restart'"),
        (["--engine", "graph", "--faults", "loss"], "cannot run the fault 'loss'"),
        (["--engine", "graph", "--members", "1"], "needs 2 members"),
        (["--exhaustive", "nonsense"], "unknown scope 'nonsense'"),
        (["--jobs", "0"], "Invalid value"),
    ],
)
def test_options_that_make_no_sense(arguments, says):
    result = simulate(*arguments)
    assert result.exit_code == 2
    assert says in result.output


def test_limits_have_names():
    with pytest.raises(ConfigurationError, match="unknown limit 'wars'"):
        RunPlan(campaign="static", limits={"wars": 1})
    assert parse_range("2:4") == range(2, 5)
    assert parse_range(7) == range(7, 8)
