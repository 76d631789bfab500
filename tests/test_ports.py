"""Ports for processes that are started later: different, free, and never one that a connection is given."""

import socket
from contextlib import closing

import pytest

from crdtcast import ports
from crdtcast.ports import free_ports


def test_free_ports_are_different_and_none_that_a_connection_gets() -> None:
    found = free_ports(20)
    assert len(set(found)) == 20
    assert all(ports.FIRST <= port <= ports.LAST for port in found)


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = free_ports(1)
    monkeypatch.setattr(ports, "FIRST", first)
    monkeypatch.setattr(ports, "LAST", first)
    assert free_ports(1) == [first]
    with (
        closing(socket.create_server(("127.0.0.1", first))),
        pytest.raises(OSError, match="no 1 free ports"),
    ):
        free_ports(1)
