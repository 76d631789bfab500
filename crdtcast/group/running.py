"""Lives of nodes: for as long as a `with` block, or until a signal."""

import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from crdtcast.transport.options import Address

if TYPE_CHECKING:
    from crdtcast.transport.endpoint import Endpoint


@asynccontextmanager
async def running(
    node: "Endpoint", *others: Callable[[], Awaitable[None]]
) -> AsyncIterator["Endpoint"]:
    """Run `node` (and other tasks) in the background of a `with` block; it listens when the block begins.

    Errors are raised unchanged, not in an ExceptionGroup: the block's own, also KeyboardInterrupt and SystemExit, or
    the one that ended the node (the block is cancelled then). Ctrl-C comes to the program's tasks only.
    """
    failure: BaseException | None = None

    @trio.lowlevel.enable_ki_protection
    async def run(scope: trio.CancelScope, *, task_status: trio.TaskStatus[Address]) -> None:
        nonlocal failure
        try:
            await node.run(task_status=task_status)
        except Exception as error:
            failure = error
            scope.cancel()
            if not node.listening:
                task_status.started(node.options.listen)

    @trio.lowlevel.enable_ki_protection
    async def guard(other: Callable[[], Awaitable[None]], scope: trio.CancelScope) -> None:
        nonlocal failure
        try:
            await other()
        except Exception as error:
            failure = failure or error
            scope.cancel()

    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(run, nursery.cancel_scope)
            if failure is None:
                for other in others:
                    nursery.start_soon(guard, other, nursery.cancel_scope)
                try:
                    yield node
                except (Exception, KeyboardInterrupt, SystemExit) as error:
                    failure = failure or node.failure or error
                except BaseExceptionGroup as error:
                    # Ctrl-C or `sys.exit` in a nursery of the block. A cancellation beside it may be that of this one.
                    if error.subgroup(trio.Cancelled) is not None:
                        raise
                    failure = failure or node.failure or error
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        match group.exceptions:
            case [KeyboardInterrupt() as interrupt]:  # it came while the nursery began or ended
                raise interrupt from failure
        raise
    if failure is not None:
        raise failure


async def _at_once() -> None:
    pass


async def run_until_signal(
    main: Callable[[], Awaitable[None]], *, before_stop: Callable[[], Awaitable[None]] = _at_once
) -> int | None:
    """Run `main` until it returns, or SIGINT or SIGTERM asks to stop. Return the signal's number, or None.

    before_stop: called at the first signal; `main` continues until it returns, or a second signal ends it. Further
        signals have no effect: `main` is being cancelled and cleans up.
    """
    received: int | None = None
    failure: Exception | None = None

    async def watch(scope: trio.CancelScope) -> None:
        nonlocal received
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                if received is None:
                    received = number
                    nursery.start_soon(stop, scope)
                else:
                    scope.cancel()

    async def stop(scope: trio.CancelScope) -> None:
        try:
            await before_stop()
        finally:
            scope.cancel()

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(watch, scope)
            try:
                await main()
            except Exception as error:
                failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return received
