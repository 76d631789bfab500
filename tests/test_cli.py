"""The command line: lazy subcommands, one clear line for every expected failure."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from crdtcast import cli
from crdtcast.exceptions import ConfigurationError, ServerError


@click.command()
@click.argument("way")
def failing(way: str) -> None:
    """Fail in the way asked for."""
    if way == "own":
        raise ConfigurationError("two things\nwere wrong")
    if way == "group":
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [ServerError("server is down")])])
    if way == "mixed":
        raise ExceptionGroup("outer", [ServerError("server is down"), ZeroDivisionError()])
    if way == "lazy":
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")
    raise ZeroDivisionError(way)


@pytest.fixture
def one_subcommand(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cli.Subcommand(module=__name__, attribute="failing", extra="spark", summary="Fails.")
    monkeypatch.setattr(cli, "SUBCOMMANDS", {"fail": here})


def test_help_lists_every_subcommand_without_importing_one() -> None:
    result = CliRunner().invoke(cli.main, ["--help"])
    assert result.exit_code == 0
    for name in cli.SUBCOMMANDS:
        assert name in result.output


def test_misspelt_subcommand_is_answered_with_the_nearest_one() -> None:
    result = CliRunner().invoke(cli.main, ["redsi", "--found"])
    assert result.exit_code == 2 and "no such command 'redsi': did you mean redis?" in result.stderr
    result = CliRunner().invoke(cli.main, ["zzzzzz"])
    assert result.exit_code == 2 and "No such command 'zzzzzz'" in result.stderr


@pytest.mark.parametrize(
    ("way", "line"),
    [
        ("own", "crdtcast: two things were wrong\n"),
        ("group", "crdtcast: server is down\n"),
        (
            "lazy",
            "crdtcast: `crdtcast fail` needs the module 'pyspark', which is not installed: "
            "pip install 'crdtcast[spark]'\n",
        ),
    ],
)
@pytest.mark.usefixtures("one_subcommand")
def test_expected_failure_is_one_line_and_exit_code_2(way: str, line: str) -> None:
    result = CliRunner().invoke(cli.main, ["fail", way])
    assert (result.exit_code, result.stderr, result.stdout) == (2, line, "")


@pytest.mark.parametrize("way", ["mixed", "bug"])
@pytest.mark.usefixtures("one_subcommand")
def test_unexpected_error_is_not_swallowed(way: str) -> None:
    result = CliRunner().invoke(cli.main, ["fail", way])
    assert isinstance(result.exception, ZeroDivisionError | ExceptionGroup)


def test_missing_extra_while_importing_a_subcommand(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = cli.Subcommand(module="no_such_thing.x", attribute="x", extra="redis", summary="-")
    monkeypatch.setattr(cli, "SUBCOMMANDS", {"absent": absent})
    result = CliRunner().invoke(cli.main, ["absent"])
    assert result.exit_code == 2
    assert "pip install 'crdtcast[redis]'" in result.stderr


def test_missing_internal_module_is_reported_as_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = cli.Subcommand(module="crdtcast.no_such", attribute="x", extra="redis", summary="-")
    monkeypatch.setattr(cli, "SUBCOMMANDS", {"broken": broken})
    result = CliRunner().invoke(cli.main, ["broken"])
    assert isinstance(result.exception, ModuleNotFoundError)


def test_unknown_subcommand_is_a_usage_error() -> None:
    result = CliRunner().invoke(cli.main, ["nonsense"])
    assert result.exit_code == 2
    assert "nonsense" in result.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["version"], "wire: "),
        (["config", "check", "node.toml"], 'name = "a"'),
        (["config", "check", "--redis", "node.toml"], "pip install 'crdtcast[redis]'"),
    ],
    ids=["version", "node", "gateway"],
)
def test_commands_for_nodes_run_without_hiredis(
    tmp_path: Path, words: list[str], shown: str
) -> None:
    (tmp_path / "node.toml").write_text('name = "a"\nfounders = ["a=127.0.0.1:7001"]\n')
    program = "import sys; sys.modules['hiredis'] = None; from crdtcast.__main__ import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert shown in done.stdout + done.stderr, done
    assert "Traceback" not in done.stderr
