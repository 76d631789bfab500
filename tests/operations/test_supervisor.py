"""What a service manager is told, and the unit that makes it listen."""

import configparser
import os
import re
import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
import trio.testing
from click.testing import CliRunner

from crdtcast.cli import main
from crdtcast.service.supervisor import Supervisor
from tests.operations.test_run import node

UNIT = Path(__file__).parents[2] / "examples" / "crdtcast@.service"


@contextmanager
def manager(address: str) -> Iterator[socket.socket]:
    """The socket at which a service manager listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(address)
        listening.setblocking(False)
        yield listening


def told(listening: socket.socket) -> list[str]:
    """All that has come so far."""
    found = []
    while True:
        try:
            found += listening.recv(4096).decode().splitlines()
        except BlockingIOError:
            return found


def test_node_notifies_ready_watchdog_and_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "notify"
    monkeypatch.setenv("NOTIFY_SOCKET", os.fspath(place))
    monkeypatch.setenv("WATCHDOG_USEC", "30000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    with manager(os.fspath(place)) as listening:
        eu = node(tmp_path, "eu", found=True)

        async def stop() -> None:
            before: list[str] = []
            while "STATUS=serves" not in before:
                await trio.lowlevel.wait_readable(listening)
                before += told(listening)
            assert before == ["STATUS=starts", "WATCHDOG=1", "READY=1", "STATUS=serves"]
            eu.stop()

        async def life() -> None:
            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(eu.run)
                    nursery.start_soon(stop)

        trio.run(life)
        assert told(listening) == ["STOPPING=1", "STATUS=stops"]


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "10000000"}, [0, 5, 10, 15]),
        ({"WATCHDOG_USEC": "8000000", "WATCHDOG_PID": str(os.getpid())}, [0, 4, 8, 12, 16]),
        ({"WATCHDOG_USEC": "8000000", "WATCHDOG_PID": "1"}, []),
        ({"WATCHDOG_USEC": "soon"}, []),
        ({}, []),
    ],
)
def test_watchdog_is_notified_twice_per_timeout(
    environment: dict[str, str], seconds: list[int]
) -> None:
    address = f"\0crdtcast-test-{os.getpid()}"
    heard = []
    with manager(address) as listening:
        supervisor = Supervisor({"NOTIFY_SOCKET": "@" + address[1:], **environment})

        async def watch() -> None:
            with trio.move_on_after(18):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(supervisor.keep_alive)
                    while True:
                        await trio.testing.wait_all_tasks_blocked()
                        heard.extend(
                            trio.current_time() for line in told(listening) if line == "WATCHDOG=1"
                        )
                        await trio.sleep(1)

        trio.run(watch, clock=trio.testing.MockClock(autojump_threshold=0))
    assert [round(moment - heard[0]) for moment in heard] == seconds


def test_missing_notify_socket_is_tolerated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Supervisor({}).ready()
    assert not caplog.records
    Supervisor({"NOTIFY_SOCKET": os.fspath(tmp_path / "nobody")}).stopping()
    assert ": No such file" in caplog.text


def test_systemd_unit_uses_existing_commands_and_options() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(UNIT)
    service = unit["Service"]
    assert (service["Type"], service["Restart"], service["NotifyAccess"]) == (
        "notify",
        "on-failure",
        "main",
    )
    assert int(service["WatchdogSec"]) > 0
    _, program, command, *options = shlex.split(service["ExecStart"])
    assert (program, command) == ("crdtcast", "%i")
    for member in re.findall(r"crdtcast@(\w+)\.service", UNIT.read_text()):
        help_text = CliRunner().invoke(main, [member, "--help"]).output
        assert all(option in help_text for option in options if option.startswith("--"))


def test_systemd_unit_allows_documented_paths_and_keeps_sockets() -> None:
    service = configparser.ConfigParser(interpolation=None)
    service.optionxform = str  # type: ignore[assignment, method-assign]
    service.read(UNIT)
    unit = service["Service"]
    assert unit["ProtectSystem"] == "strict"
    allowed = {f"/var/lib/{unit['StateDirectory']}", f"/var/log/{unit.get('LogsDirectory')}"}
    root = UNIT.parent.parent
    for page in (root / "README.md", *(root / "docs").glob("*.md")):
        used = set(re.findall(r"/var/(?:lib|log)/crdtcast", page.read_text()))
        assert used <= allowed, page.name
    # A gateway and a node of one machine have their sockets in one directory: who stops must not remove it.
    assert unit.get("RuntimeDirectoryPreserve") == "yes"
