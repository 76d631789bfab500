"""A gateway's own reads of its server, awaited: they run after a commit, all at one instant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import trio

from crdtcast.adapters.redis.ops.recorder import Read
from crdtcast.adapters.redis.server.steps import Steps
from crdtcast.exceptions import ServerError

T = TypeVar("T")
Ask = Callable[[list[Read]], None]
"""`Committer.ask`: the next commit executes these reads at its end."""


class Pending:
    """Reads at one instant. `done` is set when all have ended; `lost` if the connection broke before."""

    def __init__(self, reads: Iterable[Read]) -> None:
        self.lost: bool = False
        self.done: trio.Event = trio.Event()
        self.reads: list[Read] = [
            (command, partial(self._take, callback)) for command, callback in reads
        ]
        self._left = len(self.reads)
        if not self._left:
            self.done.set()

    def _take(self, callback: object, reply: object) -> None:
        self._left -= 1
        if isinstance(reply, ServerError):
            self.lost = True
        elif not self.lost:
            assert callable(callback)
            callback(reply)
        if not self._left:
            self.done.set()


async def read_together(ask: Ask, reads: Iterable[Read]) -> None:
    """Return when each callback has got its reply. Raises ServerError if the connection breaks before."""
    pending = Pending(reads)
    if pending.reads:
        ask(pending.reads)
    await pending.done.wait()
    if pending.lost:
        raise ServerError("the connection to the server broke while reading keys")


async def replies_to(ask: Ask, commands: Sequence[list[bytes]]) -> list[Any]:
    """The replies to these reads, errors as values. Raises ServerError if the connection breaks before."""
    replies: list[Any] = []
    await read_together(ask, [(command, replies.append) for command in commands])
    return replies


def at_once(steps: Steps[T], take: Callable[[T], None]) -> Iterator[Read]:
    """The reads of the only step; `take` gets its result with the last reply."""
    try:
        commands = next(steps)
    except StopIteration as ended:
        take(ended.value)
        return
    replies: list[object] = []

    def note(reply: object) -> None:
        replies.append(reply)
        if len(replies) == len(commands):
            try:
                steps.send(replies)
            except StopIteration as ended:
                take(ended.value)

    for command in commands:
        yield command, note
