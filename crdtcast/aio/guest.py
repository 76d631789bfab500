"""Trio's run as a guest of an asyncio loop: it begins with the first who needs it, and ends with the last."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import outcome
import trio

from crdtcast.exceptions import EndedError, LocalProtocolError

T = TypeVar("T")
GRACE = 1.0
"""Seconds in which Trio may end in order after Ctrl-C has ended one of its tasks."""


class _Interrupts(trio.abc.Instrument):
    """Calls `on_interrupt` when KeyboardInterrupt has ended a task of Trio."""

    def __init__(self, on_interrupt: Callable[[], None]) -> None:
        self._on_interrupt = on_interrupt

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        # Not public: without it, the end of the program may need a third Ctrl-C.
        errors = getattr(task.parent_nursery, "_pending_excs", ())
        if any(isinstance(error, KeyboardInterrupt) for error in errors):
            self._on_interrupt()


class Guest:
    """One run of Trio in the thread of an asyncio loop. Made by `guest`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.users: int = 0
        self.began: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._process: int = os.getpid()
        self._thread: int = threading.get_ident()
        self._nursery: trio.Nursery | None = None
        self._answers: set[asyncio.Future[Any]] = set()
        self.interrupted: bool = False
        """Whether Ctrl-C came to Trio. In any task but the program's own it would end the loop at once."""
        self._stopping: trio.Event = trio.Event()
        trio.lowlevel.start_guest_run(
            self._run,
            run_sync_soon_threadsafe=lambda step: loop.call_soon_threadsafe(self._step, step),
            run_sync_soon_not_threadsafe=lambda step: loop.call_soon(self._step, step),
            done_callback=self._done,
            host_uses_signal_set_wakeup_fd=True,
            restrict_keyboard_interrupt_to_checkpoints=True,
            instruments=[_Interrupts(self._cut_short)],
        )

    async def _run(self) -> None:
        async with trio.open_nursery() as beside:
            beside.start_soon(self._watch)
            try:
                async with trio.open_nursery() as self._nursery:
                    self.began.set_result(None)
                    await self._stopping.wait()
                    self._nursery.cancel_scope.cancel()
            finally:
                self._nursery = None
            beside.cancel_scope.cancel()

    async def _watch(self) -> None:
        """See that Trio ends by itself: a second Ctrl-C has come to one of its callbacks. That may have been the answer
        of a thread, and a task would wait for it forever.
        """
        try:
            await trio.sleep_forever()
        finally:
            if self._nursery is not None:
                self._done(outcome.Error(KeyboardInterrupt()))

    def _cut_short(self) -> None:
        """Ctrl-C has ended a task of Trio. Others may wait for it forever, also while they are cancelled."""
        self._loop.call_later(GRACE, self._done, outcome.Error(KeyboardInterrupt()))

    def _step(self, step: Callable[[], object]) -> None:
        try:
            step()
        except BaseException as error:
            # A second Ctrl-C is raised wherever it comes; Trio does not continue.
            self._done(outcome.Error(error))
            raise

    def _done(self, result: outcome.Outcome[None]) -> None:
        if self.ended.done():
            return
        self.interrupted = isinstance(result, outcome.Error)
        self._nursery = None
        for answer in [*self._answers]:  # of calls that the end of the run has cut short
            if not answer.done():
                answer.set_exception(self._over())
        if not self.began.done():
            self.began.cancel()
        self.ended.set_result(None)

    def stop(self) -> None:
        """Let the run end; `ended` is set then."""
        self.set(self._stopping)

    def set(self, event: trio.Event) -> None:
        """Wake who waits for it in Trio, if it still runs: it may have been interrupted."""
        if not self.ended.done():
            event.set()

    def check(self) -> None:
        """Raises EndedError if this run is over, and what `check_place` and `check_loop` raise."""
        self.check_place()
        self.check_loop()
        if self._nursery is None:
            raise self._over()

    @property
    def is_of_another_process(self) -> bool:
        """Whether this process was forked from its own."""
        return os.getpid() != self._process

    def check_place(self) -> None:
        """Raises LocalProtocolError in another thread, or in a process that was forked from its own."""
        if self.is_of_another_process:
            raise LocalProtocolError(
                "this replica belongs to the process that this one was forked from: open a replica after the fork"
            )
        if threading.get_ident() != self._thread:
            raise LocalProtocolError(
                "this replica belongs to the thread of its asyncio loop, and this is another one: use it in an "
                "`async def` function, or open it with crdtcast.sync.open_replica"
            )

    def check_loop(self) -> None:
        """Raises LocalProtocolError in another loop of this thread: Trio would not run until that one has ended."""
        running = _running_loop()
        if running is not None and running is not self._loop:
            raise LocalProtocolError(
                "this replica belongs to another asyncio loop, which does not run now: open a replica in each loop, "
                "or keep one loop for all (asyncio.Runner)"
            )

    @staticmethod
    def _over() -> EndedError:
        return EndedError("this replica is closed: use it inside its `async with` block")

    def _answered(self, answer: "asyncio.Future[Any]") -> None:
        self._answers.discard(answer)
        if not answer.cancelled():
            answer.exception()  # a caller that is cancelled meanwhile does not ask: asyncio would log it

    async def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Await a function of Trio from a task of asyncio. A cancellation reaches it, and has ended it on return."""
        self.check()
        assert self._nursery is not None
        answer: asyncio.Future[T] = self._loop.create_future()
        self._answers.add(answer)
        answer.add_done_callback(self._answered)
        scope = trio.CancelScope()

        async def run() -> None:
            try:
                with scope:
                    value = await function(*args)
                    answer.set_result(value)
            except Exception as error:
                if not answer.done():  # else Trio was interrupted, and Python clears its tasks away
                    answer.set_exception(error)
            if scope.cancelled_caught:
                answer.cancel()

        self._nursery.start_soon(run)
        while True:
            try:
                await asyncio.wait({answer})
            except asyncio.CancelledError:
                if answer.done():
                    raise
                scope.cancel()
                await settled(answer)
                raise
            return answer.result()

    @asynccontextmanager
    async def entered(self, manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
        """Enter a context of Trio from asyncio. If it ends with an error meanwhile, the block is cancelled, and the
        error is raised.
        """
        inside = failed = False
        opened: asyncio.Future[T] = self._loop.create_future()
        closing = trio.Event()
        task = asyncio.current_task()
        assert task is not None

        async def hold() -> None:
            async with manager as value:
                opened.set_result(value)
                await closing.wait()

        def over(held: asyncio.Task[None]) -> None:
            nonlocal failed
            if not held.cancelled() and held.exception() is not None and inside:
                failed = True
                task.cancel()

        held = asyncio.create_task(self.call(hold))
        held.add_done_callback(over)
        try:
            either: list[asyncio.Future[Any]] = [opened, held]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if held.done():
                await held
            inside = True
            try:
                yield opened.result()
            except asyncio.CancelledError:
                if not failed or task.cancelling() > 1:
                    raise
            finally:
                if failed:  # also if the block has caught the cancellation
                    task.uncancel()
        finally:
            inside = False
            if opened.done():
                self.set(closing)
            else:
                held.cancel()
            await settled(held)
            if self.interrupted:
                raise KeyboardInterrupt
            if not held.cancelled():
                held.result()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def settled(future: "asyncio.Future[Any]") -> None:
    """Return when it is done, however often this task is cancelled; a cancellation is told then."""
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


_GUESTS: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, Guest]] = WeakKeyDictionary()


@asynccontextmanager
async def guest() -> AsyncIterator[Guest]:
    """Trio in the running loop, for as long as the block runs. Raises LocalProtocolError outside asyncio."""
    loop = _running_loop()
    if loop is None:
        raise LocalProtocolError(
            "crdtcast.aio needs a running asyncio loop: in Trio use crdtcast.open_replica, and in programs "
            "without a loop crdtcast.sync.open_replica"
        )
    while (running := _GUESTS.get(loop)) is not None and not running.users:
        await asyncio.wait({running.ended})  # a thread has one run of Trio at a time
    if running is None:
        if trio.lowlevel.in_trio_run():
            if any(each.is_of_another_process for each in _GUESTS.values()):
                raise LocalProtocolError(
                    "this process was forked in the thread of a replica's asyncio loop, which Trio cannot leave: open "
                    'a replica in another thread, or start the process by "spawn" or "forkserver" (multiprocessing)'
                )
            raise LocalProtocolError(
                "Trio runs in this thread already, so it cannot be a guest of asyncio: use crdtcast.open_replica"
            )
        running = _GUESTS[loop] = Guest(loop)
    running.users += 1
    try:
        await asyncio.wait({running.began})
        running.began.result()
        yield running
    finally:
        running.users -= 1
        if not running.users:
            running.stop()
            try:
                await settled(running.ended)
            finally:
                del _GUESTS[loop]
