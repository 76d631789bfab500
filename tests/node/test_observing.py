"""Observers are told every change of an object once, in the terms of its value, whatever happens to the object."""

from typing import Any

import pytest
import trio

from crdtcast import EndedError, LocalProtocolError, Replica, TypeClashError, open_replica
from crdtcast.datatypes import Added, AWSet, Became, PNCounter, Removed, SharedText, Spliced
from crdtcast.replica.observed import Observed
from crdtcast.testing import Network, eventually, simulated

from .boards import NewBoard, OldBoard
from .regions import agree, evict, regions


class Watcher:
    """Collects what it is told of an object."""

    def __init__(self, handle: Any) -> None:
        self.told: list[Observed[Any]] = []
        self.error: Exception | None = None
        self._handle = handle

    async def run(self) -> None:
        try:
            async for each in self._handle.observe():
                self.told.append(each)
        except (EndedError, TypeClashError) as error:
            self.error = error

    @property
    def changes(self) -> list[Any]:
        return [step for each in self.told for step in each.changes]


@simulated
async def test_observer_is_told_local_and_remote_changes_once() -> None:
    with Network():
        async with (
            open_replica("a", found=True) as a,
            open_replica("b", join=a.address) as b,
            trio.open_nursery() as nursery,
        ):
            await a.object("cart", AWSet).add("milk")
            watch = Watcher(a.object("cart", AWSet))
            nursery.start_soon(watch.run)
            await eventually(lambda: len(watch.told) == 1)
            assert watch.told[0] == Observed({"milk"}, (), False)
            await a.object("cart", AWSet).add("tea")
            await eventually(lambda: len(watch.told) == 2)
            assert watch.told[1] == Observed({"milk", "tea"}, (Added("tea"),), True)
            await b.at_least(await a.token())
            with b.batch() as batch:
                batch.object("cart", AWSet).remove("milk")
                batch.object("cart", AWSet).add("bread")
                batch.object("other", AWSet).add("x")
            await eventually(lambda: len(watch.told) == 3)
            assert watch.told[2] == Observed(
                {"tea", "bread"}, (Removed("milk"), Added("bread")), False
            )
            await a.object("cart", AWSet).add("tea")  # no change of the value
            await a.object("elsewhere", AWSet).add("tea")
            await a.wait_quiet()
            assert len(watch.told) == 3
            await b.delete("cart")
            await eventually(lambda: len(watch.told) == 4)
            assert watch.told[3].value == frozenset()
            await b.object("cart", AWSet).add("again")
            await eventually(lambda: watch.told[-1].value == {"again"})
            nursery.cancel_scope.cancel()


@simulated
async def test_slow_observer_is_told_all_in_one_and_nothing_twice() -> None:
    with Network():
        async with open_replica("a", found=True) as a:
            told = _text(a).observe()
            assert (await anext(told)).value == ""
            for number in range(100):
                await _text(a).insert(0, f"{number} ")
            seen = await anext(told)
            assert seen.value == _text(a).value and seen.local
            assert seen.changes == (Spliced(0, 0, seen.value),)
            with trio.move_on_after(1) as waited:
                await anext(told)
            assert waited.cancelled_caught
            await _text(a).insert(0, "x")  # a wait that was given up is taken up again
            assert (await anext(told)).changes == (Spliced(0, 0, "x"),)


def _text(replica: Replica) -> Any:
    return replica.object("text", SharedText)


@simulated
async def test_observer_goes_on_over_an_eviction_and_an_upgrade() -> None:
    async with regions("a", "b", "c", types=[OldBoard]) as present, trio.open_nursery() as nursery:
        a, c = present.up["a"], present.up["c"]
        await a.object("n", PNCounter).increment(1)
        await a.object("board", OldBoard).add("x")
        await agree(present)
        counted, board = Watcher(c.object("n", PNCounter)), Watcher(c.object("board", OldBoard))
        nursery.start_soon(counted.run)
        nursery.start_soon(board.run)
        await eventually(lambda: counted.told and board.told)
        present.network.cut("c")
        await c.object("n", PNCounter).increment(10)
        await eventually(lambda: len(counted.told) == 2)
        await evict(present, "c")
        await a.object("n", PNCounter).increment(100)
        present.network.heal()
        await eventually(lambda: counted.told[-1].value == 111)
        assert [each.value for each in counted.told[:2]] == [1, 11]
        assert counted.told[1].local and not counted.told[-1].local
        assert all(each.changes == (Became(each.value),) for each in counted.told[1:])
        for replica in present.up.values():
            replica.upgrade(NewBoard)
        await a.object("board", NewBoard).perform("add", "y")
        await eventually(lambda: "y" in board.told[-1].value)
        nursery.cancel_scope.cancel()


@simulated
async def test_observer_ends_with_its_replica_or_its_name() -> None:
    with Network():
        async with trio.open_nursery() as nursery:
            async with (
                open_replica("a", found=True) as a,
                open_replica("b", join=a.address) as b,
            ):
                await a.object("cart", AWSet).add("milk")
                ends = Watcher(b.object("cart", AWSet))
                nursery.start_soon(ends.run)
                await eventually(lambda: ends.told)
                a.member.cut("b")
                rivals = [Watcher(a.object("x", PNCounter)), Watcher(b.object("x", AWSet))]
                for each in rivals:
                    nursery.start_soon(each.run)
                await a.object("x", PNCounter).increment()
                await b.object("x", AWSet).add("milk")
                await eventually(lambda: all(each.told and each.told[-1].value for each in rivals))
                a.member.heal("b")
                await eventually(lambda: any(each.error for each in rivals))
                (loser,) = [each for each in rivals if each.error]
                assert isinstance(loser.error, TypeClashError)
            await eventually(lambda: ends.error and all(each.error for each in rivals))
            assert isinstance(ends.error, EndedError)


@simulated
async def test_callback_is_told_until_it_is_stopped_or_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Network():
        async with open_replica("a", found=True) as a:
            cart = a.object("cart", AWSet)
            told: list[Any] = []
            stop = cart.on_change(told.append)
            failing: list[Any] = []

            def fail(each: Any) -> None:
                failing.append(each)
                raise ZeroDivisionError("an observer")

            cart.on_change(fail)
            await eventually(lambda: told and failing)
            await cart.add("milk")
            await eventually(lambda: len(told) == 2)
            assert told[1].changes == (Added("milk"),)
            stop()
            await cart.add("tea")
            await a.wait_quiet()
            assert len(told) == 2 and len(failing) == 1
            assert "a callback has failed" in caplog.text


@simulated
async def test_callback_of_a_lost_name_ends_without_its_replica(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Network():
        async with (
            open_replica("a", found=True) as a,
            open_replica("b", join=a.address) as b,
        ):
            await a.wait_quiet()
            lost = a.object("x", AWSet)
            lost.on_change(lambda told: None)
            await lost.add("1")
            await b.object("x", PNCounter).increment()
            await a.wait_quiet()
            await b.wait_quiet()
            assert "is told no more: 'x' is a counter_pn" in caplog.text
            await a.object("y", AWSet).add("1")


@simulated
async def test_callback_that_cannot_be_called_is_refused() -> None:
    async def waits(told: object) -> None:
        """Nobody would await it."""

    wrong: Any
    with Network():
        async with open_replica("a", found=True) as a:
            for wrong in (3, None, waits):
                for call in (a.object("x", AWSet).on_change, a.on_whisper):
                    with pytest.raises(LocalProtocolError, match="is not a callback: give"):
                        call(wrong)
