"""Batches: several objects, one message, all or nothing."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio

from crdtcast import InvalidOperationError, LocalProtocolError, TypeClashError
from crdtcast.datatypes import AWSet, PureOpCRDT, ResettableCounter

from .replica_support import isolate, level, rejoin, replicas, settle


class Tickets(ResettableCounter):
    """Never below zero where it is issued: what `permit` is for."""

    TYPE = "tickets_example"

    def permit(self, name: str, args: Sequence[Any], after: Sequence[Sequence[Any]]) -> None:
        worth = self.value
        for earlier, *amounts in after:
            worth += amounts[0] if earlier == "increment" else -amounts[0]
        if name == "decrement" and args[0] > worth:
            raise InvalidOperationError(f"only {worth} left")


def test_a_batch_is_one_message_and_takes_effect_at_once() -> None:
    async def main() -> None:
        async with replicas() as group:
            eu, us, _ = group
            await eu.object("cart", AWSet).add("milk")
            sent = eu.member.engine.counters().sent
            with eu.batch() as batch:
                order = batch.object("order:1", AWSet)
                order.add("milk")
                order.add("bread")
                batch.object("orders", ResettableCounter).increment()
                batch.delete("cart")
                assert eu.object("orders", ResettableCounter).value == 0
            assert eu.member.engine.counters().sent == sent + 1
            assert batch.tag is not None
            assert batch.tag.dot.counter == sent + 1
            seen = []
            while not us.object("orders", ResettableCounter).exists:
                seen.append([info.name for info in us.objects()])
                await us.changed()
            assert seen[-1] in ([], ["cart"])
            assert us.object("order:1", AWSet).value == {"milk", "bread"}
            assert [info.name for info in us.objects()] == ["order:1", "orders"]
            await settle(group)

    trio.run(main)


def test_an_exception_or_a_refusal_sends_nothing() -> None:
    async def main() -> None:
        async with replicas() as (eu, *_):
            with pytest.raises(ZeroDivisionError), eu.batch() as batch:
                batch.object("cart", AWSet).add("milk")
                raise ZeroDivisionError
            with pytest.raises(InvalidOperationError), eu.batch() as batch:
                batch.object("cart", AWSet).add("milk")
                batch.object("visits", ResettableCounter).increment(1.5)
            with (
                pytest.raises(InvalidOperationError, match="fit into a frame"),
                eu.batch() as batch,
            ):
                for number in range(9):
                    batch.object("cart", AWSet).add(bytes([number]) * 2**21)
            with eu.batch() as empty:
                pass
            with pytest.raises(AttributeError, match="no method 'push'"), eu.batch() as batch:
                batch.object("cart", AWSet).push("x")
            assert batch.tag is None and empty.tag is None
            assert eu.objects() == [] and eu.member.engine.counters().sent == 0
            with (
                pytest.raises(LocalProtocolError, match="batch has ended"),
                empty,
            ):
                raise AssertionError("it is entered again")
            with pytest.raises(LocalProtocolError, match="batch has ended"):
                batch.delete("cart")

    trio.run(main)


def test_each_operation_of_a_batch_sees_the_earlier_ones() -> None:
    async def main() -> None:
        async with replicas(types=[Tickets]) as (eu, *_):
            tickets = eu.object("tickets", Tickets)
            await tickets.increment(3)
            with pytest.raises(InvalidOperationError, match="only 1 left"), eu.batch() as batch:
                batch.object("tickets", Tickets).decrement(2)
                batch.object("tickets", Tickets).decrement(2)
            assert tickets.value == 3
            with eu.batch() as batch:
                batch.object("tickets", Tickets).increment(1)
                batch.object("tickets", Tickets).decrement(4)
            assert tickets.value == 0

    trio.run(main)


def test_batch_is_checked_again_after_a_concurrent_effect() -> None:
    async def main() -> None:
        async with replicas(types=[Tickets]) as (eu, *_):
            tickets = eu.object("tickets", Tickets)
            await tickets.increment(3)
            with pytest.raises(InvalidOperationError, match="only 1 left"), eu.batch() as batch:
                batch.object("tickets", Tickets).decrement(2)
                await tickets.decrement(2)
            assert tickets.value == 1

    trio.run(main)


def test_a_name_has_one_type_within_a_batch_too() -> None:
    async def main() -> None:
        async with replicas() as (eu, us, asia):
            with pytest.raises(LocalProtocolError, match="in one batch"), eu.batch() as batch:
                batch.object("x", AWSet).add("a")
                batch.object("x", ResettableCounter).increment()
            await eu.object("x", AWSet).add("a")
            with pytest.raises(TypeClashError), eu.batch() as batch:
                batch.object("x", ResettableCounter).increment()
            with eu.batch() as batch:
                batch.delete("x")
                batch.object("x", ResettableCounter).increment(7)
            await settle([eu, us, asia])
            for replica in (eu, us, asia):
                assert replica.object("x", ResettableCounter).value == 7

    trio.run(main)


def test_deletion_in_a_batch_removes_only_earlier_operations() -> None:
    async def main() -> None:
        async with replicas() as group:
            eu, us, _ = group
            with eu.batch() as batch:
                batch.object("x", AWSet).add("before")
                batch.delete("x")
                batch.object("x", AWSet).add("behind")
                batch.object("gone", AWSet).add("a")
                batch.delete("gone")
            isolate(us, group)
            await us.object("x", AWSet).add("concurrent")
            await us.object("gone", AWSet).add("concurrent")
            rejoin(us, group)
            await level(group)
            await settle(group)
            for replica in group:
                worth = replica.object("x", AWSet).value
                assert "before" not in worth and worth >= {"behind", "concurrent"}
                assert replica.object("gone", AWSet).value == {"concurrent"}

    trio.run(main)


def test_a_type_may_compress_a_batch() -> None:
    class Frugal(ResettableCounter):
        TYPE = "frugal_example"

        def compress(self, operations: Sequence[list[Any]]) -> list[list[Any]]:
            return [["increment", sum(operation[1] for operation in operations)]]

    async def main() -> None:
        async with replicas(types=[Frugal]) as (eu, us, asia):
            with eu.batch() as batch:
                for _ in range(5):
                    batch.object("n", Frugal).increment(2)
            frugal: PureOpCRDT[int] = eu.object("n", Frugal).crdt
            assert frugal.log_size == 1
            await settle([eu, us, asia])
            assert us.object("n", Frugal).value == 10

    trio.run(main)
