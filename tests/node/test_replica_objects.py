"""Names, types, listing, deletion and waiting: what a replica does with its objects."""

import math
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from crdtcast import InvalidOperationError, LocalProtocolError, TypeClashError, open_replica
from crdtcast.datatypes import AWSet, PureOpCRDT, ResettableCounter
from crdtcast.replica.objects import Objects

from .replica_support import isolate, level, rejoin, replicas, settle


def test_object_exists_from_its_first_operation() -> None:
    async def main() -> None:
        async with replicas() as (eu, us, asia):
            cart = us.object("cart", AWSet)
            assert (cart.value, cart.exists, us.objects()) == (frozenset(), False, [])
            await eu.object("cart", AWSet).add("milk")
            await eu.object("visits", ResettableCounter).increment()
            await settle([eu, us, asia])
            assert cart.exists and cart.value == {"milk"}
            listed = [(info.name, info.type, info.visible, info.known) for info in us.objects()]
            assert listed == [
                ("cart", "set_aw", True, True),
                ("visits", "counter_resettable", True, True),
            ]
            assert [info.name for info in us.objects("vis")] == ["visits"]
            assert all(info.unstable == info.unknown == 0 for info in us.objects())

    trio.run(main)


def test_a_name_that_has_a_type_cannot_get_another() -> None:
    async def main() -> None:
        async with replicas() as (eu, us, asia):
            early = us.object("x", ResettableCounter)
            await eu.object("x", AWSet).add("a")
            await settle([eu, us, asia])
            with pytest.raises(TypeClashError, match="'x' is a set_aw at this member") as caught:
                us.object("x", ResettableCounter)
            error = caught.value
            assert (error.name, error.wanted, error.found) == ("x", "counter_resettable", "set_aw")
            with pytest.raises(TypeClashError):
                await early.increment()
            with pytest.raises(TypeClashError):
                _ = early.value
            assert us.member.engine.counters().sent == 0
            assert len(us.objects()) == 1

    trio.run(main)


@pytest.mark.parametrize("first", ["eu", "us"])
def test_same_type_wins_everywhere_after_concurrent_creation(first: str) -> None:
    async def main() -> None:
        async with replicas() as group:
            eu, us, _ = group
            isolate(eu, group)
            steps = {
                "eu": partial(eu.object("x", AWSet).add, "a"),
                "us": partial(us.object("x", ResettableCounter).increment, 2),
            }
            await steps.pop(first)()
            for step in steps.values():
                await step()
            rejoin(eu, group)
            await settle(group)
            for replica in group:
                assert replica.object("x", ResettableCounter).value == 2
                with pytest.raises(TypeClashError):
                    replica.object("x", AWSet)
                assert [info.visible for info in replica.objects()] == [True, False]
            assert len({replica.snapshot().digest for replica in group}) == 1

    trio.run(main)


def test_object_that_lost_its_name_is_readable_until_deleted() -> None:
    async def main() -> None:
        async with replicas() as group:
            eu, us, asia = group
            isolate(eu, group)
            basket = eu.object("x", AWSet)
            await basket.add("a")
            await us.object("x", ResettableCounter).increment(2)
            rejoin(eu, group)
            await settle(group)
            assert basket.crdt.value == {"a"}
            await asia.delete("x")
            await level(group)
            assert [replica.objects() for replica in group] == [[], [], []]
            await basket.add("again")
            assert basket.value == {"again"}

    trio.run(main)


def test_deletion_removes_only_what_it_has_seen() -> None:
    async def main() -> None:
        async with replicas() as group:
            eu, us, asia = group
            for name in ("cart", "old"):
                await eu.object(name, AWSet).add("seen")
            await level(group)
            isolate(us, group)
            await us.delete("cart")
            await us.delete("old")
            assert us.objects() == []
            await eu.object("cart", AWSet).add("unseen")
            rejoin(us, group)
            await settle(group)
            for replica in group:
                assert replica.object("cart", AWSet).value == {"unseen"}
                assert [info.name for info in replica.objects()] == ["cart"]
                assert not replica.object("old", AWSet).exists
                assert not replica.held.touched
            await asia.delete("cart")
            await level(group)
            assert all(replica.objects() == [] for replica in group)

    trio.run(main)


def test_deleting_a_missing_object_is_allowed() -> None:
    async def main() -> None:
        async with replicas() as (eu, us, asia):
            await eu.delete("nothing")
            await settle([eu, us, asia])
            assert us.objects() == []
            assert us.unreadable == 0

    trio.run(main)


def test_changed_wakes_for_the_object_and_for_no_other() -> None:
    async def main() -> None:
        async with replicas() as (eu, us, asia):
            woken: list[str] = []

            async def watch(name: str, task_status: trio.TaskStatus[None]) -> None:
                handle = us.object(name, AWSet)
                task_status.started()
                await handle.changed()
                woken.append(name)

            async with trio.open_nursery() as nursery:
                for name in ("a", "b", "c"):
                    await nursery.start(lambda n, task_status: watch(n, task_status), name)
                await trio.testing.wait_all_tasks_blocked()
                await eu.object("a", AWSet).add("from elsewhere")
                await settle([eu, us, asia])
                assert woken == ["a"]
                await us.object("b", AWSet).add("from here")
                await trio.testing.wait_all_tasks_blocked()
                assert woken == ["a", "b"]
                await asia.object("c", AWSet).add("x")
                await level([asia, us])
                await trio.testing.wait_all_tasks_blocked()
                assert woken == ["a", "b", "c"]

    trio.run(main)


def test_deletion_wakes_waiters() -> None:
    async def main() -> None:
        async with replicas() as (eu, us, asia):
            cart = us.object("cart", AWSet)
            await cart.add("x")
            await level([us, eu, asia])
            async with trio.open_nursery() as nursery:

                async def until_deleted() -> None:
                    while cart.exists:
                        await cart.changed()

                nursery.start_soon(until_deleted)
                await eu.delete("cart")

    trio.run(main)


def test_an_operation_can_be_named() -> None:
    async def main() -> None:
        async with replicas() as (eu, *_):
            cart = eu.object("cart", AWSet)
            await cart.perform("add", "x")
            assert cart.value == {"x"}
            with pytest.raises(LocalProtocolError, match="no operation 'push'"):
                await cart.perform("push")

    trio.run(main)


def test_a_snapshot_is_one_cut() -> None:
    async def main() -> None:
        async with replicas() as group:
            eu, us, _ = group
            for number in range(20):
                with eu.batch() as batch:
                    batch.object("left", ResettableCounter).decrement(number)
                    batch.object("right", ResettableCounter).increment(number)
            # Whatever of it has arrived: both accounts or neither.
            while (seen := us.snapshot()).values.get("right") != 190:
                assert seen.values.get("left", 0) + seen.values.get("right", 0) == 0
                await us.changed()
            await level(group)
            taken = [replica.snapshot() for replica in group]
            assert len({snapshot.digest for snapshot in taken}) == 1
            assert all(snapshot.vector == taken[0].vector for snapshot in taken)
            assert taken[1].values == {"left": -190, "right": 190}
            assert taken[1].unknown == ()
            await us.object("left", ResettableCounter).increment(190)
            assert taken[1].values["left"] == -190
            assert us.snapshot().digest != taken[1].digest
            await eu.at_least(us.snapshot().token)

    trio.run(main)


@pytest.mark.parametrize("name", [5, None, b"x", "\ud800", ("x",), ["x"], {}])
def test_name_that_cannot_be_encoded_is_refused(name: Any) -> None:
    async def main() -> None:
        async with open_replica("eu", found=True) as eu:
            with pytest.raises(InvalidOperationError, match="invalid object name"):
                eu.object(name, AWSet)
            with pytest.raises(InvalidOperationError, match="invalid object name"):
                await eu.delete(name)
            with pytest.raises(InvalidOperationError), eu.batch() as batch:
                batch.object(name, AWSet)
            with pytest.raises(InvalidOperationError), eu.batch() as batch:
                batch.delete(name)
            assert eu.member.engine.counters().sent == 0

    trio.run(main)


class Unfinished(PureOpCRDT[int]):
    TYPE = "unfinished"


@pytest.mark.parametrize("crdt_type", [PureOpCRDT, Unfinished, int, AWSet(), "set_aw", None])
def test_invalid_data_type_is_refused(crdt_type: Any) -> None:
    async def main() -> None:
        async with open_replica("eu", found=True) as eu:
            for use in (partial(eu.object, "x"), eu.upgrade, partial(eu.batch().object, "x")):
                with pytest.raises(LocalProtocolError, match="is not a data type"):
                    use(crdt_type)
            assert not eu.machine.torn

    trio.run(main)
    with pytest.raises(LocalProtocolError, match="is not a data type"):
        Objects([crdt_type])


@pytest.mark.parametrize("types", [AWSet, 5, None])
def test_types_that_are_no_list_are_refused(types: Any) -> None:
    with pytest.raises(LocalProtocolError, match=r"types is .*: give a list of data types"):
        Objects(types)


def test_seconds_below_0_are_refused() -> None:
    async def main() -> None:
        async with open_replica("eu", found=True) as eu:
            for seconds in (-1, math.nan, "x"):
                with pytest.raises(LocalProtocolError, match="seconds: give 0 or more"):
                    await eu.verify(seconds)  # type: ignore[arg-type]
            assert (await eu.verify(0)).equal

    trio.run(main)
