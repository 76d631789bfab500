"""Nodes that found their group together: `crdtcast node --founders`."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from crdtcast import CrdtcastError
from crdtcast.ports import free_ports
from tests.operations.processes import Running, killed_at_the_end


@pytest.mark.process
def test_three_nodes_found_together_and_one_returns_to_its_place(tmp_path: Path) -> None:
    names = ("asia", "eu", "us")
    at = {
        name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)
    }
    founders = ",".join(f"{name}={address}" for name, address in at.items())

    def node(name: str) -> Running:
        started = Running(tmp_path, name, "--listen", at[name], "--founders", founders)
        stack.enter_context(killed_at_the_end(started))
        return started

    with ExitStack() as stack:
        eu, us = node("eu"), node("us")
        waits_for_asia = "group 'default' has not started: 'eu' waits for a link with asia"
        while waits_for_asia not in (said := why_not(eu)):
            assert eu.process.poll() is None and said, eu.log.read_text()
        asia = node("asia")
        for each in (asia, eu, us):
            each.wait_ready()
        assert us.stop(signal.SIGKILL) == -signal.SIGKILL
        again = node("us").wait_ready()
        assert again.ready["incarnation"] != us.ready["incarnation"]
        while sorted(m["incarnation"] for m in eu.ask("members")["members"]) != sorted(
            each.ready["incarnation"] for each in (asia, eu, again)
        ):
            assert eu.process.poll() is None
        for each in (asia, eu, again):
            assert each.stop() == 0


def why_not(node: Running) -> str:
    """What its admin socket answers while it is no member."""
    try:
        return str(node.ask("status"))
    except CrdtcastError as error:
        return str(error)


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--founders", "eu"), "'eu' is not a named address: write name=host:port"),
        (("--founders", "us=127.0.0.1:1"), "founders does not name 'eu' itself"),
        (
            ("--founders", "eu=127.0.0.1:1"),
            "founders has 'eu' at 127.0.0.1:1, but it listens on",
        ),
        (("--founders", "eu=127.0.0.1:1", "--found"), "--founders and --found exclude"),
    ],
)
def test_invalid_founder_list_is_one_line(
    tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    node = Running(tmp_path, "eu", *arguments)
    with killed_at_the_end(node):
        assert node.process.wait(60) == 2
    log = node.log.read_text()
    assert expected in log and "Traceback" not in log
