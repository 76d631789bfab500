"""The README's example runs, ends by itself, and shows three replicas in agreement."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[1]


def test_three_replicas_in_one_process_print_the_same() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "embedding.py")],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names, states = zip(*(line.split(" ", 1) for line in done.stdout.splitlines()), strict=True)
    assert names == ("eu", "us", "asia")
    assert set(states) == {"['milk from asia', 'milk from eu', 'milk from us'] 30"}
    assert done.stderr == ""
