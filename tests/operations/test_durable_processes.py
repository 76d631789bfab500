"""Nodes with journals, killed: what was acknowledged is there again, under the same incarnation."""

import signal
from pathlib import Path

import pytest

from tests.operations.processes import Running, killed_at_the_end

pytestmark = pytest.mark.process


def test_acknowledged_writes_survive_sigkill_of_all(tmp_path: Path) -> None:
    def start(name: str, *more: str) -> Running:
        journal = str(tmp_path / f"{name}-journal")
        return Running(tmp_path, name, "--journal", journal, "--keepalive-interval", "0.5", *more)

    eu = start("eu", "--found")
    with killed_at_the_end(eu):
        eu.wait_ready()
        us = start("us", "--join", eu.listen)
        with killed_at_the_end(us):
            us.wait_ready()
            for number in range(20):
                at = (eu, us)[number % 2]
                at.ask("perform", name="hits", type="counter_pn", operation="increment", args=[1])
            eu.process.send_signal(signal.SIGKILL)
            us.process.send_signal(signal.SIGKILL)
            eu.process.wait()
            us.process.wait()
    again = start("eu", "--listen", eu.listen, "--event-logs", str(tmp_path / "logs"))
    with killed_at_the_end(again):
        again.wait_ready()
        other = start("us", "--join", eu.listen)
        with killed_at_the_end(other):
            other.wait_ready()
            assert again.ready["incarnation"] == eu.ready["incarnation"]
            assert other.ready["incarnation"] == us.ready["incarnation"]
            assert other.ask("status")["journal"]["path"].endswith("us-journal")
            tag = again.ask(
                *("perform",), name="x", type="set_aw", operation="add", args=["y"], wait="stable"
            )
            assert tag["tag"][0] == eu.ready["incarnation"]
            for node in (again, other):
                assert node.ask("get", name="hits")["value"] == 20
            assert other.ask("verify")["equal"]
    assert list((tmp_path / "logs").rglob("*")), "no event log"
