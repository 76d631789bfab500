"""The whole demo as a person runs it: its last line, its exit code, and that it leaves nothing
behind.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc"),
]


@contextmanager
def demo(tmp_path: Path, *options: str) -> Iterator["subprocess.Popen[str]"]:
    """The demo, started in `tmp_path`, with its own place for temporary files."""
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "crdtcast", "demo", "--size", "small", "--json", *options],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def left_behind(tmp_path: Path) -> list[str]:
    """Temporary files, and processes whose command line names this test's directory."""
    found = [str(path) for path in (tmp_path / "tmp").iterdir() if "hsperf" not in path.name]
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes()
        except OSError:  # it has just ended
            continue
        if str(tmp_path).encode() in words:
            found.append(words.decode(errors="replace").replace("\0", " "))
    return found


def assert_good(result: dict[str, Any], audit: str) -> None:
    assert result["ok"] is True
    assert result["audit"] == audit
    assert result["differences"] == 0
    assert result["metadata_left"] == {"keys": 0, "bytes": 0}
    assert result["operations"] > 12_000
    assert result["operations_while_cut_off"] > 0
    assert 0 < result["convergence_seconds"] < result["seconds"]


def test_three_regions_converge_to_the_exact_counts(tmp_path: Path) -> None:
    with demo(tmp_path, "--no-audit") as process:
        stdout, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr + stdout
    assert_good(json.loads(stdout.splitlines()[-1]), "skipped")
    assert left_behind(tmp_path) == []


@pytest.mark.spark
def test_the_audit_is_clean_and_leaves_a_report(tmp_path: Path) -> None:
    with demo(tmp_path, "--out", "here") as process:
        stdout, stderr = process.communicate(timeout=400)
    assert process.returncode == 0, stderr + stdout
    result = json.loads(stdout.splitlines()[-1])
    assert_good(result, "clean")
    assert result["report"] == str(tmp_path / "here" / "report.html")
    assert "<html" in Path(result["report"]).read_text()
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("scene", "number"),
    [("Starting three servers", signal.SIGTERM), ("Counting words", signal.SIGINT)],
)
def test_a_signal_ends_everything_that_was_started(
    tmp_path: Path, scene: str, number: signal.Signals
) -> None:
    with demo(tmp_path, "--no-audit") as process:
        assert process.stderr is not None
        for line in process.stderr:
            if scene in line:
                process.send_signal(number)
                break
        stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr + stdout
    assert "interrupted" in stderr
    assert left_behind(tmp_path) == []
