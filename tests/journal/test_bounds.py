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
from tests.node.group_support import SimulatedHost, World, members_are
from tests.node.network import Network, eventually, simulated

SIZE = 2000


class Inline(FileJournal):
    """On a real disk; its syncs take no time of the simulated clock."""

    blocks: ClassVar[bool] = False


async def start(
    group: World, directory: Path, name: str, limits: Limits, *, contact: str | None = None
) -> SimulatedHost:
    host = await group.start(name, contact)
    journal = Inline(directory / name)
    if contact is None:
        host.member = host.links.found("g", machine=host.ledger, journal=journal, limits=limits)
    else:
        host.member = await host.links.join(
            "g", machine=host.ledger, journal=journal, limits=limits
        )
    return host


def in_a_group(
    test: Callable[[World, Path], Awaitable[None]],
) -> Callable[..., None]:
    """Run a test with an empty world."""

    @simulated
    async def run(tmp_path: Path) -> None:
        async with trio.open_nursery() as nursery:
            with trio.fail_after(3600):
                await test(World(Network(nursery), nursery), tmp_path)
            nursery.cancel_scope.cancel()

    return run


def has_all(host: SimulatedHost, payloads: list[bytes]) -> bool:
    return host.up.engine.quiet and host.ledger.payloads == payloads


@in_a_group
async def test_payloads_go_to_disk_beyond_a_limit_and_come_back(
    group: World, directory: Path
) -> None:
    limits = Limits(memory_bytes=3 * SIZE)
    a = await start(group, directory, "a", limits)
    b = await start(group, directory, "b", limits, contact="a")
    await members_are(a.up, "a", "b")
    group.cut("b")
    payloads = [b"%04d" % number * (SIZE // 4) for number in range(50)]
    for payload in payloads[:30]:
        a.up.tcbroadcast(payload)
    await a.up.wait_durable()
    assert a.up.engine.spilled_bytes > 25 * SIZE
    assert a.up.engine.counters().store_bytes < 7 * SIZE
    # A restart finds all of it in the journal.
    a.die()
    a = await start(group, directory, "a", limits)
    assert a.up.engine.spilled_bytes > 25 * SIZE
    for payload in payloads[30:]:
        a.up.tcbroadcast(payload)
    c = await start(group, directory, "c", limits, contact="a")
    assert c.up.engine.spilled_bytes > 25 * SIZE
    group.heal()
    for host in (a, b, c):
        await eventually(partial(has_all, host, payloads))
        assert host.up.engine.spilled_bytes == 0


@in_a_group
async def test_full_store_refuses_until_somebody_acknowledges(
    group: World, directory: Path
) -> None:
    limits = Limits(memory_bytes=0, most_bytes=20 * SIZE)
    a = await start(group, directory, "a", limits)
    await start(group, directory, "b", limits, contact="a")
    await members_are(a.up, "a", "b")
    group.cut("b")
    with pytest.raises(StoreFullError, match=r"not acknowledged by b: bring them back, or"):
        for number in range(100):
            a.up.tcbroadcast(b"%d" % number * SIZE)
    sent = len(a.ledger.payloads)
    assert 5 < sent < 20
    group.heal()
    await eventually(lambda: a.up.engine.quiet)
    a.up.tcbroadcast(b"on we go")
    await eventually(lambda: len(group.hosts["b"].ledger.payloads) == sent + 1)


def test_warnings_come_long_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    @in_a_group
    async def run(group: World, directory: Path) -> None:
        limits = Limits(memory_bytes=0, most_bytes=100 * SIZE)
        a = await start(group, directory, "a", limits)
        await start(group, directory, "b", limits, contact="a")
        await members_are(a.up, "a", "b")
        for _ in range(2):
            group.cut("b")
            with pytest.raises(StoreFullError):
                for _ in range(100):
                    a.up.tcbroadcast(bytes(SIZE))
            group.heal()
            await eventually(lambda: a.up.engine.quiet)

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
    group: World, directory: Path
) -> None:
    limits = Limits(memory_bytes=0, most_bytes=20 * SIZE, when_full=WhenFull.EVICT)
    a = await start(group, directory, "a", limits)
    await start(group, directory, "b", limits, contact="a")
    c = await start(group, directory, "c", limits, contact="a")
    for host in group.hosts.values():
        await members_are(host.up, "a", "b", "c")
        await host.up.wait_established()
    c.die()
    sent = 0
    while "c" in a.up.members:
        try:
            a.up.tcbroadcast(bytes(SIZE))
            sent += 1
        except StoreFullError:
            await trio.sleep(1)
    assert sent < 20
    await eventually(lambda: a.up.engine.quiet)
    a.up.tcbroadcast(b"on we go")
    await eventually(lambda: len(group.hosts["b"].ledger.payloads) == sent + 1)


def test_spilled_files_go_when_nobody_needs_them(tmp_path: Path) -> None:
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
