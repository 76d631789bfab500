"""What users get: the sdist, the wheel made from it, and both work without the checkout."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.packaging]

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("crdtcast", "adapters", "datatypes", "integrations")
IMPORT_ALL = """
import importlib, pathlib, pkgutil, crdtcast
root = pathlib.Path(crdtcast.__file__).parent
print(root)
for module in pkgutil.walk_packages(crdtcast.__path__, "crdtcast."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
        print(module.name)
"""

USES = """
from crdtcast import Replica
from crdtcast.adapters.redis.cluster import LocalCluster
from crdtcast.datatypes import AWSet
from crdtcast.integrations.spark.findings import Finding

async def buy(replica: Replica) -> None:
    await replica.object("cart", AWSet).ad("milk")
"""

TESTS_FOR_THE_WHEEL = (
    "conftest.py",
    "effort.py",
    "pieces.py",
    "preloaded.py",
    "scheduling.py",
    "servers.py",
    "datatypes/test_pure.py",
    "test_backoff.py",
    "test_cli.py",
    "test_hlc.py",
    "test_public_names.py",
    "test_wire.py",
    "view_values.py",
)


def run(words: Sequence[str | Path], directory: Path) -> str:
    """The output of a program that knows nothing of the checkout; a failed test if it fails."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=directory,
        env=kept | {"HOME": str(directory), "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, f"{words} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="session")
def tracked() -> list[str]:
    """Paths of the files that git tracks and that are there, below the root."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: nothing to compare the distributions with")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [name for name in listing.stdout.split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="session")
def source(tracked: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tracked files alone, so that no stale build gets in."""
    source = tmp_path_factory.mktemp("source")
    for name in tracked:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
    return source


@pytest.fixture(scope="session")
def sdist(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    out = tmp_path_factory.mktemp("sdist")
    run([sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", out], source)
    (built,) = out.glob("*.tar.gz")
    return built


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from the source distribution, as an installer without our wheel would."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    shutil.unpack_archive(sdist, unpacked, filter="data")
    (source,) = unpacked.iterdir()
    out = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", out], source)
    (built,) = out.glob("*.whl")
    return built


def environment_with(
    words: Sequence[str | Path], directory: Path, *, dependencies_from_here: bool
) -> Path:
    """The Python of a new virtual environment in which pip has installed what the words say.

    With `dependencies_from_here` everything else comes from the environment that runs the tests;
    without, from the package index, and only what the core asks for.
    """
    venv.create(directory, with_pip=False)
    python = directory / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-input", "--quiet"]
    if dependencies_from_here:
        run([*pip, "--no-deps", *words], directory)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        # Python reads .pth files in its own folder only, so the checkout that is installed for
        # development over there stays out of sight here.
        found = directory / "lib" / version / "site-packages" / "dependencies.pth"
        found.write_text(sysconfig.get_path("purelib") + "\n")
    else:
        run([*pip, *words], directory)
    return python


@pytest.fixture(scope="session")
def full(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel and all dependencies."""
    return environment_with([wheel], tmp_path_factory.mktemp("full"), dependencies_from_here=True)


@pytest.fixture(scope="session")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel and what it strictly depends on."""
    return environment_with([wheel], tmp_path_factory.mktemp("core"), dependencies_from_here=False)


@pytest.fixture(scope="session")
def editable(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with an editable install of the source, and all dependencies."""
    directory = tmp_path_factory.mktemp("editable")
    return environment_with(["--editable", source], directory, dependencies_from_here=True)


def installed_names(tracked: list[str]) -> set[str]:
    """Where each tracked file of the packages belongs below the installed `crdtcast`."""
    names = set()
    for name in tracked:
        folder = name.partition("/")[0]
        if folder in FOLDERS and "/" in name and not (ROOT / name).is_symlink():
            names.add(name if folder == "crdtcast" else f"crdtcast/{name}")
    return names


def test_the_wheel_has_exactly_the_tracked_files(wheel: Path, tracked: list[str]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        packaged = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = installed_names(tracked)
    assert packaged == wanted, (
        f"missing from the wheel: {sorted(wanted - packaged)} (is each package listed in "
        f"pyproject.toml?); untracked in the wheel: {sorted(packaged - wanted)}"
    )


def test_the_wheel_carries_its_licence_and_readme(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = (name for name in archive.namelist() if name.endswith("LICENSE"))
        assert archive.read(licence) == (ROOT / "LICENSE").read_bytes()
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        assert (ROOT / "README.md").read_text() in archive.read(metadata).decode()


def test_the_sdist_has_every_packaged_file(sdist: Path, tracked: list[str]) -> None:
    with tarfile.open(sdist) as archive:
        members = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert installed_names(tracked) <= members
    assert {"pyproject.toml", "README.md", "LICENSE"} <= members


def test_every_module_imports_from_the_wheel(full: Path, tmp_path: Path) -> None:
    lines = run([full, "-W", "error", "-c", IMPORT_ALL], tmp_path).splitlines()
    assert not Path(lines[0]).is_relative_to(ROOT), "the checkout was imported, not the wheel"
    assert {"crdtcast.adapters.redis.commands.table", "crdtcast.cli"} <= set(lines[1:])


def checked(python: Path, words: Sequence[str], directory: Path) -> str:
    """What a type checker says about code that runs with this Python."""
    path = {"PATH": f"{python.parent}:{os.environ['PATH']}"}  # where pyright looks for it
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=directory,
        env=os.environ | path,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def test_every_public_name_of_the_wheel_has_a_type(full: Path, tmp_path: Path) -> None:
    words = ["basedpyright", "--verifytypes", "crdtcast", "--ignoreexternal", "--outputjson"]
    found = json.loads(checked(full, words, tmp_path))["typeCompleteness"]
    assert Path(found["packageRootDirectory"]).is_relative_to(full.parents[1])
    symbols = {symbol["name"]: symbol for symbol in found["symbols"]}
    assert "crdtcast.adapters.redis.gateway.Gateway.run" in symbols
    untyped = [
        f"{name}: {diagnostic['message']}"
        for name, symbol in symbols.items()
        if symbol["isTypeAmbiguous"] or not symbol["isTypeKnown"]
        for diagnostic in symbol["diagnostics"]
    ]
    assert not untyped, "\n".join(untyped)
    assert found["completenessScore"] == 1


def test_type_checkers_see_an_editable_install(editable: Path, tmp_path: Path) -> None:
    (tmp_path / "uses.py").write_text(USES)
    mypy = ["mypy", "--strict", "--output", "json", "--python-executable", str(editable), "uses.py"]
    errors = [json.loads(line) for line in checked(editable, mypy, tmp_path).splitlines()]
    assert [(error["line"], error["code"]) for error in errors] == [(8, "attr-defined")]
    pyright = ["basedpyright", "--level", "error", "--outputjson", "uses.py"]
    errors = json.loads(checked(editable, pyright, tmp_path))["generalDiagnostics"]
    places = [(error["range"]["start"]["line"] + 1, error["rule"]) for error in errors]
    assert places == [(8, "reportAttributeAccessIssue")]


def test_some_tests_pass_against_the_wheel(full: Path, tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in TESTS_FOR_THE_WHEEL:
        assert (ROOT / "tests" / name).exists()
        run(["cp", "-R", ROOT / "tests" / name, tests], tmp_path)
    options = ["-W", "error", "-p", "no:cacheprovider", "--rootdir", tmp_path, "-n", "0"]
    options += ["-c", ROOT / "pyproject.toml", "--import-mode=importlib"]
    output = run([full, "-m", "pytest", *options, tests], tmp_path)
    assert " passed" in output


def test_the_core_alone_imports_and_needs_no_extra(core: Path, tmp_path: Path) -> None:
    program = "import crdtcast, sys; print(crdtcast.__file__, 'redis' in sys.modules)"
    output = run([core, "-W", "error", "-c", program], tmp_path)
    assert not Path(output.split()[0]).is_relative_to(ROOT)


def test_command_without_its_extra_says_what_to_install(core: Path, tmp_path: Path) -> None:
    command = core.parent / "crdtcast"
    done = subprocess.run([command, "demo"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "crdtcast: the command line is not installed: pip install 'crdtcast[cli]'\n"
    )


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("adapters.pycrdt", "pycrdt"),
        ("integrations.prometheus", "prometheus"),
        ("integrations.spark.audit", "spark"),
    ],
)
def test_import_without_its_extra_says_what_to_install(
    core: Path, tmp_path: Path, module: str, extra: str
) -> None:
    command = [core, "-c", f"import crdtcast.{module}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.endswith(f"is not installed: pip install 'crdtcast[{extra}]'\n")


def test_the_command_runs_from_the_wheel(full: Path, tmp_path: Path) -> None:
    assert "redis" in run([full.parent / "crdtcast", "--help"], tmp_path)
