"""Objects by name at several replicas of one process, over real sockets."""

from collections.abc import Awaitable, Callable

import msgpack
import pytest
import trio
import trio.testing

from crdtcast import (
    ConfigurationError,
    EndedError,
    InvalidOperationError,
    LocalProtocolError,
    open_replica,
)
from crdtcast.datatypes import AWSet, MVRegister, ResettableCounter
from crdtcast.testing import Network, simulated

from .replica_support import NAMES, replicas, settle


class Visitors(AWSet):
    """A type that only some programs know."""

    TYPE = "visitors_example"


def test_three_replicas_converge_and_leave_no_metadata() -> None:
    async def main() -> None:
        async with replicas() as group:
            for replica in group:
                cart = replica.object("cart", AWSet)
                await cart.add("everywhere")
                await cart.add(replica.name)
                await cart.remove("everywhere")
                await replica.object("visits", ResettableCounter).increment(5)
            await settle(group)
            for replica in group:
                assert replica.object("cart", AWSet).value == set(NAMES)
                assert replica.object("visits", ResettableCounter).value == 15
                assert replica.object("cart", AWSet).crdt.log_size == 0
                assert replica.member.engine.counters().unstable == 0
                assert not replica.held.touched

    trio.run(main)


def test_cancelled_operation_has_no_effect() -> None:
    async def main() -> None:
        async with open_replica("eu", found=True) as eu:
            visits = eu.object("visits", ResettableCounter)
            await visits.increment()
            with trio.CancelScope() as scope:
                scope.cancel()
                await visits.increment()
            assert scope.cancelled_caught
            with trio.CancelScope() as scope:
                scope.cancel()
                await eu.delete("visits")
            assert scope.cancelled_caught
            assert visits.value == 1

    trio.run(main)


def test_changed_returns_after_an_arrival() -> None:
    async def main() -> None:
        async with replicas() as (eu, us, _):
            flag = us.object("flags", AWSet)
            await eu.object("flags", AWSet).add("up")
            while "up" not in flag.value:
                await us.changed()

    trio.run(main)


def test_a_refused_operation_sends_nothing_and_changes_nothing() -> None:
    async def main() -> None:
        async with replicas() as (eu, *_):
            cart = eu.object("cart", AWSet)
            with pytest.raises(InvalidOperationError):
                await cart.add(1.5)
            with pytest.raises(InvalidOperationError, match="fit into a frame"):
                await cart.add(bytes(17 * 2**20))
            with pytest.raises(AttributeError, match="no method 'push'"):
                cart.push("x")
            assert cart.value == frozenset()
            assert eu.member.engine.quiet

    trio.run(main)


def test_operations_of_an_unknown_type_wait_until_it_is_known() -> None:
    async def main() -> None:
        async with replicas() as group:
            eu, us, _ = group
            seen = eu.object("seen", Visitors)
            await seen.add("early")
            await seen.add("gone")
            await settle(group)
            await seen.remove("gone")
            await settle(group)
            assert us.unreadable == 0
            assert us.object("seen", Visitors).value == {"early"}
            assert us.object("seen", Visitors).crdt.log_size == 0

    trio.run(main)


def test_custom_type_may_not_reuse_a_type_name() -> None:
    class Mine(AWSet):
        pass

    async def main() -> None:
        async with replicas() as (eu, *_):
            with pytest.raises(LocalProtocolError, match="choose another TYPE"):
                eu.object("x", Mine)

    trio.run(main)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        msgpack.packb(7),
        msgpack.packb([0, [["cart"]]]),
        msgpack.packb([0, [["cart", "set_aw", "explode"]]]),
        msgpack.packb([0, [["cart", "set_aw", "add", 1.5]]]),
        msgpack.packb([0, [["cart", "set_aw"]]]),
    ],
)
def test_unreadable_payload_is_skipped_counted_and_stable(payload: bytes) -> None:
    async def main() -> None:
        async with replicas() as group:
            eu, us, _ = group
            eu.member.tcbroadcast(payload)
            await eu.object("cart", AWSet).add("after it")
            await settle(group)
            assert us.unreadable == 1
            assert us.object("cart", AWSet).value == {"after it"}

    trio.run(main)


def test_value_too_large_to_unpack_is_refused() -> None:
    async def main() -> None:
        async with replicas() as (eu, *_):
            register = eu.object("many", MVRegister)
            with pytest.raises(InvalidOperationError, match="send them as several messages"):
                await register.assign([[]] * 2**18)
            assert register.value == [] and eu.member.engine.vector[eu.member.engine.me] == 0
            await register.assign([1] * 2**18)

    trio.run(main)


def test_ended_replica_is_readable_and_refuses_writes() -> None:
    async def main() -> None:
        ended: list[str] = []

        async def wait(what: str, waiting: Callable[[], Awaitable[None]]) -> None:
            with pytest.raises(EndedError, match=r"open the .* again"):
                await waiting()
            ended.append(what)

        async with (
            trio.open_nursery() as nursery,
            open_replica("b", found=True) as other,
            open_replica("a", join=other.address) as alone,
        ):
            alone.member.cut("b")  # so that it is never quiet
            cart = alone.object("cart", AWSet)
            await cart.add("milk")
            nursery.start_soon(wait, "object", cart.changed)
            nursery.start_soon(wait, "replica", alone.changed)
            nursery.start_soon(wait, "quiet", alone.wait_quiet)
            await trio.testing.wait_all_tasks_blocked()
        assert sorted(ended) == ["object", "quiet", "replica"]
        with pytest.raises(EndedError):
            await cart.add("tea")
        with pytest.raises(EndedError), alone.batch() as batch:
            batch.object("cart", AWSet).add("tea")
        assert alone.snapshot().values == {"cart": {"milk"}}

    trio.run(main)


@simulated
@pytest.mark.parametrize("count", [1, 100, 150, 300])
async def test_quiet_replica_has_no_log(count: int) -> None:
    """Notices of stability come in slices: the engine may be quiet before the objects have heard of the last ones."""
    with Network():
        async with open_replica("a", found=True) as a, open_replica("b", join=a.address):
            cart = a.object("cart", AWSet)
            for number in range(count):
                await cart.add(number)
            await a.wait_quiet()
            assert cart.crdt.log_size == 0


def test_open_replica_raises_errors_unchanged() -> None:
    async def main() -> None:
        with pytest.raises(ConfigurationError, match="invalid address"):
            async with open_replica("a", listen="nowhere", found=True):
                pass
        with pytest.raises(ZeroDivisionError):
            async with open_replica("a", found=True) as alone:
                await alone.object("x", AWSet).add("y")
                raise ZeroDivisionError
        async with open_replica("a", found=True) as first:
            host, port = first.address
            with pytest.raises(ConfigurationError, match=f"{host}:{port}: another process"):
                async with open_replica("b", listen=f"{host}:{port}", found=True):
                    pass

    trio.run(main)
