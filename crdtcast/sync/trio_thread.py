"""A thread in which Trio runs for one context manager, and calls into it from other threads."""

import atexit
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, Generic, TypeVar

import trio

from crdtcast.exceptions import EndedError, LocalProtocolError
from crdtcast.short_repr import shown

T = TypeVar("T")
M = TypeVar("M")


class TrioThread(Generic[M]):
    """Trio runs here while `manager` is entered, from `open` to `close`; at the interpreter's exit it is closed."""

    def __init__(self, manager: AbstractAsyncContextManager[M], name: str) -> None:
        self._manager = manager
        self._process: int = os.getpid()
        self._opened: Future[M] = Future()
        self._ended: Future[None] = Future()
        self._scope: trio.CancelScope = trio.CancelScope()
        self._token: trio.lowlevel.TrioToken | None = None
        self._entered: threading.Event = threading.Event()
        """Trio runs, and `_token` is set, or it is over."""
        self._closing: trio.Event = trio.Event()
        self._stopped: bool = False
        """It is over, also if the thread has not begun: Ctrl-C may have interrupted its start."""
        self._thread: threading.Thread = threading.Thread(
            target=self._work, name=f"crdtcast {name}", daemon=True
        )

    def open(self) -> M:
        """Enter the context. Raises its error: nothing is left of it then."""
        self._check_thread()
        atexit.register(self.close)
        try:
            self._thread.start()
            return self._opened.result()
        except BaseException:
            self._stop(self._scope.cancel)
            raise

    def close(self) -> None:
        """Leave the context, and return when the thread has ended. Raises the error with which it had ended before."""
        if os.getpid() != self._process:
            return  # the thread is in the other process
        if sys.is_finalizing():
            return  # no thread but this one runs any more: to wait would be forever
        self._stop(self._closing.set)
        self._ended.result()

    def call(
        self, function: Callable[..., Awaitable[T]], *args: Any, seconds: float | None = None
    ) -> T:
        """Await a function of Trio there. Raises TimeoutError after so many seconds: it is cancelled then."""

        limit = _limit(seconds)
        scope = trio.CancelScope()
        ended = False

        async def limited() -> T:
            nonlocal ended
            if limit is not None:
                scope.deadline = trio.current_time() + limit
            try:
                with scope:
                    return await function(*args)
                raise trio.TooSlowError  # or its caller was interrupted, and does not see this
            finally:
                ended = True

        with self._reached():
            try:
                return trio.from_thread.run(limited, trio_token=self._token)
            except trio.TooSlowError:
                raise TimeoutError(f"not done within {seconds} s") from None
            finally:
                if not ended and self._token is not None:
                    # This thread was interrupted: the wait would go on there forever.
                    with suppress(trio.RunFinishedError):
                        self._token.run_sync_soon(scope.cancel)

    def read(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function there, between two steps of all tasks."""
        with self._reached():
            return trio.from_thread.run_sync(function, *args, trio_token=self._token)

    @contextmanager
    def _reached(self) -> Iterator[None]:
        self.check()
        try:
            yield
        except (trio.RunFinishedError, trio.Cancelled):
            raise self._over() from None

    def check(self) -> None:
        """Raises EndedError if it is closed, LocalProtocolError in a task of Trio, which it would block, and in a
        process that was forked from its own.
        """
        if os.getpid() != self._process:
            raise LocalProtocolError(
                "this replica belongs to the process that this one was forked from: open a replica after the fork"
            )
        self._check_thread()
        if self._ended.done() or sys.is_finalizing():
            raise self._over()

    def _check_thread(self) -> None:
        if trio.lowlevel.in_trio_run() and trio.lowlevel.in_trio_task():
            raise LocalProtocolError(
                "a call of crdtcast.sync would block Trio, which runs in this thread: use crdtcast.open_replica, "
                "or call it in another thread"
            )

    def _over(self) -> EndedError:
        error = EndedError("this replica is closed: use it inside its `with` block")
        if self._ended.done():
            error.__cause__ = self._ended.exception()
        return error

    def _stop(self, how: Callable[[], object]) -> None:
        self._stopped = True
        if self._thread.ident is not None:  # it was started
            self._entered.wait()
            with suppress(trio.RunFinishedError):
                if self._token is not None:
                    self._token.run_sync_soon(how)
            self._thread.join()
        # Not before: if Ctrl-C has ended the wait, the exit waits.
        atexit.unregister(self.close)

    def _work(self) -> None:
        try:
            if not self._stopped:
                trio.run(self._hold)
        except BaseException as error:
            self._ended.set_exception(error)
            if not self._opened.done():
                self._opened.set_exception(error)
        else:
            self._ended.set_result(None)
        finally:
            self._entered.set()

    async def _hold(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._entered.set()
        with self._scope:
            async with self._manager as value:
                self._opened.set_result(value)
                await self._closing.wait()


def _limit(seconds: float | None) -> float | None:
    """As long as a thread can wait. Raises LocalProtocolError if it is not a number of seconds."""
    if seconds is None:
        return None
    if not isinstance(seconds, int | float) or not seconds >= 0:  # nan, too
        raise LocalProtocolError(
            f"cannot wait for {shown(seconds)} seconds: give 0 or more, or None"
        )
    return min(seconds, threading.TIMEOUT_MAX)
