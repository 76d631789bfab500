"""A replica in an asyncio program: as in Trio, and nothing is left of it when its block ends."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import trio

import crdtcast
from crdtcast import ConfigurationError, EndedError, LocalProtocolError, Whisper, aio
from crdtcast.datatypes import Added, AWSet, Element, PNCounter
from crdtcast.ports import free_ports
from crdtcast.replica.observed import Observed

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
try:
    import uvloop
except ImportError:
    pass
else:
    LOOPS["uvloop"] = uvloop.new_event_loop


def run(main: Callable[[], Coroutine[Any, Any, None]], loop: str = "asyncio") -> None:
    async def in_time() -> None:
        async with asyncio.timeout(60):
            await main()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(in_time())


@pytest.mark.parametrize("loop", LOOPS)
def test_replicas_in_one_loop_converge(loop: str) -> None:
    async def main() -> None:
        async with (
            aio.open_replica("a", found=True) as a,
            aio.open_replica("b", join=a.address) as b,
        ):
            cart, other = a.object("cart", AWSet), b.object("cart", AWSet)
            tag = await cart.add("milk")
            await a.wait_delivered(tag, count=2)
            assert other.value == {"milk"}
            await asyncio.gather(*(b.object("n", PNCounter).increment() for _ in range(200)))
            await a.at_least(await b.token())
            assert a.object("n", PNCounter).value == 200
            with a.batch() as batch:
                batch.object("cart", AWSet).remove("milk")
                batch.object("n", PNCounter).increment(5)
            assert batch.tag is not None
            await a.wait_stable(batch.tag)
            assert b.snapshot().values == {"cart": frozenset(), "n": 205}
            assert (await a.verify()).equal
            await b.delete("n")
            await b.wait_quiet()
            assert [each.name for each in a.objects()] == ["cart"]
            assert set(b.members) == {"a", "b"}
            await b.leave()
        for replica in (a, b):
            with pytest.raises(EndedError):
                await replica.object("cart", AWSet).add("late")
            with pytest.raises(EndedError):
                await replica.changed()
        assert cart.value == frozenset()

    for _ in range(2):  # a second run in a second loop of this thread
        run(main, loop)


def test_what_another_replica_changes_wakes_a_task() -> None:
    async def main() -> None:
        async with (
            aio.open_replica("a", found=True) as a,
            aio.open_replica("b", join=a.address) as b,
        ):
            cart = b.object("cart", AWSet)

            async def seen() -> None:
                while not cart.value:
                    await cart.changed()

            waiting = asyncio.create_task(seen())
            await asyncio.sleep(0)
            await a.object("cart", AWSet).add("milk")
            await waiting

            for turns in range(20):  # a change between the look and Trio's next step
                waiting = asyncio.create_task(cart.changed())
                await asyncio.sleep(0)  # it has looked
                b._replica.perform(cart._key, "add", str(turns))
                await waiting

    run(main)


def test_observers_are_told_each_change_in_its_terms() -> None:
    async def main() -> None:
        async with (
            aio.open_replica("a", found=True) as a,
            aio.open_replica("b", join=a.address) as b,
        ):
            called: list[Observed[frozenset[Element]]] = []
            stop = b.object("cart", AWSet).on_change(called.append)
            told = b.object("cart", AWSet).observe()
            assert (await anext(told)).value == frozenset()
            for number in range(20):
                await a.object("cart", AWSet).add(number)
                seen = await anext(told)
                assert seen == Observed(frozenset(range(number + 1)), (Added(number),), False)
            await b.wait_quiet()
            assert [step for each in called for step in each.changes] == [*map(Added, range(20))]
            stop()
            await b.object("cart", AWSet).add("own")
            assert (await anext(told)).local
            await b.wait_quiet()
            assert len(called) < 22 and called[-1].value == seen.value
        with pytest.raises(EndedError):
            await anext(told)

    run(main)


def test_cancelled_wait_ends_at_once_and_leaves_nothing() -> None:
    async def main() -> None:
        async with aio.open_replica("a", found=True) as a:
            silent = aio.open_replica("b", join=a.address)
            b = await silent.__aenter__()
            await a.wait_quiet()
            await silent.__aexit__(None, None, None)
            tag = await a.object("n", PNCounter).increment()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await a.wait_stable(tag)
            waits = [asyncio.create_task(a.wait_delivered(tag, count=2)) for _ in range(3)]
            await asyncio.sleep(0)
            for wait in waits:
                wait.cancel()
            told = await asyncio.gather(*waits, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in told)
            assert a._replica.member.waiting == 0
            assert b.name == "b"

    run(main)


def test_error_of_a_cancelled_wait_is_not_logged_by_asyncio() -> None:
    logged: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: logged.append(told))
        async with aio.open_replica("a", found=True) as a:
            errors = 0
            for turns in range(40):
                wait = asyncio.create_task(a.at_least("no token"))  # type: ignore[arg-type]
                for _ in range(turns % 10):
                    await asyncio.sleep(0)
                wait.cancel()
                told = (await asyncio.gather(wait, return_exceptions=True))[0]
                errors += isinstance(told, LocalProtocolError)
            assert errors < 40
        gc.collect()

    run(main)
    gc.collect()
    assert not logged


def test_cancelled_operation_has_not_happened() -> None:
    async def main() -> None:
        async with aio.open_replica("a", found=True) as a:
            count = a.object("n", PNCounter)
            done = 0
            for seed in range(40):
                task = asyncio.create_task(count.increment())
                for _ in range(seed % 3):
                    await asyncio.sleep(0)
                task.cancel()
                done += not isinstance(
                    (await asyncio.gather(task, return_exceptions=True))[0], BaseException
                )
            assert count.value == done
            assert 0 < done < 40

    run(main)


def two_founders() -> dict[str, str]:
    """Names and addresses."""
    return {name: f"127.0.0.1:{port}" for name, port in zip("ab", free_ports(2), strict=True)}


def test_founders_wait_for_each_other_and_writes_with_them() -> None:
    founders = two_founders()

    async def main() -> None:
        async with aio.open_replica("a", founders=founders) as a:
            early = asyncio.create_task(a.object("cart", AWSet).add("milk"))
            async with aio.open_replica("b", founders=founders) as b:
                await b.ready()
                await a.wait_delivered(await early, count=2)
                assert b.object("cart", AWSet).value == {"milk"}

    run(main)


def test_error_of_a_running_replica_takes_the_place_of_its_block() -> None:
    founders = two_founders()

    async def main() -> None:
        with pytest.raises(ConfigurationError, match="founders"):
            async with (
                aio.open_replica("a", founders={**founders, "c": None}),
                aio.open_replica("b", founders=founders),
            ):
                await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0
        await asyncio.sleep(0)

    run(main)


@pytest.mark.parametrize("how", ["swallows", "converts"])
def test_block_that_catches_its_cancellation_is_not_cancelled(how: str) -> None:
    founders = two_founders()

    async def main() -> None:
        with pytest.raises(ConfigurationError, match="founders"):
            async with (
                aio.open_replica("a", founders={**founders, "c": None}),
                aio.open_replica("b", founders=founders),
            ):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if how == "converts":
                        raise ValueError("the request has failed") from None
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0

    run(main)


def test_error_of_the_block_is_that_of_the_program() -> None:
    async def main() -> None:
        with pytest.raises(ZeroDivisionError):
            async with aio.open_replica("a", found=True):
                _ = 1 / 0
        with pytest.raises(ConfigurationError, match="set founders="):
            async with aio.open_replica("a"):
                pass

    run(main)


def test_replica_that_finds_no_member_can_be_given_up() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), aio.open_replica("a", join="127.0.0.1:1"):
                raise AssertionError("nobody is there")
        async with aio.open_replica("a", found=True) as a:  # Trio can be a guest again
            await a.object("n", PNCounter).increment()

    run(main)


def test_each_door_names_the_right_one() -> None:
    async def main() -> None:
        with pytest.raises(LocalProtocolError, match=r"under asyncio use crdtcast\.aio"):
            async with crdtcast.open_replica("a", found=True):
                pass

    run(main)

    async def in_trio() -> None:
        with pytest.raises(LocalProtocolError, match=r"in Trio use crdtcast\.open_replica"):
            async with aio.open_replica("a", found=True):
                pass

    trio.run(in_trio)


def test_other_threads_are_refused() -> None:
    """As a function that FastAPI calls in a thread, because it is no `async def`."""

    async def main() -> None:
        async with aio.open_replica("a", found=True) as a:
            cart = a.object("cart", AWSet)
            looks: list[Callable[[], object]] = [
                lambda: cart.value,
                lambda: a.object("n", PNCounter),
                a.snapshot,
                a.objects,
                a.batch,
                lambda: asyncio.run(a.wait_quiet()),
                lambda: asyncio.run(within(cart.add("milk"))),
            ]
            for look in looks:
                with pytest.raises(LocalProtocolError, match="`async def` function, or open it"):
                    await asyncio.to_thread(look)
            assert cart.value == frozenset()

    async def within(operation: Coroutine[Any, Any, object]) -> None:
        await operation

    run(main)


def test_other_loop_of_the_thread_is_refused() -> None:
    """As a replica that one test has opened, and another one uses in its own loop."""
    with asyncio.Runner() as first, asyncio.Runner() as second:
        opened = aio.open_replica("a", found=True)
        a = first.run(opened.__aenter__())
        count = a.object("n", PNCounter)

        async def within(call: Callable[[], Coroutine[Any, Any, object]]) -> None:
            await call()

        for call in (count.increment, count.changed, a.ready, lambda: a.verify(1)):
            with pytest.raises(LocalProtocolError, match="belongs to another asyncio loop"):
                second.run(within(call))
        assert count.value == 0
        first.run(within(count.increment))
        first.run(within(lambda: opened.__aexit__(None, None, None)))


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_child_forked_in_the_loop_is_told_where_to_open_its_own() -> None:
    async def own() -> None:
        async with aio.open_replica("c", found=True):
            pass

    def child() -> str:
        """What it is told."""
        reads, writes = os.pipe()
        if not (process := os.fork()):
            try:
                asyncio.run(own())
            except LocalProtocolError as error:
                os.write(writes, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(process, 0)
        os.close(writes)
        with open(reads) as told:
            return told.read()

    async def main() -> None:
        async with aio.open_replica("a", found=True) as a:
            assert "in another thread, or start the process by" in child()
            await a.object("n", PNCounter).increment()

    run(main)


SERVICE = """
import asyncio, sys
from crdtcast import aio
from crdtcast.datatypes import PNCounter

async def main():
    async with aio.open_replica("a", found=True, journal=sys.argv[1]) as a:
        count = a.object("n", PNCounter)
        while True:
            await count.increment()
            await a.wait_durable()
            print(count.value, flush=True)

{run}
"""
RUNS = {
    "asyncio.run": "asyncio.run(main())",
    "own loop": "asyncio.new_event_loop().run_until_complete(main())",
}


@pytest.mark.process
@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGINT, "asyncio.run"),
        (signal.SIGINT, "own loop"),
        (signal.SIGKILL, "asyncio.run"),
    ],
)
def test_what_was_durable_is_there_after_a_signal(
    tmp_path: Path, number: signal.Signals, how: str
) -> None:
    words = [sys.executable, "-c", SERVICE.replace("{run}", RUNS[how]), str(tmp_path / "journal")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as service:
        assert service.stdout is not None and service.stderr is not None
        for _ in range(5):
            service.stdout.readline()
        os.kill(service.pid, number)
        said = service.stdout.read()  # some of it may have been read already
        errors = service.stderr.read()
        service.wait(60)
    if number is signal.SIGINT:
        assert service.returncode == -signal.SIGINT, errors
        assert b"KeyboardInterrupt" in errors and b"TrioInternalError" not in errors
    acknowledged = 5 + len(said.splitlines())

    async def main() -> None:
        async with aio.open_replica("a", journal=tmp_path / "journal") as a:
            assert acknowledged <= a.object("n", PNCounter).value <= acknowledged + 1

    run(main)


@pytest.mark.parametrize("loop", LOOPS)
def test_whispers_reach_the_tasks_of_another_replica(loop: str) -> None:
    async def main() -> None:
        async with (
            aio.open_replica("a", found=True) as a,
            aio.open_replica("b", join=a.address) as b,
        ):
            told: list[Whisper] = []
            stop = b.on_whisper(told.append)
            a.whisper("cursors", b"1")
            a.whisper("names", b"ann", seconds=5)
            ear = b.whispers("cursors")
            assert await anext(ear) == ("a", "cursors", b"1")
            a.whisper("cursors", b"")
            assert await anext(ear) == ("a", "cursors", b"")
            stop()
            assert Whisper("a", "cursors", b"1") in told
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await anext(ear)
            with pytest.raises(LocalProtocolError, match="cannot last"):
                a.whisper("x", b"", seconds=0)
        with pytest.raises(EndedError):
            a.whisper("x", b"")
        with pytest.raises(EndedError):
            await anext(ear)

    run(main, loop)


INTERRUPTED = """
import asyncio, sys
from crdtcast import aio
from crdtcast.datatypes import PNCounter

def interrupt():
    raise KeyboardInterrupt

async def main():
    async with aio.open_replica("a", found=True) as a, asyncio.TaskGroup() as tasks:
        tasks.create_task(a.object("n", PNCounter).changed())
        asyncio.get_running_loop().call_soon(a._run._step, interrupt)
        await a.object("n", PNCounter).changed()

asyncio.run(main())
"""


ANSWER_LOST = """
import asyncio, trio
from crdtcast import aio
from crdtcast.datatypes import PNCounter

def interrupt():
    raise KeyboardInterrupt

async def lost():
    trio.lowlevel.current_trio_token().run_sync_soon(interrupt)
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()

async def main():
    async with aio.open_replica("a", found=True) as a, asyncio.TaskGroup() as tasks:
        tasks.create_task(a._run.call(lost))
        await a.object("n", PNCounter).changed()

asyncio.run(main())
"""


@pytest.mark.process
@pytest.mark.parametrize("program", [INTERRUPTED, ANSWER_LOST])
def test_interrupt_within_a_step_of_trio_hangs_nothing(program: str) -> None:
    """A second Ctrl-C is raised wherever the program is: also where Trio takes the answer of a thread."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert done.returncode and "\nKeyboardInterrupt\n" in f"{done.stderr}\n", done.stderr
    assert "InvalidStateError" not in done.stderr


STUCK = """
import asyncio, trio
from crdtcast import aio
from crdtcast.aio import guest

guest.GRACE = 0.01

async def stuck():
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()  # for a task that has been interrupted

async def interrupted():
    raise KeyboardInterrupt

async def main():
    async with aio.open_replica("a", found=True) as a:
        for task in stuck, interrupted:
            a._replica.member.channel.shared.spawn(task)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.process
def test_task_that_waits_for_an_interrupted_one_hangs_nothing() -> None:
    words = [sys.executable, "-c", STUCK]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == -signal.SIGINT, done.stderr
