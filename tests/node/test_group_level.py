"""Nodes whose group raises its format level."""

import pytest
import trio

from crdtcast.engine import Span
from crdtcast.exceptions import LocalProtocolError
from crdtcast.testing import eventually, simulated
from tests.node.group_support import world


@simulated
async def test_level_waits_for_a_member_that_cannot_read_it() -> None:
    async with world("a", "b") as group:
        a, b = (host.member for host in group.up.values())
        with pytest.raises(LocalProtocolError, match="not all members read it"):
            a.raise_level(2)
        for member in (a, b):
            member.engine._knowledge.reads = Span(1, 2)
        await eventually(lambda: a.engine.raisable == 2)
        b.engine._knowledge.reads = Span(1, 1)  # b goes back just when it is asked for
        a.raise_level(2)
        await trio.sleep(60)
        assert a.engine.waits_for() == [b.engine.me]
        assert a.engine.level == b.engine.level == 1
        for member in (a, b):
            tag = member.tcbroadcast(b"x")
            await member.wait_stable(tag)
        b.engine._knowledge.reads = Span(1, 2)
        await eventually(lambda: a.engine.level == b.engine.level == 2)
        assert not a.engine.wants
