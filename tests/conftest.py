"""What all tests share: how much they try (`effort.py`), which of them may start processes, and which of them run in
the same worker.
"""

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from crdtcast.adapters.redis.server.embedded import EmbeddedServer
from tests import pieces, preloaded, servers
from tests.effort import EFFORT, Seeds, examples
from tests.scheduling import ByFile, place_of, workers

# No deadline, since a busy machine is no defect. A failing property prints the blob that repeats it.
settings.register_profile(
    "crdtcast",
    deadline=None,
    print_blob=True,
    max_examples=examples(100),
    derandomize=EFFORT.name != "fuzz",
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("crdtcast")

NEEDS_A_PROCESS = {
    *("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system"),
    servers.AUDIT_EVENT,
}
"""Audit events of a test that is to be marked `process`."""

_unmarked: str | None = None
"""The test that is running, if it may not start processes."""


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _unmarked is not None and event in NEEDS_A_PROCESS:
        raise RuntimeError(f"{_unmarked} needs a process ({event}): mark it `process`")


sys.addaudithook(_watch)
pieces.use()
preloaded.use()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Modules and tests stay to the end: none of them is garbage now, and later none is looked at."""
    gc.disable()
    try:
        return (yield)
    finally:
        _keep()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """What outlives a file, as reports and caches do, stays as well: without this, collections take ever longer."""
    yield
    if nextitem is None or nextitem.path != item.path:
        _keep()


def _keep() -> None:
    """Take what is alive for what stays: no later collection looks at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    """A running, empty server, which other tests have used and will use."""
    with servers.borrowed() as borrowed:
        yield borrowed


@pytest.fixture
def short_path() -> Iterator[Path]:
    """As `tmp_path`, for what makes sockets some levels below: their paths have about 100 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="crdtcast-") as directory:
        yield Path(directory)


def pytest_sessionfinish() -> None:
    servers.stop_all()
    preloaded.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(str(EFFORT))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _unmarked
    Seeds.taken = None
    _unmarked = None if item.get_closest_marker("process") else item.nodeid
    try:
        return (yield)
    finally:
        _unmarked = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed and Seeds.taken is not None:
        report.sections.append(("seed", f"{Seeds.taken} ({EFFORT})"))
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave slow tests out unless the effort asks for them. Files that take long begin first, then processes."""
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow and not EFFORT.runs_slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
    with_processes = {item.path for item in items if item.get_closest_marker("process")}
    place = {path: place_of(path.as_posix()) for path in {item.path for item in items}}
    items.sort(key=lambda item: (place[item.path], item.path not in with_processes))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    return workers(len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    return ByFile(config, log)
