"""Operators' requests wait while a member's next message is reserved: as long as its server takes to answer."""

from typing import Protocol

import trio

from crdtcast.engine import GroupEngine

_LOOK_SECONDS = 0.005


class Reserving(Protocol):
    """A member that may reserve messages."""

    @property
    def engine(self) -> GroupEngine: ...


async def unreserved(member: Reserving) -> None:
    """Return when its engine may send. The caller must send at once, before it waits again."""
    while True:
        if member.engine.reserved is None:
            return
        await trio.sleep(_LOOK_SECONDS)
