"""Members with disks in memory, which stop, crash and start again."""

from contextlib import suppress

import pytest
import trio

from crdtcast import CrdtcastError, Member, open_member, open_replica
from crdtcast.datatypes import AWSet
from crdtcast.exceptions import ConfigurationError, JournalError
from crdtcast.testing import Disk, eventually, open_cluster, simulated
from tests.effort import seeds
from tests.node.group_support import Ledger


@simulated
async def test_orders_survive_the_crash_of_a_region() -> None:
    """The example of docs/testing.md."""
    async with open_cluster(open_replica, "eu", "us", seed=3) as cluster:
        eu = cluster.up["eu"]
        await eu.object("orders", AWSet).add("order:1")
        await eu.wait_durable()
        cluster.crash("eu")
        eu = await cluster.start("eu")
        assert eu.object("orders", AWSet).value == {"order:1"}


@simulated
async def test_crash_keeps_any_part_of_what_was_not_synced() -> None:
    kept = set()
    for seed in seeds(40):
        async with open_cluster(open_member, seed=seed) as cluster:
            eu = await cluster.start("eu", machine=Ledger())
            eu.tcbroadcast(b"durable")
            await eu.wait_durable()
            eu.tcbroadcast(b"perhaps")
            cluster.crash("eu")
            assert not cluster.up
            again = Ledger()
            await cluster.start("eu", machine=again)
            assert again.payloads[:1] == [b"durable"]
            kept.add(len(again.payloads))
    assert kept <= {1, 2}


@simulated
async def test_nothing_leaves_the_dead_and_nobody_reaches_them() -> None:
    ledger = Ledger()
    async with open_cluster(open_member, seed=1) as cluster:
        await cluster.start("eu", machine=ledger)
        us = await cluster.start("us", machine=Ledger())
        await eventually(lambda: "us" in cluster.up["eu"].links())
        us.tcbroadcast(b"never sent")
        cluster.crash("us", next(cluster.disks["us"].crashes()))
        await trio.sleep(60)
        assert ledger.payloads == []
        assert cluster.up.keys() == {"eu"}
        us = await cluster.start("us", machine=Ledger())
        us.tcbroadcast(b"sent")
        await eventually(lambda: ledger.payloads == [b"sent"])


@simulated
async def test_nothing_is_said_to_be_durable_once_the_power_has_failed() -> None:
    said: list[str] = []

    async def wait(member: Member) -> None:
        with suppress(CrdtcastError):
            await member.wait_durable()
            said.append(member.name)

    for _ in range(20):  # Trio takes its tasks in any order
        said.clear()
        async with open_cluster(open_member) as cluster, trio.open_nursery() as waiting:
            eu, again = await cluster.start("eu", machine=Ledger()), Ledger()
            await eu.wait_durable()
            eu.tcbroadcast(b"x")
            waiting.start_soon(wait, eu)
            await trio.lowlevel.checkpoint()
            cluster.crash("eu", next(cluster.disks["eu"].crashes()))
            await cluster.start("eu", machine=again)
        assert again.payloads == [b"x"] or not said


@simulated
async def test_killed_process_has_written_what_it_has_written() -> None:
    async with open_cluster(open_member) as cluster:
        for number in range(5):
            ledger = Ledger()
            eu = await cluster.start("eu", machine=ledger)
            assert len(ledger.payloads) == number
            eu.tcbroadcast(b"%d" % number)
            await eu.wait_durable()
            cluster.kill("eu")


@simulated
async def test_one_that_is_stopped_has_not_left() -> None:
    async with open_cluster(open_replica, "eu", "us", "asia") as cluster:
        before = cluster.up["us"].member.incarnation
        await cluster.stop("us")
        assert cluster.up.keys() == {"eu", "asia"}
        await eventually(lambda: cluster.up["eu"].member.members.keys() == {"eu", "us", "asia"})
        us = await cluster.start("us", "asia")
        assert us.member.incarnation == before


@simulated
async def test_lost_disk_is_another_member() -> None:
    async with open_cluster(open_replica, "eu", "us") as cluster:
        before = cluster.up["us"].member.incarnation
        cluster.crash("us", Disk())
        us = await cluster.start("us", replace=True)
        assert us.member.incarnation != before
        await eventually(lambda: cluster.up["eu"].member.members.keys() == {"eu", "us"})


@simulated
async def test_errors_of_members_are_not_hidden() -> None:
    async with open_cluster(open_replica) as cluster:
        with pytest.raises(ConfigurationError, match="unknown option 'nonsense'"):
            await cluster.start("eu", nonsense=1)
        await cluster.start("eu")
        with pytest.raises(ValueError, match="'eu' is running: stop, kill or crash it first"):
            await cluster.start("eu")
    with pytest.RaisesGroup(JournalError, flatten_subgroups=True):
        async with open_cluster(open_replica, "eu") as cluster:
            cluster.disks["eu"].broken = OSError("it smokes")
            await cluster.up["eu"].object("cart", AWSet).add("milk")
            await trio.sleep(60)
