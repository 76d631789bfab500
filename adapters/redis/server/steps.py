"""Own reads as steps: what reads yields commands, and gets their replies. So it is awaited in a gateway, taken at one
instant at the end of a commit, and driven by a test, all the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Read: TypeAlias = Callable[[list[list[bytes]]], Awaitable[Sequence[object]]]
"""Sends commands from database 0, and back to it, and returns their replies, errors among them as values."""
Steps: TypeAlias = Generator[list[list[bytes]], Sequence[Any], T]
"""What reads: it yields commands from database 0, and back to it, and gets their replies, errors among them as values.
"""


async def taken(steps: Steps[T], read: Read) -> T:
    """Take all steps, and return what comes of them."""
    try:
        commands = next(steps)
        while True:
            commands = steps.send(await read(commands))
    except StopIteration as ended:
        result: T = ended.value
        return result
