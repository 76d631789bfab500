"""The pytest plugin, run as its users do: in a pytest of its own, with a test file of theirs."""

import os
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = "crdtcast.integrations.pytest_plugin"

THEIRS = """
from hypothesis import strategies as st
from crdtcast.datatypes import AWSet

class RemoveWins(AWSet):
    def obsolete(self, old, new):
        return True

operations = st.tuples(st.sampled_from(["add", "remove"]), st.just("x"))
calls = [("add", "x"), ("remove", "x")]

def add_wins(visible):
    adds = [add for add in visible if add.name == "add"]
    return {"x" for add in adds if not any(add < o for o in visible if o.name == "remove")}

def test_right(crdt):
    print("settings", crdt.examples, crdt.members, crdt.actions, crdt.seed)
    crdt.check(AWSet, operations, add_wins)
    crdt.check(AWSet, operations, add_wins, examples=5, members=2)
    assert crdt.check_every_order(AWSet, calls, add_wins).histories > 50

def test_wrong(crdt):
    crdt.check(RemoveWins, operations, add_wins)

def test_wrong_in_some_order(crdt):
    crdt.check_every_order(RemoveWins, calls, add_wins)
"""


def run(directory: Path, *words: str, ini: str = "", test: str = THEIRS) -> tuple[int, str]:
    (directory / "test_theirs.py").write_text(test)
    (directory / "pytest.ini").write_text(f"[pytest]\naddopts = -rP -p no:cacheprovider\n{ini}")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-p", PLUGIN, *words],
        cwd=directory,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.process
def test_wrong_type_fails_with_its_steps_and_seed(tmp_path: Path) -> None:
    code, output = run(
        tmp_path, "--crdt-examples=30", "--crdt-members=2,4", "--crdt-seed=5", ini="crdt_actions=20"
    )
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "2 failed, 1 passed" in output
    assert "settings 30 (2, 4) 20 5" in output
    assert "RemoveWins failed with seed=5" in output
    assert len(re.findall("RemoveWins, steps taken:", output)) == 2
    assert "a issues add('x') as a:1" in output
    assert output.count("crdtcast: schedules from --crdt-seed=5") == 1


@pytest.mark.process
def test_defaults_and_a_random_seed_that_is_printed(tmp_path: Path) -> None:
    code, output = run(tmp_path, "-k", "right", "--crdt-seed=random", ini="crdt_examples=20")
    assert code == pytest.ExitCode.OK
    drawn = re.search(r"crdtcast: schedules from --crdt-seed=(\d+)", output)
    assert drawn is not None
    assert f"settings 20 (3,) 30 {drawn[1]}" in output


@pytest.mark.process
@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("--crdt-members=3,x", "--crdt-members: 'x' is not a number from 1"),
        ("--crdt-seed=x", "--crdt-seed: 'x' is not a number or 'random'"),
    ],
)
def test_invalid_option_is_named(tmp_path: Path, option: str, says: str) -> None:
    code, output = run(tmp_path, "-k", "right", option)
    assert code != pytest.ExitCode.OK
    assert says in output


@pytest.mark.process
def test_unused_plugin_imports_and_prints_nothing(tmp_path: Path) -> None:
    test = """
import sys
def test_theirs():
    assert not {"trio", "msgpack", "hypothesis"} & set(sys.modules)
    assert [name for name in sys.modules if name.startswith(("crdtcast.t", "crdtcast.d"))] == []
"""
    code, output = run(tmp_path, test=test)
    assert code == pytest.ExitCode.OK, output
    assert "crdtcast:" not in output


def test_plugin_is_registered() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"crdtcast": PLUGIN}
    assert hasattr(import_module(PLUGIN), "pytest_addoption")
