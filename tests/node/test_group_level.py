"""Nodes whose group raises its format level beyond their program."""

import logging

import pytest

from crdtcast.engine import Span
from crdtcast.engine.operations import Raise, encode
from crdtcast.exceptions import LocalProtocolError, OutdatedError
from crdtcast.tags import Dot
from tests.node.group_support import world
from tests.node.network import eventually, simulated


@simulated
async def test_outdated_node_takes_no_writes_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    async with world("a", "b") as group:
        a, b = (host.up for host in group.hosts.values())
        await a.wait_established()
        with pytest.raises(LocalProtocolError, match="not all members read it"):
            a.raise_level(2)
        kind, payload = encode(Raise(2))
        for engine in (a.engine, b.engine):  # as b's program said when it was a later one
            engine._membership.reads(Dot(b.engine.me, 0), Span(1, 2))
        a.engine._send(payload, kind)  # a later program had asked for it while b went back
        a.channel.after()
        await eventually(lambda: b.engine.outdated == 2)
        with pytest.raises(OutdatedError, match="start a program that reads level 2"):
            b.tcbroadcast(b"x")
        await eventually(lambda: "takes no writes" in caplog.text)
        a.tcbroadcast(b"y")
        await eventually(lambda: b.engine.counters().pending > 1)
        assert caplog.text.count("takes no writes") == 1
        assert a.engine.level == 1
