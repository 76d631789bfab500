"""Type checkers find the mistakes in uses of handles, and nothing in correct ones, nor in examples and tutorials."""

import importlib.util
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import tutorials

pytestmark = [pytest.mark.process, pytest.mark.packaging]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MISTAKES, CORRECT = "mistakes.py", "correct_uses.py"

Found = Mapping[tuple[str, int], set[str]]
"""By file and line, the errors."""


def run(*words: object) -> str:
    return subprocess.run(
        [sys.executable, "-m", *map(str, words)], cwd=ROOT, capture_output=True, text=True
    ).stdout


def found_by_mypy() -> Found:
    out = run("mypy", "--strict", "--output", "json", HERE / MISTAKES, HERE / CORRECT)
    found = defaultdict(set)
    for error in map(json.loads, out.splitlines()):
        if error["severity"] == "error":
            found[Path(error["file"]).name, error["line"]].add(error["code"])
    return found


def found_by_pyright() -> Found:
    out = run("basedpyright", "-p", HERE, "--pythonpath", sys.executable, "--outputjson")
    found = defaultdict(set)
    for error in json.loads(out)["generalDiagnostics"]:
        line = error["range"]["start"]["line"] + 1
        found[Path(error["file"]).name, line].add(error.get("rule", error["message"]))
    return found


def expected() -> dict[int, list[str]]:
    """By line, the errors in the comment on it."""
    lines = (HERE / MISTAKES).read_text().splitlines()
    marks = {number: re.search(r"# error: (.*)", line) for number, line in enumerate(lines, 1)}
    return {number: mark[1].split(", ") for number, mark in marks.items() if mark}


def check(found: Found, errors: Mapping[int, str]) -> None:
    """Each mistake is found as what it is, and nothing else."""
    missed = {n: error for n, error in errors.items() if error not in found.get((MISTAKES, n), ())}
    wrong = {
        place: rules
        for place, rules in found.items()
        if place[0] == CORRECT or place[1] not in errors
    }
    assert (missed, wrong) == ({}, {})


def test_every_mistake_is_expected_of_both() -> None:
    assert len(expected()) > 40
    assert all(
        len(errors) == 2 and not errors[0].startswith("report") and errors[1].startswith("report")
        for errors in expected().values()
    )


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy_finds_the_mistakes() -> None:
    check(found_by_mypy(), {line: error for line, (error, _) in expected().items()})


@pytest.mark.skipif(importlib.util.find_spec("basedpyright") is None, reason="no basedpyright")
def test_pyright_finds_the_mistakes() -> None:
    check(found_by_pyright(), {line: error for line, (_, error) in expected().items()})


def samples(folder: Path) -> list[Path]:
    """All examples, and the files of the tutorials."""
    examples = sorted((ROOT / "examples").rglob("*.py"))
    pages = sorted((ROOT / "docs").glob("tutorial-*.md"))
    saved = [file for page in pages for file in tutorials.save(page.read_text(), folder)]
    assert len(examples) > 10 and len(saved) > 2
    return examples + saved


@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_mypy_finds_nothing_in_the_samples(tmp_path: Path) -> None:
    assert "Success" in (out := run("mypy", "--strict", *samples(tmp_path))), out


@pytest.mark.skipif(importlib.util.find_spec("basedpyright") is None, reason="no basedpyright")
def test_pyright_finds_nothing_in_the_samples(tmp_path: Path) -> None:
    settings = {
        "include": [str(file) for file in samples(tmp_path)],
        "extraPaths": [str(ROOT), str(ROOT / "examples")],
        "typeCheckingMode": "standard",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    words = ["-p", tmp_path, "--pythonpath", sys.executable, "--level", "error", "--outputjson"]
    errors = json.loads(run("basedpyright", *words))["generalDiagnostics"]
    assert not errors, "\n".join(f"{each['file']}: {each['message']}" for each in errors)
