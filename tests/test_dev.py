"""dev.py: readable to old Pythons, and an environment is made anew exactly when it has to be."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

DEV = Path(__file__).parents[1] / "dev.py"


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """dev.py as a module, with its environment below `tmp_path`."""
    monkeypatch.setenv("CRDTCAST_DEV_DIR", str(tmp_path))
    spec = importlib.util.spec_from_file_location("dev", DEV)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_dev_py_parses_on_old_pythons() -> None:
    ast.parse(DEV.read_text(), feature_version=(3, 7))


def test_dev_py_uses_only_the_standard_library() -> None:
    names = {
        name
        for node in ast.walk(ast.parse(DEV.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


def test_environment_is_ready_only_for_its_own_stamp(
    dev: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamp = dev.wanted()
    assert not dev.is_ready(stamp)
    dev.PYTHON.parent.mkdir(parents=True)
    dev.PYTHON.touch()
    dev.STAMP.write_text(stamp)
    assert dev.is_ready(dev.wanted())
    monkeypatch.setattr(dev.sys, "version", "another Python")
    assert not dev.is_ready(dev.wanted())


@pytest.mark.process
def test_a_step_that_fails_shows_the_end_of_its_output(
    dev: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = "print('the reason'); raise SystemExit(3)"
    with open(tmp_path / "log", "w") as log, pytest.raises(SystemExit, match="installation failed"):
        dev.step([sys.executable, "-c", program], log)
    assert "the reason" in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "code"), [(["--help"], 0), ([], 0), (["nonsense"], 2), (["run"], 1)]
)
def test_usage(arguments: list[str], code: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, DEV, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == code
    assert "dev.py" in done.stdout + done.stderr


def test_compiled_modules_are_kept_and_not_in_the_checkout(
    dev: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    variables = dev.environment()
    assert "PYTHONDONTWRITEBYTECODE" not in variables
    assert Path(variables["PYTHONPYCACHEPREFIX"]).parent == tmp_path
