"""`crdtcast simulate`: options, configuration files, replays, logs, exit codes."""

import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from crdtcast.cli import main
from crdtcast.exceptions import ConfigurationError, UnusableInputError
from crdtcast.simulator.plan import RunPlan, load_plan, parse_range

NO_CONTEXT = "tests.simulator.mutants:NoContext"


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


def test_summary_counts_the_steps_of_operators():
    arguments = ["--campaign", "one-eviction", "--seeds", "0:9"]
    totals = last(simulate(*arguments, "--json"))
    assert totals["evict_asked"] > 0
    assert totals["second_steps"] == totals["second_forced"] + totals["second_replaced"]
    said = simulate(*arguments).stdout.splitlines()[-1]
    assert said == (
        f"10 runs, 0 failures; {totals['evict_asked']} evictions asked, {totals['second_steps']} second steps"
        f" ({totals['second_forced']} forced, {totals['second_replaced']} replaced)"
    )


def test_faults_instead_of_a_campaign():
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
        NO_CONTEXT,
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


def test_the_page_shows_an_engine_that_fails():
    page = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    shown = re.findall(r"^crdtcast simulate (.* --engine .*)$", page, re.MULTILINE)
    assert len(shown) == 1
    result = simulate(*shown[0].split())
    assert result.exit_code == 1
    assert "seed 4: tag:" in result.stdout and "5 runs, 1 failures" in result.stdout


def test_an_engine_of_your_own_is_found_where_the_command_runs(tmp_path, monkeypatch):
    (tmp_path / "my_engine.py").write_text(
        "from crdtcast.engine.group import GroupEngine\n\n\n"
        "class Fragile(GroupEngine):\n    def tick(self):\n        raise ZeroDivisionError\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    result = simulate("--engine", "my_engine:Fragile", "--seeds", "0:0", "--write", "failed")
    assert "seed 0: ZeroDivisionError" in result.stdout
    (written,) = (tmp_path / "failed").iterdir()
    assert json.loads(written.read_text())["engine"] == "my_engine:Fragile"
    assert simulate("--replay", written).exit_code == 1


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
    assert simulate("--exhaustive", "sends", "--engine", NO_CONTEXT).exit_code == 1
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
def test_invalid_configuration_file_is_refused(tmp_path, text, says):
    path = tmp_path / "campaign.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UnusableInputError, match=says):
        load_plan(path)
    assert simulate("--config", path).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--campaign", "nonsense"], "unknown campaign 'nonsense'"),
        (["--engine", "nonsense"], "cannot import the engine 'nonsense'"),
        (["--engine", "nonsense:Engine"], "No module named 'nonsense': write module:Class"),
        (["--engine", "crdtcast.engine:Nonsense"], "no attribute 'Nonsense': write module:Class"),
        (["--engine", "crdtcast.engine:__doc__"], "is not a class"),
        (["--engine", "crdtcast.engine:Engine"], "name a subclass of GroupEngine"),
        (
            ["--campaign", "hostile", "--engine", "tests.simulator.mutants:CopiesToAny"],
            "name a subclass of GroupEngine",
        ),
        (
            ["--campaign", "static", "--engine", "tests.simulator.mutants:KeepsItsId"],
            "name a subclass of GroupEngine",
        ),
        (["--faults", "gremlins"], "unknown fault 'gremlins'"),
        (["--members", "0"], "members must be 1 to"),
        (["--members", "x"], "crdtcast simulate: 'x' is not FIRST:LAST"),
        (["--members", "9:3"], "the smaller number comes first, 3:9"),
        (["--exhaustive", "nonsense"], "unknown scope 'nonsense'"),
        (["--jobs", "0"], "Invalid value"),
    ],
)
def test_invalid_options_exit_with_code_2(arguments, says):
    result = simulate(*arguments)
    assert result.exit_code == 2
    assert says in result.output


def test_limits_have_names():
    with pytest.raises(ConfigurationError, match="unknown limit 'wars'"):
        RunPlan(campaign="static", limits={"wars": 1})
    assert parse_range("2:4") == range(2, 5)
    assert parse_range(7) == range(7, 8)
