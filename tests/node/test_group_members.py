"""Members that come and go, over real sockets: join, leave, evict, and the way back."""

import logging
import math
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from crdtcast import (
    ConfigurationError,
    Delivered,
    EndedError,
    HandshakeError,
    LocalProtocolError,
    Stable,
    open_host,
    open_member,
)
from crdtcast import testing as kit
from crdtcast.engine import Standing
from crdtcast.group.events import Event
from crdtcast.journal import MemoryJournal
from crdtcast.ports import free_ports
from crdtcast.transport.options import format_address
from tests.node.group_support import Ledger, members_are


def test_joiner_gets_the_state_and_all_continue() -> None:
    async def main() -> None:
        ledgers = {name: Ledger() for name in "abc"}
        with trio.fail_after(60):
            async with AsyncExitStack() as stack:
                a = await stack.enter_async_context(
                    open_member("a", found=True, machine=ledgers["a"])
                )
                where = format_address(a.address)
                for n in range(20):
                    a.tcbroadcast(b"before %d" % n)
                b = await stack.enter_async_context(
                    open_member("b", join=where, machine=ledgers["b"])
                )
                assert ledgers["b"].payloads == ledgers["a"].payloads
                b.tcbroadcast(b"b is in")
                await ledgers["a"].has(b"b is in")
                c = await stack.enter_async_context(
                    open_member("c", join=format_address(b.address), machine=ledgers["c"])
                )
                tag = c.tcbroadcast(b"c is in")
                for member, ledger in zip((a, b, c), ledgers.values(), strict=True):
                    await members_are(member, "a", "b", "c")
                    await ledger.has(b"b is in", b"c is in")
                    await ledger.settled()
                await c.wait_stable(tag)
                assert len({tuple(ledger.payloads) for ledger in ledgers.values()}) == 1
                assert set(c.links()) == {"a", "b"}, "members are not linked with each other"

    trio.run(main)


def test_a_leaver_is_gone_at_once_and_loses_nothing() -> None:
    async def main() -> None:
        ledgers = {name: Ledger() for name in "ab"}
        with trio.fail_after(60):
            async with open_member("a", found=True, machine=ledgers["a"]) as a:
                where = format_address(a.address)
                async with open_member("b", join=where, machine=ledgers["b"]) as b:
                    for n in range(50):
                        b.tcbroadcast(b"last words %d" % n)
                    await b.leave()
                    assert b.standing is Standing.LEFT
                    assert len(ledgers["a"].entries) == 50
                    await members_are(a, "a")
                    await ledgers["a"].settled()
                    tag = a.tcbroadcast(b"alone")
                    await a.wait_stable(tag)
                    with pytest.raises(EndedError):
                        b.tcbroadcast(b"x")
                    with pytest.raises(EndedError):
                        await b.ready()
                    await b.leave()  # twice does no harm
                # Its name is free again.
                async with open_member("b", join=where, machine=Ledger()) as again:
                    await members_are(a, "a", "b")
                    await again.leave()
                await a.leave()

    trio.run(main)


def test_one_list_of_addresses_is_enough_for_all_members(caplog: pytest.LogCaptureFixture) -> None:
    """Each finds its own address in it, the last one in another spelling than it listens."""

    async def main() -> None:
        ports = free_ports(3)
        seeds = [f"127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[1]}", f"localhost:{ports[2]}"]
        with trio.fail_after(60):
            async with (
                open_member("a", found=True, listen=seeds[0], join=seeds, machine=Ledger()) as a,
                open_member("b", listen=seeds[1], join=seeds, machine=Ledger()) as b,
                open_member("c", listen=f"127.0.0.1:{ports[2]}", join=seeds, machine=Ledger()) as c,
            ):
                for each in (a, b, c):
                    await members_are(each, "a", "b", "c")

    with caplog.at_level("WARNING"):
        trio.run(main)
    assert not [record for record in caplog.records if "itself" in record.getMessage()]


def test_join_list_with_only_the_own_address_is_logged() -> None:
    async def main() -> None:
        (port,) = free_ports(1)
        said = trio.Event()
        logger = logging.Logger("alone")

        class Listener(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if "address: no address" in record.getMessage():
                    said.set()

        logger.addHandler(Listener(logging.ERROR))
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:

                async def join() -> None:
                    async with open_member(
                        "a", listen=f"127.0.0.1:{port}", join=f"localhost:{port}", logger=logger
                    ):
                        pass

                nursery.start_soon(join)
                await said.wait()
                nursery.cancel_scope.cancel()

    trio.run(main)


def test_event_iteration_ends_when_the_member_has_left() -> None:
    async def main() -> None:
        with trio.fail_after(60):
            async with (
                open_member("a", found=True) as a,
                open_member("b", join=format_address(a.address)) as b,
                trio.open_nursery() as nursery,
            ):
                got: list[Event] = []

                async def take() -> None:
                    async for event in b:
                        got.append(event)

                async def drain() -> None:
                    async for _ in a:
                        pass

                nursery.start_soon(take)
                nursery.start_soon(drain)
                tag = a.tcbroadcast(b"x")
                await a.wait_delivered(tag, count=2)
                await b.wait_stable(tag)
                await b.leave()
                nursery.cancel_scope.cancel()
            assert [event.tag for event in got if isinstance(event, Delivered)] == [tag]
            assert [event.tag for event in got if isinstance(event, Stable)] == [tag]

    trio.run(main)


@pytest.mark.parametrize(
    ("seconds", "why"),
    [(0, "no answer from 127.0.0.1:1"), (0.1, "cannot reach 127.0.0.1:1: Connection refused")],
)
def test_join_is_given_up_after_its_time_out(tmp_path: Path, seconds: float, why: str) -> None:
    async def main() -> None:
        with trio.fail_after(60):
            with pytest.raises(HandshakeError, match=f"group 'default' within {seconds} s: {why}:"):
                async with open_member(
                    "a", join="127.0.0.1:1", join_timeout=seconds, journal=tmp_path
                ):
                    raise AssertionError("nobody is there")
            async with open_member("a", found=True, journal=tmp_path) as a:
                await members_are(a, "a")
            for wrong in (-1, math.nan):
                with pytest.raises(ConfigurationError, match="join_timeout must be 0 seconds or"):
                    async with open_member("b", join=a.address, join_timeout=wrong):
                        pass
            async with (
                open_member("a", journal=tmp_path) as a,
                open_member("b", join=a.address, join_timeout=10**400) as b,
            ):
                await members_are(b, "a", "b")

    trio.run(main)


def test_invalid_use_is_refused_with_one_clear_line() -> None:
    async def main() -> None:
        with trio.fail_after(60):
            with pytest.raises(ConfigurationError, match="set founders="):
                async with open_member("a"):
                    pass
            addresses: dict[str, list[Any]] = {
                "listen": [7001, ("127.0.0.1", 0), None, "http://127.0.0.1:7001"],
                "join": ["http://127.0.0.1:7001", ("a/b", 1), ("a", 65536), "a:1,b:1", "a@b:1"],
            }
            for option, wrong in addresses.items():
                for address in wrong:
                    given: Any = {"found": option == "listen", option: address}
                    with pytest.raises(
                        ConfigurationError, match=r"invalid address .*: write host:port"
                    ):
                        async with open_member("a", **given):
                            pass
            async with open_member("a", found=True, group="orders", machine=Ledger()) as a:
                where = format_address(a.address)
                with pytest.raises(HandshakeError, match="is in group 'chat'"):
                    async with open_member("b", join=where, group="chat"):
                        pass
                with pytest.raises(HandshakeError, match="two nodes are called 'a'"):
                    async with open_member("a", join=where, group="orders"):
                        pass
                async with open_member("b", join=where, group="orders", machine=Ledger()) as b:
                    with pytest.raises(HandshakeError, match="the name 'b' is in use"):
                        async with open_member("b", join=where, group="orders"):
                            pass
                    with pytest.raises(LocalProtocolError, match="'x' is not a member of group"):
                        a.evict("x")
                    with pytest.raises(LocalProtocolError, match="this node itself"):
                        a.evict("a")
                    async with (
                        open_host("c", peers=[where], network="orders", handshake_timeout=0.5) as c,
                    ):
                        with pytest.raises(HandshakeError, match="is in group 'other'"):
                            await c.join("other")
                    await b.leave()

    trio.run(main)


def test_leaving_member_admits_no_joiner() -> None:
    async def main() -> None:
        with trio.fail_after(60):
            async with (
                open_member("a", found=True, machine=Ledger()) as a,
                open_member("b", join=format_address(a.address), machine=Ledger()) as b,
                trio.open_nursery() as nursery,
            ):
                await members_are(b, "a", "b")
                # Nobody acknowledges its leave while it is cut off.
                b.channel.shared.cut("a")
                nursery.start_soon(b.leave)
                await trio.testing.wait_all_tasks_blocked()
                assert b.standing is Standing.LEAVING
                where = format_address(b.address)
                with pytest.raises(HandshakeError, match="leaving the group"):
                    async with open_member("c", join=where, machine=Ledger(), cut=frozenset({"a"})):
                        pass
                # If there is another member within reach, that one is asked.
                async with open_member("d", join=where, machine=Ledger()) as d:
                    await d.leave()
                b.channel.shared.heal("a")
                await members_are(a, "a")

    trio.run(main)


class SlowDialling(kit.Network):
    """A network in which one process takes two seconds to dial another one."""

    slow = "", 0

    async def connect(self, name: str, host: str, port: int) -> trio.abc.Stream:
        if (name, port) == self.slow:
            await trio.sleep(2)
        return await super().connect(name, host, port)


@kit.simulated
async def test_refused_joiner_waits_for_a_member_being_dialled() -> None:
    with SlowDialling() as network:
        async with (
            open_member("a", found=True, machine=Ledger()) as a,
            open_member("b", join=a.address, witness=True) as b,
        ):
            await members_are(b, "a", "b")
            network.slow = "d", a.address[1]
            async with open_member("d", join=b.address, machine=Ledger()) as d:
                await members_are(d, "a", "b", "d")


@kit.simulated
async def test_last_member_with_data_does_not_leave_witnesses_alone() -> None:
    with kit.Network():
        async with open_member("a", found=True, machine=Ledger()) as a:
            async with open_member("w", join=a.address, witness=True) as w:
                await w.wait_established()
                with pytest.raises(LocalProtocolError, match=r"'a' cannot leave.*only w would"):
                    await a.leave()
                await a.wait_stable(a.tcbroadcast(b"it goes on"))
                async with open_member("b", join=w.address, machine=Ledger()) as b:
                    await members_are(a, "a", "b", "w")
                    await b.leave()
                await w.leave()
            await a.leave()


@kit.simulated
async def test_witness_does_not_found_alone() -> None:
    journal = MemoryJournal()
    with kit.Network():
        solitary: tuple[dict[str, Any], ...] = {"found": True}, {"founders": {"a": None}}
        for options in solitary:
            with pytest.raises(ConfigurationError, match="alone as a witness"):
                async with open_member("a", witness=True, journal=journal, **options):
                    pass


def test_closed_member_raises_and_others_do_not_wait() -> None:
    async def main() -> None:
        with trio.fail_after(60):
            async with open_member("a", found=True, machine=Ledger()) as a:
                where = format_address(a.address)
                async with open_member("b", join=where, machine=Ledger()) as b:
                    await members_are(a, "a", "b")
                tag = a.tcbroadcast(b"b has not got this")
                with pytest.raises(EndedError, match="is no longer a member"):
                    b.tcbroadcast(b"to nobody")
                for wait in (b.leave, b.changed, b.ready):
                    with pytest.raises(EndedError):
                        await wait()
                with pytest.raises(EndedError, match="is no longer a member"):
                    await b.wait_stable(tag)

    trio.run(main)


def test_payload_that_is_not_bytes_is_refused() -> None:
    async def main() -> None:
        async with open_member("a", found=True, machine=(ledger := Ledger())) as a:
            with pytest.raises(LocalProtocolError, match="cannot send a str"):
                a.tcbroadcast("text")  # type: ignore[arg-type]
            assert not ledger.entries

    trio.run(main)


def test_a_group_with_wrong_options_can_be_opened_again() -> None:
    async def main() -> None:
        async with open_host("a") as links:
            for founders, why in (
                (["no name"], "invalid founder name 'no name'"),
                ("ab", "pass a list"),
            ):
                with pytest.raises(ConfigurationError, match=why):
                    links.found("g", founders=founders)
            with pytest.raises(ConfigurationError, match="event_logs needs a journal"):
                links.found("g", event_logs="logs")
            links.found("g", founders=["b"])

    trio.run(main)
