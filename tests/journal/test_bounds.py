"""What a member holds while somebody does not acknowledge: on disk beyond a limit, and no more than the most."""

import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

import pytest
import trio

from crdtcast import ConfigurationError
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import GroupEngine
from crdtcast.exceptions import JournalError, StoreFullError
from crdtcast.group.limits import Limits, WhenFull
from crdtcast.journal import FileJournal
from crdtcast.journal.spill import Spill, Spilled, SpillingStore
from crdtcast.testing import Cluster, eventually, open_cluster, simulated
from tests.node.group_support import LedgerHost, members_are, open_ledger_host, start_member

SIZE = 2000


class Inline(FileJournal):
    """On a real disk; its syncs take no time of the simulated clock."""

    blocks: ClassVar[bool] = False


async def start(
    group: Cluster[LedgerHost], directory: Path, name: str, limits: Limits
) -> LedgerHost:
    return await start_member(group, name, journal=Inline(directory / name), limits=limits)


def in_a_group(
    test: Callable[[Cluster[LedgerHost], Path], Awaitable[None]],
) -> Callable[..., None]:
    """Run a test with an empty cluster."""

    @simulated
    async def run(tmp_path: Path) -> None:
        async with open_cluster(open_ledger_host) as cluster:
            with trio.fail_after(3600):
                await test(cluster, tmp_path)

    return run


def has_all(host: LedgerHost, payloads: list[bytes]) -> bool:
    return host.member.engine.quiet and host.ledger.payloads == payloads


@in_a_group
async def test_payloads_go_to_disk_beyond_a_limit_and_come_back(
    group: Cluster[LedgerHost], directory: Path
) -> None:
    limits = Limits(memory_bytes=3 * SIZE)
    a = await start(group, directory, "a", limits)
    b = await start(group, directory, "b", limits)
    await members_are(a.member, "a", "b")
    group.network.cut("b")
    payloads = [b"%04d" % number * (SIZE // 4) for number in range(50)]
    for payload in payloads[:30]:
        a.member.tcbroadcast(payload)
    await a.member.wait_durable()
    assert a.member.engine.spilled_bytes > 25 * SIZE
    assert a.member.engine.counters().store_bytes < 7 * SIZE
    # A restart finds all of it in the journal.
    group.crash(a.name)
    a = await start(group, directory, "a", limits)
    assert a.member.engine.spilled_bytes > 25 * SIZE
    for payload in payloads[30:]:
        a.member.tcbroadcast(payload)
    c = await start(group, directory, "c", limits)
    assert c.member.engine.spilled_bytes > 25 * SIZE
    group.network.heal()
    for host in (a, b, c):
        await eventually(partial(has_all, host, payloads))
        assert host.member.engine.spilled_bytes == 0


@in_a_group
async def test_full_store_refuses_until_a_member_acknowledges(
    group: Cluster[LedgerHost], directory: Path
) -> None:
    limits = Limits(memory_bytes=0, most_bytes=20 * SIZE)
    a = await start(group, directory, "a", limits)
    await start(group, directory, "b", limits)
    await members_are(a.member, "a", "b")
    group.network.cut("b")
    with pytest.raises(StoreFullError, match=r"not acknowledged by b: bring them back, or"):
        for number in range(100):
            a.member.tcbroadcast(b"%d" % number * SIZE)
    sent = len(a.ledger.payloads)
    assert 5 < sent < 20
    group.network.heal()
    await eventually(lambda: a.member.engine.quiet)
    a.member.tcbroadcast(b"on we go")
    await eventually(lambda: len(group.up["b"].ledger.payloads) == sent + 1)


def test_warnings_come_long_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @in_a_group
    async def run(group: Cluster[LedgerHost], directory: Path) -> None:
        limits = Limits(memory_bytes=0, most_bytes=100 * SIZE)
        a = await start(group, directory, "a", limits)
        await start(group, directory, "b", limits)
        await members_are(a.member, "a", "b")
        for _ in range(2):
            group.network.cut("b")
            with pytest.raises(StoreFullError):
                for _ in range(100):
                    a.member.tcbroadcast(bytes(SIZE))
            group.network.heal()
            await eventually(lambda: a.member.engine.quiet)

    with caplog.at_level(logging.WARNING):
        run(tmp_path=tmp_path)
    shares = [
        int(record.getMessage().split(" % of")[0].rsplit(" ", 1)[1])
        for record in caplog.records
        if "% of its limit" in record.getMessage() and record.getMessage().startswith("a.")
    ]
    assert [share // 5 * 5 for share in shares] == [50, 75, 90, 100] * 2
    assert "not acknowledged by b" in caplog.text


@in_a_group
async def test_silent_member_is_evicted_if_the_policy_says_so(
    group: Cluster[LedgerHost], directory: Path
) -> None:
    limits = Limits(memory_bytes=0, most_bytes=20 * SIZE, when_full=WhenFull.EVICT)
    a = await start(group, directory, "a", limits)
    await start(group, directory, "b", limits)
    c = await start(group, directory, "c", limits)
    for host in group.up.values():
        await members_are(host.member, "a", "b", "c")
        await host.member.wait_established()
    group.crash(c.name)
    sent = 0
    while "c" in a.member.members:
        try:
            a.member.tcbroadcast(bytes(SIZE))
            sent += 1
        except StoreFullError:
            await trio.sleep(1)
    assert sent < 20
    await eventually(lambda: a.member.engine.quiet)
    a.member.tcbroadcast(b"on we go")
    await eventually(lambda: len(group.up["b"].ledger.payloads) == sent + 1)


def test_spilled_files_are_removed_once_unneeded(tmp_path: Path) -> None:
    spill = Spill(tmp_path, 0)
    state = GroupEngine.found("a.1", ["b.1"]).state()
    engine = GroupEngine("a.1", state, store=SpillingStore(spill))
    for number in range(5):
        engine.send(b"%d" % number * 1000)
    assert spill.bytes == 5000 - 1000  # the first one still fitted
    state = engine.state()
    assert [message.payload[:1] for message in state.unstable] == [b"0", b"1", b"2", b"3", b"4"]
    assert all(type(message) is Message for message in state.unstable)
    assert engine.held_bytes > 5000
    assert not list(tmp_path.iterdir())  # the files have no names


def test_disk_that_takes_nothing_leaves_payloads_in_memory(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "missing", 0)
    message = Message(Dot("a.1", 1), (), bytes(1000))
    assert spill.put(message) is message
    assert isinstance(spill.failure, OSError)


def test_disk_that_forgets_is_one_clear_line(tmp_path: Path) -> None:
    spill = Spill(tmp_path, 0)
    spilled = spill.put(Message(Dot("a.1", 1), (), bytes(1000)))
    assert isinstance(spilled, Spilled) and spilled.place is not None
    os.truncate(spilled.place.file.descriptor, 10)
    with pytest.raises(JournalError, match=r"cannot read the payload of a.1:1"):
        spilled.loaded()


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="memory_bytes"):
        Limits(memory_bytes=10, most_bytes=5)
