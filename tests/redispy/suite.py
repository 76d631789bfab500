"""redis-py's own tests, from its published source, in an environment of their own.

Nothing of that source is kept in the repository: pip downloads the source distribution of exactly the version that is
installed here, once, into the directory of the development environment.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
VERSION = version("redis")
NEEDS = (
    *(f"redis=={VERSION}", f"hiredis=={version('hiredis')}", "packaging>=24"),
    *("pytest>=8", "pytest-asyncio>=0.24", "pytest-timeout>=2.3"),
)
CORE = ("tests/test_pipeline.py", "tests/test_encoding.py")
"""What every run tries: a gateway is sent the same by the asynchronous client."""
WHOLE = (
    *CORE,
    *("tests/test_asyncio/test_pipeline.py", "tests/test_asyncio/test_encoding.py"),
    *("tests/test_connection.py", "tests/test_connection_pool.py", "tests/test_commands.py"),
    *("tests/test_multiprocessing.py", "tests/test_asyncio/test_connection.py"),
    *("tests/test_pubsub.py", "tests/test_asyncio/test_pubsub.py"),
    *("tests/test_asyncio/test_connection_pool.py", "tests/test_asyncio/test_commands.py"),
)
"""What a run with more effort tries."""
NOT_FOR_ONE_SERVER = "not onlycluster and not redismod and not ssl and not cp_integration"
LIMIT = 900.0
"""Seconds that the whole run may take before it is ended."""


class NotAvailableError(Exception):
    """The source, or what its tests need, cannot be had from the package index."""


@dataclass(slots=True)
class Outcome:
    """What became of one test: `passed`, `skipped` or `failed`, and the errors of its phases, with their causes."""

    result: str = "passed"
    errors: list[str] = field(default_factory=list)


def prepared() -> Path:
    """The directory with redis-py's tests, and its environment in `venv`. Raises NotAvailableError."""
    cache = Path(os.environ.get("CRDTCAST_DEV_DIR") or ROOT / ".dev") / f"redispy-{VERSION}"
    ready, wanted = cache / "ready", "\n".join(NEEDS)
    if ready.exists() and ready.read_text() == wanted:
        return cache
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir(parents=True)
    words = ["download", "--no-deps", "--no-binary", "redis", f"redis=={VERSION}"]
    _pip(*words, "--dest", str(cache))
    (source,) = cache.glob("redis-*.tar.gz")
    with tarfile.open(source) as archive:
        for member in archive.getmembers():
            path = member.name.partition("/")[2]
            if path == "pyproject.toml" or path.startswith("tests/"):  # not redis itself
                archive.extract(member.replace(name=path), cache, filter="data")
    _run([sys.executable, "-m", "venv", "--without-pip", str(cache / "venv")])
    _pip("--python", str(cache / "venv" / "bin" / "python"), "install", *NEEDS)
    ready.write_text(wanted)
    return cache


def _pip(*words: str) -> None:
    _run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *words])


def _run(words: list[str]) -> None:
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
        raise NotAvailableError(f"{' '.join(words)} failed:\n{last}")


def run(port: int, protocol: int, files: Iterable[str], outcomes: Path) -> dict[str, Outcome]:
    """Run these files against a gateway's port, in RESP2 or RESP3. What became of each test goes to `outcomes`, too.

    Raises RuntimeError with the end of the output if the run does not come to its end.
    """
    source = prepared()
    outcomes.write_text("")
    words = [
        str(source / "venv" / "bin" / "python"),
        "-m",
        "pytest",
        "-p",
        "plugin",
        "--timeout=60",
    ]
    words += ["-p", "no:cacheprovider", "-q", "--tb=native", "-m", NOT_FOR_ONE_SERVER]
    words += [f"--redis-url=redis://127.0.0.1:{port}/0"]
    # 3 is the default; said expressly, redis-py gives replies another shape.
    words += ["--protocol=2"] if protocol == 2 else []
    words += files
    variables = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}
    variables |= {"PYTHONPATH": str(HERE), "REDISPY_OUTCOMES": str(outcomes)}
    done = subprocess.run(
        words,
        cwd=source,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT,
    )
    if done.returncode not in (0, 1):  # pytest: all passed, some failed
        end = done.stdout.decode(errors="replace")[-3000:]
        raise RuntimeError(f"redis-py's tests ended with code {done.returncode}:\n{end}")
    found: dict[str, Outcome] = {}
    for line in outcomes.read_text().splitlines():
        told = json.loads(line)
        outcome = found.setdefault(told["test"], Outcome())
        if outcome.result != "failed":
            outcome.result = told["outcome"]
        outcome.errors += told["errors"]
    return found
