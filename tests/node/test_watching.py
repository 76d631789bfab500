"""A node that watches: a silent peer becomes suspect, a log line says so, and status knows since when."""

import logging

import pytest
import trio

from crdtcast.engine import Standing
from crdtcast.group.status import is_caught_up
from crdtcast.journal import MemoryJournal
from crdtcast.testing import eventually, simulated
from tests.node.fixed import group
from tests.node.group_support import members_are, world


@simulated
async def test_unreachable_peer_is_suspected_and_holds_back_stability() -> None:
    async with group("a", "b", "c") as (_, members):
        a = members["a"]
        await eventually(lambda: a.linked() == {"b", "c"})
        assert a.node.watching().suspects == {}
        for name in "ab":
            members[name].node.cut("c")
        a.send(b"x")
        await eventually(lambda: set(a.node.watching().suspects) == {"c"})
        await trio.sleep(60)
        suspect = a.node.watching().suspects["c"]
        assert 60 <= suspect.since < suspect.silence < 80
        held = a.node.watching().held("default")
        assert list(held.holders) == [members["c"].engine.me]
        assert held.lag >= held.holders[members["c"].engine.me] >= 60


@simulated
async def test_suspicion_and_return_of_a_peer_are_logged() -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("test.watching")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    async with group("a", "b", node={"a": {"logger": logger}}) as (_, members):
        a = members["a"]
        await eventually(lambda: a.linked() == {"b"})
        a.node.cut("b")
        await eventually(lambda: set(a.node.watching().suspects) == {"b"})
        a.node.heal("b")
        await eventually(lambda: not a.node.watching().suspects)
        told = [line for line in lines if "suspect" in line]
        assert len(told) == 2
        assert "b is silent for" in told[0] and "b speaks again" in told[1]


@simulated
async def test_only_current_members_are_monitored() -> None:
    async with world("a", "b", "c") as present:
        a, b, c = present.up.values()
        present.crash(c.name)
        await eventually(lambda: set(a.node.watching().suspects) == {"c"})
        a.member.evict("c")
        await eventually(lambda: not a.node.watching().suspects)
        assert "c" not in a.node.watching().suspects
        present.crash(b.name)
        await eventually(lambda: set(a.node.watching().suspects) == {"b"})


@simulated
async def test_congested_reader_suspects_no_peer() -> None:
    async with group("a", "b", backlog_bytes=1000) as (_, members):
        a, b = members["a"], members["b"]
        await eventually(lambda: a.linked() == {"b"})
        a.taking = False
        b.send(b"x" * 2000)
        await eventually(a.node.congested)
        await trio.sleep(300)
        assert a.node.congested()
        assert a.node.watching().suspects == {}
        a.taking = True
        a.work()
        a.node.flush()


@simulated
async def test_old_incarnation_does_not_clear_the_suspicion(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """c went on from one journal, and is started again from an older one: that one is evicted, and kept out."""
    old = MemoryJournal()
    async with world("a", "b") as present:
        a, b = present.up.values()
        c = await present.start("c", "a")
        await c.join(journal=old)
        await members_are(a.member, "a", "b", "c")
        await eventually(lambda: "c" in a.node.links().up and "c" in b.node.links().up)
        present.crash(c.name)
        await eventually(lambda: "c" not in a.member.links() and "c" not in b.member.links())
        c = await present.start("c", "a")
        await c.join(replace=True)
        new = c.member.incarnation
        for host in (a, b):
            await eventually(
                lambda host=host: (
                    new in host.member.engine.members and len(host.member.members) == 3
                )
            )
        # Or it would be put out with its former life, as never heard of.
        await c.member.wait_established()
        present.crash(c.name)
        await eventually(lambda: set(a.node.watching().suspects) == {"c"})
        c = await present.start("c", "a")
        old.close()
        await c.join(journal=old)
        await eventually(lambda: "c" in a.node.links().up and "c" in b.node.links().up)
        await trio.sleep(600)
        assert c.member.standing is Standing.EVICTED
        for host in (a, b):
            assert set(host.node.watching().suspects) == {"c"}
            assert is_caught_up(host.member.engine, host.node.watching().suspects)
        assert c.member.kept_out is not None and c.member.kept_out.startswith(
            "the group already has a member"
        )
        said = [
            line for line in caplog.messages if "refuses our join: the group already has" in line
        ]
        assert [line[0] for line in sorted(said)] == ["a", "b"], "once for each who says so"
        present.crash(
            c.name
        )  # and now it is on its way back at its start, and says nothing in the group
        c = await present.start("c", "a")
        old.close()
        with trio.move_on_after(600) as waits:
            await c.join(journal=old)
        assert waits.cancelled_caught
        for host in (a, b):
            assert "c" in host.node.links().up and set(host.node.watching().suspects) == {"c"}
