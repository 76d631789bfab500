"""Sends messages again when a member is back after an eviction: its own messages that the group lacks, in order; then a
message that these were all (`settle`).

Each new dot is noted before its message leaves. See `crdtcast.engine.reissue`.
"""

from collections.abc import Callable
from dataclasses import replace

import trio

from crdtcast.causality.member_id import name_of
from crdtcast.engine import GroupEngine, Parked, ParkedOperation
from crdtcast.exceptions import EndedError, NotReadyError
from crdtcast.group.application import Application
from crdtcast.transport.channel import Channel

_TURN = 32


class Reissue:
    """Sends messages again for one member. Call `look` whenever the engine may have made progress.

    tell: sends what is in the outbox, and acts on the results.
    lost: called with a former incarnation, the number of its messages that the group has, and the error for waits on
        the others.
    """

    def __init__(
        self,
        channel: Channel,
        application: Application,
        *,
        tell: Callable[[], None],
        lost: Callable[[str, int, Exception], None],
    ) -> None:
        self.parked: Parked | None = None
        """The messages to send again. With a journal, a change of them is durable before the messages that caused it
        leave: both go into one sync.
        """
        self._channel = channel
        self._application = application
        self._tell = tell
        self._lost = lost
        self._progress = trio.lowlevel.ParkingLot()

    def park(self, engine: GroupEngine) -> None:
        """Park what may have to be sent again: this incarnation is over."""
        self.parked = Parked.of(engine.state(), engine.me, self.parked)

    def look(self, engine: GroupEngine) -> None:
        """Look again: more may be decided or stable, or the machine may be ready now."""
        if self.parked is not None:
            self.parked = self.parked.meeting(engine)
        self._progress.unpark_all()

    async def send_again(self, engine: GroupEngine) -> None:
        """Send again until nothing is left, or until this incarnation is over."""
        while engine.standing.can_send:
            parked = self.parked
            if parked is None:
                self._settle(engine)
                return
            if parked.is_decided(engine):
                self._tell_lost(engine, parked)
                try:
                    for number, operation in enumerate(parked.uncovered(engine), 1):
                        self._send(engine, operation)
                        if number % _TURN == 0:
                            await trio.lowlevel.checkpoint()
                            if not engine.standing.can_send:
                                return
                except NotReadyError:
                    await self._progress.park()
                    continue
                self._settle(engine)
                if self.parked is not None and self.parked.may_be_dropped(engine):
                    self.parked = None
                    self._tell()
                    return
            await self._progress.park()

    def _tell_lost(self, engine: GroupEngine, parked: Parked) -> None:
        for incarnation in parked.ended:
            fate = engine.fate(incarnation)
            if isinstance(fate, int):
                where = f"in group {self._channel.group!r}"
                text = (
                    f"{incarnation} was evicted before this message was {where}; it is sent again"
                )
                self._lost(incarnation, fate, EndedError(text))

    def _send(self, engine: GroupEngine, operation: ParkedOperation) -> None:
        parked = self.parked
        assert parked is not None
        payload = self._application.reissue(operation.payload, operation.dot)
        if payload is None:
            left = tuple(o for o in parked.operations if o.dot != operation.dot)
            self.parked = replace(parked, operations=left)
            return
        tag = engine.send(payload)
        self.parked = parked.reissued(operation, tag.dot)  # before any member gets it
        self._application.delivered(payload, tag)
        self._tell()

    def _settle(self, engine: GroupEngine) -> None:
        for incarnation in sorted(engine.tombs):
            if name_of(incarnation) == self._channel.name:
                tag = engine.settle(incarnation)
                if self.parked is not None:
                    self.parked = self.parked.settled(incarnation, tag.dot)
                self._channel.flush()
