"""Raises the format level automatically, once all members have read a higher one for long enough."""

import logging
from typing import Protocol

import trio

from crdtcast.engine import GroupEngine, Standing

_LONGEST_LOOK = 60.0


class Raising(Protocol):
    """A member that may raise the level."""

    @property
    def engine(self) -> GroupEngine: ...
    def raise_level(self, level: int) -> object: ...


class RaisePolicy:
    """Raises the format level when all members have read a higher one for `after` seconds."""

    def __init__(self, after: float) -> None:
        self._after = after
        self._level = 0
        self._since = 0.0

    def look(self, engine: GroupEngine, now: float) -> int | None:
        """The level that this member should request now, or None. Only the lowest member that holds state requests."""
        level = engine.raisable
        wanted = max(engine.level, engine.wants.level or 0)
        if level <= wanted or engine.standing is not Standing.MEMBER:
            self._level = 0
            return None
        if level != self._level:
            self._level, self._since = level, now
        askers = sorted(me for me, member in engine.members.items() if not member.witness)
        due = now - self._since >= self._after
        return level if due and askers and askers[0] == engine.me else None


async def raise_when_all_read_more(member: Raising, after: float) -> None:
    """Apply `RaisePolicy` now and then, forever."""
    logger = logging.getLogger("crdtcast.node")
    policy = RaisePolicy(after)
    while True:
        level = policy.look(member.engine, trio.current_time())
        if level is not None:
            logger.warning("all members read format level %d: raising it by policy", level)
            member.raise_level(level)
        await trio.sleep(min(after / 10, _LONGEST_LOOK))
