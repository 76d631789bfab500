"""Own reads as steps: a generator yields commands and gets their replies. The same code can be awaited in a gateway,
run at one instant at the end of a commit, or driven by a test.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Read: TypeAlias = Callable[[list[list[bytes]]], Awaitable[Sequence[object]]]
"""Sends commands that begin and end on database 0, and returns their replies, errors as values."""
Steps: TypeAlias = Generator[list[list[bytes]], Sequence[Any], T]
"""Yields commands that begin and end on database 0, and gets their replies, errors as values."""


async def taken(steps: Steps[T], read: Read) -> T:
    """Take all steps and return the result."""
    try:
        commands = next(steps)
        while True:
            commands = steps.send(await read(commands))
    except StopIteration as ended:
        result: T = ended.value
        return result
