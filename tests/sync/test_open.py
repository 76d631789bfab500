"""A replica in a program without an event loop: any thread may use it, and nothing is left when its block ends."""

import atexit
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import trio

from crdtcast import (
    ConfigurationError,
    CrdtcastError,
    EndedError,
    HandshakeError,
    LocalProtocolError,
    TypeClashError,
    sync,
)
from crdtcast.datatypes import Added, AWMap, AWSet, PNCounter, PureOpCRDT
from crdtcast.ports import free_ports
from crdtcast.replica.batch_handles import AWSetBatchHandle
from crdtcast.replica.handles import AWSetHandle
from crdtcast.replica.observed import Observed
from crdtcast.sync.handles import AWSetSyncHandle


def test_replicas_in_threads_converge() -> None:
    before = threading.active_count()
    with sync.open_replica("a", found=True) as a, sync.open_replica("b", join=a.address) as b:
        cart, other = a.object("cart", AWSet), b.object("cart", AWSet)
        a.wait_delivered(cart.add("milk"), count=2, timeout=60)
        assert other.value == {"milk"}
        with a.batch() as batch:
            batch.object("cart", AWSet).remove("milk")
            batch.object("n", PNCounter).increment(5)
        assert batch.tag is not None
        a.wait_stable(batch.tag, timeout=60)
        assert b.snapshot().values == {"cart": frozenset(), "n": 5}
        assert a.verify().equal
        a.at_least(b.token(), timeout=60)
        b.delete("n")
        b.wait_quiet(timeout=60)
        assert [each.name for each in a.objects()] == ["cart"]
        assert set(b.members) == {"a", "b"}
        with pytest.raises(TypeClashError):
            a.object("cart", PNCounter).increment()
        b.leave(timeout=60)
    for replica in (a, b):
        with pytest.raises(EndedError, match="inside its `with` block"):
            replica.snapshot()
    with pytest.raises(EndedError):
        cart.add("late")
    assert threading.active_count() == before


def test_operations_of_many_threads_are_all_there() -> None:
    with sync.open_replica("a", found=True) as a:
        count = a.object("n", PNCounter)
        with ThreadPoolExecutor(8) as pool:
            tags = [*pool.map(lambda _: count.increment(), range(200))]
        assert len({tag.dot for tag in tags}) == count.value == 200


def test_reads_see_no_batch_half_applied() -> None:
    with sync.open_replica("a", found=True) as a:
        done = threading.Event()
        torn = []

        def look() -> None:
            while not done.is_set():
                values = a.snapshot().values
                if values.get("from", 0) + values.get("to", 0):
                    torn.append(values)

        with ThreadPoolExecutor(2) as pool:
            looking = [pool.submit(look) for _ in range(2)]
            for amount in range(1, 60):
                with a.batch() as batch:
                    batch.object("from", PNCounter).decrement(amount)
                    batch.object("to", PNCounter).increment(amount)
            done.set()
            for each in looking:
                each.result()
        assert not torn


def test_wait_ends_by_its_timeout_and_can_be_repeated() -> None:
    with sync.open_replica("a", found=True) as a:
        with sync.open_replica("b", join=a.address):
            a.wait_quiet(timeout=60)
        tag = a.object("n", PNCounter).increment()
        for _ in range(2):
            with pytest.raises(TimeoutError):
                a.wait_delivered(tag, count=2, timeout=0.01)
        assert a._thread.read(lambda: a._replica.member.waiting) == 0


@pytest.mark.parametrize("seconds", [-1, math.nan, "1", b"", [0]])
def test_wrong_timeout_is_refused_in_one_message(seconds: Any) -> None:
    with sync.open_replica("a", found=True) as a:
        told = a.object("cart", AWSet).observe()
        for call in (
            lambda: a.ready(timeout=seconds),
            lambda: a.object("cart", AWSet).changed(timeout=seconds),
            lambda: told.next(seconds),
            lambda: a.leave(timeout=seconds),
        ):
            with pytest.raises(LocalProtocolError, match="give 0 or more, or None"):
                call()
        a.ready(timeout=math.inf)
        assert told.next(timeout=10**400).value == frozenset()


def nested() -> list[Any]:
    inner: list[Any] = []
    for _ in range(100_000):  # too deep for `repr`
        inner = [inner]
    return inner


WRONG: list[Any] = [None, 3, 10**5000, math.nan, b"x", {"a": 1}, nested(), "\ud800"]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
def test_wrong_arguments_are_refused_in_one_line(wrong: Any) -> None:
    with sync.open_replica("a", found=True) as a:
        tag = a.object("n", PNCounter).increment()
        calls: list[Callable[[], object]] = [
            lambda: a.wait_delivered(wrong, count=1),
            lambda: a.wait_delivered(tag, count=wrong if wrong != 1 else 0),
            lambda: a.wait_stable(wrong),
            lambda: a.whisper(wrong, b""),
            lambda: a.whisper("x", b"", seconds=wrong if wrong != 3 else -1),
            lambda: a.whispers(wrong),
            lambda: a.evict(wrong),
            lambda: a.evict("b", force=wrong),
            lambda: a.withdraw(wrong),
            lambda: a.at_least(wrong),
            lambda: a.token().merged(wrong),
            lambda: a.batch().object("m", AWMap).update("k", PureOpCRDT, wrong),
        ]
        if not isinstance(wrong, str):
            calls.append(lambda: a.objects(wrong))
        for call in calls:
            with pytest.raises(CrdtcastError) as told:
                call()
            assert "\n" not in str(told.value) and len(str(told.value)) < 500
        assert a.verify(10**400).equal
        assert a.object("n", PNCounter).value == 1


def test_calls_that_would_block_trio_are_refused() -> None:
    with sync.open_replica("a", found=True) as a:
        count = a.object("n", PNCounter)

        async def main() -> None:
            for call in (
                lambda: count.value,
                count.increment,
                a.wait_quiet,
                sync.open_replica("b", found=True).__enter__,
            ):
                with pytest.raises(LocalProtocolError, match="would block Trio"):
                    call()
            await trio.to_thread.run_sync(count.increment)

        trio.run(main)
        with pytest.raises(LocalProtocolError, match="would block Trio"):
            a.thread.read(lambda: count.value)
        assert count.value == 1


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="no such signals here")
def test_interrupted_wait_leaves_nothing_behind() -> None:
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    main = threading.get_ident()
    try:
        with sync.open_replica("a", found=True) as a:
            with sync.open_replica("b", join=a.address):
                a.wait_quiet(timeout=60)
            tag = a.object("n", PNCounter).increment()

            def waiting() -> int:
                return a.thread.read(lambda: a._replica.member.waiting)

            over = threading.Event()

            def interrupt() -> None:
                while not waiting():
                    pass
                signal.pthread_kill(main, signal.SIGUSR1)
                while not over.wait(
                    5
                ):  # an error in a callback of the garbage collector is ignored
                    signal.pthread_kill(main, signal.SIGUSR1)

            with ThreadPoolExecutor(1) as pool:
                interrupted = pool.submit(interrupt)
                with pytest.raises(KeyboardInterrupt):
                    a.wait_stable(tag)
                over.set()
                interrupted.result(60)
            left = [waiting() for _ in range(20)]
            assert left[-1] == 0
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_thread_whose_start_is_interrupted_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[threading.Thread] = []

    def interrupted(self: threading.Thread) -> None:
        begun.append(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt), sync.open_replica("a", found=True):
            raise AssertionError("it is open")
    begun[0].start()
    begun[0].join(10)
    assert not begun[0].is_alive()


def test_close_that_is_interrupted_is_repeated_at_the_exit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(self: threading.Thread, timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    forgotten: list[object] = []
    unregister = atexit.unregister
    monkeypatch.setattr(
        atexit, "unregister", lambda close: (forgotten.append(close), unregister(close))
    )
    with pytest.raises(KeyboardInterrupt), sync.open_replica("a", found=True) as a:
        join = threading.Thread.join
        monkeypatch.setattr(threading.Thread, "join", interrupted)
    monkeypatch.setattr(threading.Thread, "join", join)
    assert not forgotten
    a.thread.close()  # what the exit calls
    assert forgotten == [a.thread.close]


def test_change_at_another_replica_wakes_a_thread() -> None:
    with sync.open_replica("a", found=True) as a, sync.open_replica("b", join=a.address) as b:
        cart = b.object("cart", AWSet)

        def seen() -> None:
            while not cart.value:
                cart.changed(timeout=60)

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(seen)
            a.object("cart", AWSet).add("milk")
            waiting.result(60)

        for turn in range(20):  # a change between the look and the wait
            assert len(cart.value) == turn + 1
            with ThreadPoolExecutor(1) as pool:
                pool.submit(b.object("cart", AWSet).add, str(turn)).result()
            cart.changed(timeout=60)
        _ = cart.value
        with pytest.raises(TimeoutError):
            cart.changed(timeout=0.01)


def test_observers_are_told_each_change_in_its_terms() -> None:
    with sync.open_replica("a", found=True) as a, sync.open_replica("b", join=a.address) as b:
        told = b.object("cart", AWSet).observe()
        assert told.next(timeout=60).value == frozenset()
        for number in range(20):
            a.object("cart", AWSet).add(number)
            seen = told.next(timeout=60)
            assert seen == Observed(frozenset(range(number + 1)), (Added(number),), False)
        with pytest.raises(TimeoutError):
            told.next(timeout=0.01)
        b.object("cart", AWSet).add("own")
        assert next(told).local
    with pytest.raises(EndedError):
        next(told)


@pytest.mark.parametrize("seconds", [0, 0.1])
def test_member_that_nobody_admits_is_given_up(seconds: float) -> None:
    before = threading.active_count()
    with (
        pytest.raises(HandshakeError, match="was not admitted to group"),
        sync.open_replica("a", join="127.0.0.1:1", join_timeout=seconds),
    ):
        raise AssertionError("nobody is there")
    with pytest.raises(ConfigurationError, match="set founders="), sync.open_replica("a"):
        raise AssertionError("it founds no group")
    assert threading.active_count() == before


def test_handles_of_another_door_are_refused() -> None:
    a: Any
    with sync.open_replica("a", found=True) as a, a.batch() as batch:
        for wrong in (a, batch, None):
            with pytest.raises(
                LocalProtocolError, match=r"of crdtcast\.open_replica or crdtcast\.aio"
            ):
                AWSetHandle(wrong, "cart", AWSet)
        for wrong in (batch, {}, AWSet):
            with pytest.raises(LocalProtocolError, match=r"a replica of crdtcast\.sync, not for"):
                AWSetSyncHandle(wrong, "cart", AWSet)
        for wrong in (a, None):
            with pytest.raises(LocalProtocolError, match="is for the batch of a replica, not for"):
                AWSetBatchHandle(wrong, "cart", AWSet)
        AWSetBatchHandle(batch, "cart", AWSet).add("milk")


def test_error_of_a_running_replica_is_told_by_calls_too() -> None:
    a_port, b_port = free_ports(2)
    founders = {"a": f"127.0.0.1:{a_port}", "b": f"127.0.0.1:{b_port}"}
    with (
        pytest.raises(ConfigurationError, match="founders"),
        sync.open_replica("a", founders={**founders, "c": None}) as a,
        pytest.raises(ConfigurationError, match="founders"),
        sync.open_replica("b", founders=founders) as b,
    ):
        for replica in (a, b):
            with pytest.raises(EndedError) as told:
                replica.ready(timeout=60)
            assert isinstance(told.value.__cause__, ConfigurationError)


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_child_of_a_fork_is_told_to_open_its_own() -> None:
    with sync.open_replica("a", found=True) as a:
        count = a.object("n", PNCounter)
        reads, writes = os.pipe()
        if not (child := os.fork()):
            try:
                count.increment()
            except LocalProtocolError as error:
                os.write(writes, str(error).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        os.close(writes)
        with open(reads) as told:
            assert "open a replica after the fork" in told.read()
        count.increment()
        assert count.value == 1


PROGRAM = """
import sys, threading
from crdtcast import sync
from crdtcast.datatypes import PNCounter

opened = sync.open_replica("a", {how}, journal=sys.argv[1])
a = opened.__enter__()
a.object("n", PNCounter).increment()
{then}
"""
ENDS = {
    "falls off its end": "",
    "raises": "raise SystemExit(3)",
    "is interrupted": "import _thread, time\n_thread.interrupt_main()\na.changed()\na.changed()",
}


@pytest.mark.process
@pytest.mark.parametrize("how", ENDS)
def test_program_that_forgets_to_close_loses_nothing(tmp_path: Path, how: str) -> None:
    for opens in ("found=True", ""):
        program = PROGRAM.format(how=opens or "types=()", then=ENDS[how])
        words = [sys.executable, "-c", program, str(tmp_path / "journal")]
        done = subprocess.run(words, capture_output=True, timeout=60)
        expected = {"raises": 3, "is interrupted": -signal.SIGINT}.get(how, 0)
        assert done.returncode == expected, done.stderr
        assert how == "is interrupted" or not done.stderr
    with sync.open_replica("a", journal=tmp_path / "journal") as a:
        assert a.object("n", PNCounter).value == 2


LATE = """
import atexit
from crdtcast import sync
from crdtcast.datatypes import PNCounter

class Last:
    def __del__(self):
        try:
            print(self.a.object("n", PNCounter).value)
        except Exception as error:
            print(type(error).__name__)

def late():
    global opened
    opened = sync.open_replica("a", found=True)
    last.a = opened.__enter__()

last = Last()
atexit.register(late)
"""


@pytest.mark.process
def test_replica_that_is_opened_at_the_exit_hangs_nothing() -> None:
    words = [sys.executable, "-c", LATE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, "EndedError\n"), done.stderr


def test_threads_hear_what_another_replica_whispers() -> None:
    with sync.open_replica("a", found=True) as a, sync.open_replica("b", join=a.address) as b:
        ear = b.whispers("cursors")
        with pytest.raises(TimeoutError):
            ear.next(timeout=0.01)
        a.whisper("other", b"0")
        a.whisper("cursors", b"1")
        assert ear.next(timeout=60) == ("a", "cursors", b"1")
        a.whisper("cursors", b"2", seconds=5)
        assert next(ear) == ("a", "cursors", b"2")
        a.leave(timeout=60)
        assert ear.next(timeout=60) == ("a", "cursors", b"")
    with pytest.raises(EndedError):
        b.whisper("cursors", b"")
    with pytest.raises(EndedError):
        next(ear)
