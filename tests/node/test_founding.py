"""Groups that are founded with a list: nobody waits for the others to open, nobody writes before all were up."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from crdtcast import (
    ConfigurationError,
    Delivered,
    HandshakeError,
    NotReadyError,
    Replica,
    open_host,
    open_member,
    open_replica,
)
from crdtcast.datatypes import AWSet
from crdtcast.engine import GroupEngine
from crdtcast.group.join_server import check_begun
from crdtcast.journal import MemoryJournal
from crdtcast.testing import Network, eventually, simulated

AT = {"asia": "10.0.0.1:7001", "eu": "10.0.0.2:7001", "us": "10.0.0.3:7001"}


class Founders:
    """Replicas, each of which can be stopped and opened again."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.up: dict[str, Replica] = {}
        self._nursery = nursery
        self._scopes: dict[str, trio.CancelScope] = {}

    async def open(self, name: str, **options: object) -> Replica:
        scope = self._scopes[name] = trio.CancelScope()

        async def live(task_status: trio.TaskStatus[Replica]) -> None:
            with scope:
                async with open_replica(name, founders=AT, **options) as replica:
                    task_status.started(replica)
                    await trio.sleep_forever()

        self.up[name] = await self._nursery.start(live)
        return self.up[name]

    async def crash(self, network: Network, name: str) -> None:
        network.cut(name)
        self._scopes[name].cancel()
        del self.up[name]
        await trio.sleep(1)
        network.cut()

    def are_alike(self) -> bool:
        up = [replica.member for replica in self.up.values()]
        if any(member.is_outside for member in up):
            return False
        members = [member.engine.members.keys() for member in up]
        return all(each == members[0] for each in members) and len(members[0]) == len(AT)


@asynccontextmanager
async def founders() -> AsyncIterator[tuple[Founders, Network]]:
    with Network() as network:
        async with trio.open_nursery() as nursery:
            yield Founders(nursery), network
            nursery.cancel_scope.cancel()


@simulated
async def test_replicas_opened_one_after_the_other_do_not_wait_for_each_other() -> None:
    async with founders() as (group, _):
        for name in AT:
            await group.open(name)
        for name, replica in group.up.items():
            await replica.object("cart", AWSet).add(f"milk from {name}")
        for replica in group.up.values():
            await replica.wait_quiet()
            assert len(replica.object("cart", AWSet).value) == 3


@simulated
async def test_who_is_missing_is_named_and_nothing_is_written_before() -> None:
    async with founders() as (group, _):
        asia = await group.open("asia")
        await group.open("eu")
        await eventually(lambda: "eu" in asia.member.channel.shared.links().up)
        with (
            pytest.raises(
                NotReadyError, match=r"'default' has not started: 'asia' waits for a link with us:"
            ),
            asia.batch() as batch,
        ):
            batch.object("cart", AWSet).add("early")
        with trio.move_on_after(60) as waited:
            await asia.object("cart", AWSet).add("milk")
        assert waited.cancelled_caught and asia.object("cart", AWSet).value == frozenset()
        us = await group.open("us")
        await asia.object("cart", AWSet).add("milk")
        await eventually(lambda: us.object("cart", AWSet).value == {"milk"})


@simulated
async def test_who_crashes_in_memory_comes_back_in_its_own_place() -> None:
    async with founders() as (group, network):
        for name in AT:
            await group.open(name)
        await group.up["us"].object("cart", AWSet).add("milk")
        for replica in group.up.values():
            await replica.wait_quiet()
        await group.crash(network, "us")
        us = await group.open("us")
        await us.object("cart", AWSet).add("after the crash")
        await eventually(group.are_alike)
        for replica in group.up.values():
            await replica.wait_quiet()
            assert replica.object("cart", AWSet).value == {"milk", "after the crash"}


@simulated
async def test_two_of_three_that_crash_at_once_come_back() -> None:
    async with founders() as (group, network):
        for name in AT:
            await group.open(name)
        await group.up["asia"].object("cart", AWSet).add("milk")
        await group.up["asia"].wait_quiet()
        await group.crash(network, "us")
        await group.crash(network, "eu")
        await group.open("us")
        await group.open("eu")
        await eventually(group.are_alike)
        for replica in group.up.values():
            await replica.wait_quiet()
            assert replica.object("cart", AWSet).value == {"milk"}


def test_without_a_journal_a_joiner_waits_for_founders_not_heard_of() -> None:
    asia, eu = "asia.1", "eu.1"
    contact, other = (GroupEngine.found(me, (asia, eu)) for me in (asia, eu))
    with pytest.raises(NotReadyError, match=r"received nothing from eu since the group started"):
        check_begun(contact, "us.2")
    check_begun(contact, "eu.2")  # it comes back in its own place
    other.connected(asia)
    contact.connected(eu)
    for effect in other.take_outbox():
        contact.receive(eu, effect.message)
    check_begun(contact, "us.2")


@simulated
async def test_lists_that_differ_are_an_error_that_prints_both() -> None:
    fewer = {name: at for name, at in AT.items() if name != "us"}
    both = "'eu' founds the group with asia, eu, and 'asia' with asia, eu, us: use the same list"
    with Network(), pytest.raises(ConfigurationError, match=both):
        async with open_replica("asia", founders=AT), trio.open_nursery() as nursery:
            nursery.start_soon(_founds, fewer)
            await trio.sleep_forever()


async def _founds(founders: dict[str, str]) -> None:
    with pytest.raises(
        ConfigurationError, match="'asia' founds the group with asia, eu, us, and 'eu'"
    ):
        async with open_replica("eu", founders=founders):
            await trio.sleep_forever()


@simulated
async def test_a_name_that_is_none_of_the_founders_is_refused_at_once() -> None:
    with (
        Network(),
        pytest.raises(
            ConfigurationError, match="'mars' is not one of the founders asia, eu, us: add it"
        ),
    ):
        async with open_replica("mars", founders=AT):
            pass


@simulated
async def test_the_log_says_whom_the_founding_waits_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with founders() as (group, _):
        await group.open("asia")
        await trio.sleep(25)
    said = [r.getMessage() for r in caplog.records if "has not started" in r.getMessage()]
    assert len(said) == 2 and "waits for a link with eu, us:" in said[0]


@simulated
async def test_a_founder_with_a_journal_goes_on_as_itself() -> None:
    journals = {name: MemoryJournal() for name in AT}
    async with founders() as (group, network):
        for name in AT:
            await group.open(name, journal=journals[name])
        await group.up["us"].object("cart", AWSet).add("milk")
        await group.up["us"].wait_durable()
        before = group.up["us"].member.incarnation
        await group.crash(network, "us")
        us = await group.open("us", journal=journals["us"])
        await us.ready()
        assert us.member.incarnation == before and us.object("cart", AWSet).value == {"milk"}
        for replica in group.up.values():
            await replica.wait_quiet()


@simulated
async def test_a_witness_founds_with_the_others_and_holds_no_objects() -> None:
    async with founders() as (group, _), open_member("us", founders=AT, witness=True) as us:
        for name in ("asia", "eu"):
            await group.open(name)
        await us.ready()
        await group.up["eu"].object("cart", AWSet).add("milk")
        await group.up["eu"].wait_quiet()
        assert [m.witness for m in us.members.values()] == [False, False, True]


@simulated
async def test_who_iterates_waits_until_the_group_has_begun() -> None:
    with Network():
        async with open_member("asia", founders=AT) as asia, trio.open_nursery() as nursery:
            taken: list[object] = []

            async def take() -> None:
                taken.extend([await anext(asia), await anext(asia)])

            nursery.start_soon(take)
            await trio.sleep(60)
            assert asia.is_outside and not taken
            async with open_member("eu", founders=AT) as eu, open_member("us", founders=AT) as us:
                await eu.ready()
                tags = [eu.tcbroadcast(b"x"), us.tcbroadcast(b"y", after=[])]
                await eventually(lambda: len(taken) == 2)
                assert {event.tag for event in taken if isinstance(event, Delivered)} == {*tags}


@simulated
async def test_several_groups_are_founded_over_one_set_of_links() -> None:
    with Network():
        async with (
            open_host("a", listen="10.0.0.1:7001") as a,
            open_host("b", listen="10.0.0.2:7001", peers=["10.0.0.1:7001"]) as b,
        ):
            first = [links.found("first", founders=["a", "b"]) for links in (a, b)]
            await first[0].ready()
            second = [links.found("second", founders=["a", "b"]) for links in (b, a)]
            for member in (*first, *second):
                await member.ready()
            assert first[0].channel.group_id != second[0].channel.group_id
            assert first[0].members.keys() == second[0].members.keys() == {"a", "b"}


@simulated
async def test_a_founder_that_its_group_refuses_raises() -> None:
    """Its name is another, living member's: it is not let in, and does not go on taking writes."""
    async with founders() as (group, _):
        for name in AT:
            await group.open(name)
        await group.up["us"].ready()
        with pytest.raises(
            HandshakeError, match="cannot found group 'default': the name 'us' is in use"
        ):
            async with open_replica("us", founders=AT, listen="10.0.0.4:7001") as twin:
                await twin.object("cart", AWSet).add("nobody gets that")


@simulated
async def test_names_that_nobody_can_have_are_refused_at_once() -> None:
    with Network():
        async with open_host("a", listen="10.0.0.1:7001") as links:
            for founders, wrong in (
                ("ab", "founders='ab' is one string"),
                (["a", "no name"], "invalid founder name 'no name'"),
                ([f"n{n}" for n in range(101)], "101 founders: at most 100"),
            ):
                with pytest.raises(ConfigurationError, match=wrong):
                    links.found("g", founders=founders)
            links.found("g", founders=["a", "b"])
