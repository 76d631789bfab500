"""Groups that are founded with a list: nobody waits for the others to open, nobody writes before all were up."""

import logging

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
from crdtcast.testing import Cluster, Network, eventually, open_cluster, simulated

AT = {"asia": "10.0.0.1:7001", "eu": "10.0.0.2:7001", "us": "10.0.0.3:7001"}


def are_alike(cluster: Cluster[Replica]) -> bool:
    up = [replica.member for replica in cluster.up.values()]
    if any(member.is_outside for member in up):
        return False
    members = [member.engine.members.keys() for member in up]
    return all(each == members[0] for each in members) and len(members[0]) == len(AT)


@simulated
async def test_replicas_opened_in_sequence_do_not_wait() -> None:
    async with open_cluster(open_replica, founders=AT, journal=None) as group:
        for name in AT:
            await group.start(name)
        for name, replica in group.up.items():
            await replica.object("cart", AWSet).add(f"milk from {name}")
        for replica in group.up.values():
            await replica.wait_quiet()
            assert len(replica.object("cart", AWSet).value) == 3


@simulated
async def test_write_before_the_start_names_the_missing_founder() -> None:
    async with open_cluster(open_replica, founders=AT, journal=None) as group:
        asia = await group.start("asia")
        await group.start("eu")
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
        us = await group.start("us")
        await asia.object("cart", AWSet).add("milk")
        await eventually(lambda: us.object("cart", AWSet).value == {"milk"})


@simulated
async def test_founder_without_a_journal_returns_to_its_place() -> None:
    async with open_cluster(open_replica, founders=AT, journal=None) as group:
        for name in AT:
            await group.start(name)
        await group.up["us"].object("cart", AWSet).add("milk")
        for replica in group.up.values():
            await replica.wait_quiet()
        group.crash("us")
        us = await group.start("us")
        await us.object("cart", AWSet).add("after the crash")
        await eventually(lambda: are_alike(group))
        for replica in group.up.values():
            await replica.wait_quiet()
            assert replica.object("cart", AWSet).value == {"milk", "after the crash"}


@simulated
async def test_two_of_three_that_crash_at_once_come_back() -> None:
    async with open_cluster(open_replica, founders=AT, journal=None) as group:
        for name in AT:
            await group.start(name)
        await group.up["asia"].object("cart", AWSet).add("milk")
        await group.up["asia"].wait_quiet()
        group.crash("us")
        group.crash("eu")
        await group.start("us")
        await group.start("eu")
        await eventually(lambda: are_alike(group))
        for replica in group.up.values():
            await replica.wait_quiet()
            assert replica.object("cart", AWSet).value == {"milk"}


def test_joiner_waits_for_unheard_founders_without_a_journal() -> None:
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
async def test_name_missing_from_the_founders_is_refused_at_once() -> None:
    with (
        Network(),
        pytest.raises(
            ConfigurationError, match="'mars' is not one of the founders asia, eu, us: add it"
        ),
    ):
        async with open_replica("mars", founders=AT):
            pass


@simulated
async def test_log_names_the_founders_that_are_missing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with open_cluster(open_replica, founders=AT, journal=None) as group:
        await group.start("asia")
        await trio.sleep(25)
    said = [r.getMessage() for r in caplog.records if "has not started" in r.getMessage()]
    assert len(said) == 2 and "waits for a link with eu, us:" in said[0]


@simulated
async def test_a_founder_with_a_journal_goes_on_as_itself() -> None:
    async with open_cluster(open_replica, founders=AT) as group:
        for name in AT:
            await group.start(name)
        await group.up["us"].object("cart", AWSet).add("milk")
        await group.up["us"].wait_durable()
        before = group.up["us"].member.incarnation
        group.crash("us")
        us = await group.start("us")
        await us.ready()
        assert us.member.incarnation == before and us.object("cart", AWSet).value == {"milk"}
        for replica in group.up.values():
            await replica.wait_quiet()


@simulated
async def test_a_witness_founds_with_the_others_and_holds_no_objects() -> None:
    async with (
        open_cluster(open_replica, founders=AT) as group,
        open_member("us", founders=AT, witness=True) as us,
    ):
        for name in ("asia", "eu"):
            await group.start(name)
        await us.ready()
        await group.up["eu"].object("cart", AWSet).add("milk")
        await group.up["eu"].wait_quiet()
        assert [m.witness for m in us.members.values()] == [False, False, True]


@simulated
async def test_iteration_waits_until_the_group_has_begun() -> None:
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
    async with open_cluster(open_replica, founders=AT) as group:
        for name in AT:
            await group.start(name)
        await group.up["us"].ready()
        with pytest.raises(
            HandshakeError, match="cannot found group 'default': the name 'us' is in use"
        ):
            async with open_replica("us", founders=AT, listen="10.0.0.4:7001") as twin:
                await twin.object("cart", AWSet).add("nobody gets that")


@simulated
async def test_invalid_founder_names_are_refused_at_once() -> None:
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


@simulated
async def test_joiner_is_told_that_the_group_is_still_being_founded() -> None:
    with Network():
        async with open_replica("eu", founders=AT, listen=AT["eu"]):
            why = r"eu cannot admit 'x': not a member of group 'default' yet: start all of its founders"
            with pytest.raises(HandshakeError, match=why):
                async with open_replica("x", join=AT["eu"]):
                    pass
