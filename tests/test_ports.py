"""Ports for processes that are started later: different, free, and never one that a connection is given."""

import os
import socket
import subprocess
import sys
from contextlib import closing

import pytest

from crdtcast import ports
from crdtcast.ports import free_ports


def test_free_ports_are_distinct_and_outside_the_ephemeral_range() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    assert all(ports.FIRST <= port <= ports.LAST for port in found)


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = free_ports(1)
    os.close(ports._claims.pop())
    monkeypatch.setattr(ports, "FIRST", first)
    monkeypatch.setattr(ports, "LAST", first)
    assert free_ports(1) == [first]
    os.close(ports._claims.pop())
    with (
        closing(socket.create_server(("127.0.0.1", first))),
        pytest.raises(OSError, match="no 1 free ports"),
    ):
        free_ports(1)


@pytest.mark.process
def test_port_claimed_by_one_process_is_not_given_to_another() -> None:
    asking = "from crdtcast.ports import free_ports; print(*free_ports(60), flush=True); input()"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", asking], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    found: list[str] = []
    for process in running:
        assert process.stdout is not None
        found += process.stdout.readline().split()
    for process in running:
        process.communicate("\n")
    assert len(set(found)) == 240


def test_claims_are_given_back() -> None:
    for _ in range(ports._MOST_CLAIMS + 1):
        free_ports(2)
    assert len(ports._claims) == ports._MOST_CLAIMS
