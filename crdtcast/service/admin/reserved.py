"""What operators ask for waits while a member's next message is reserved: as long as a server takes to answer."""

from typing import Protocol

import trio

from crdtcast.engine import GroupEngine

_LOOK_SECONDS = 0.005


class Reserving(Protocol):
    """A member that may reserve messages."""

    @property
    def engine(self) -> GroupEngine: ...


async def unreserved(member: Reserving) -> None:
    """Return when its engine may send what is asked for, which has to be done at once then."""
    while True:
        if member.engine.reserved is None:
            return
        await trio.sleep(_LOOK_SECONDS)
