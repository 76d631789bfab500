"""The demo as a person runs it, and what it may not leave behind."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def demo(
    tmp_path: Path, *options: str, environment: Mapping[str, str] = os.environ
) -> Iterator["subprocess.Popen[str]"]:
    """The demo, started in `tmp_path`, with its own place for temporary files."""
    (tmp_path / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "crdtcast", "demo", "--size", "small", "--json", *options],
        cwd=tmp_path,
        env={**environment, "TMPDIR": str(tmp_path / "tmp")},
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
