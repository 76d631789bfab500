"""What a member sends again when it is back after an eviction: its own messages that the group does
not have, in order; then it says that this was all (`settle`).

Each is noted under its new dot before that leaves. See `crdtcast.engine.reissue`.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import trio

from crdtcast.causality.member_id import name_of
from crdtcast.engine import GroupEngine, Parked, ParkedOperation
from crdtcast.exceptions import NotReadyError

if TYPE_CHECKING:
    from crdtcast.group.member import Member

_TURN = 32


class Reissue:
    """Sends again for one member. `look` is to be called whenever the engine may have got on."""

    def __init__(self, member: "Member") -> None:
        self._member = member
        self._progress = trio.lowlevel.ParkingLot()

    def look(self) -> None:
        """Something may be decided, or stable."""
        parked = self._member.parked
        if parked is not None and (met := parked.meeting(self._member.engine)) is not parked:
            self._save(met)
        self._progress.unpark_all()

    async def send_again(self) -> None:
        """Until nothing is left to be said; or until the member has another incarnation."""
        member = self._member
        engine = member.engine
        while member.engine is engine and engine.standing.can_send:
            parked = member.parked
            if parked is not None and parked.is_decided(engine):
                self._tell_lost(engine, parked)
                try:
                    for number, operation in enumerate(parked.uncovered(engine), 1):
                        self._send(operation)
                        if number % _TURN == 0:
                            await trio.lowlevel.checkpoint()
                            if not engine.standing.can_send:
                                return
                except NotReadyError:
                    await self._progress.park()
                    continue
                self._settle(engine)
                if member.parked is not None and member.parked.may_be_dropped(engine):
                    self._save(None)
                    return
            elif parked is None:
                self._settle(engine)
                return
            await self._progress.park()

    def _tell_lost(self, engine: GroupEngine, parked: Parked) -> None:
        for incarnation in parked.ended:
            fate = engine.fate(incarnation)
            if isinstance(fate, int):
                self._member.lost(incarnation, fate)

    def _send(self, operation: ParkedOperation) -> None:
        member, parked = self._member, self._member.parked
        assert parked is not None
        payload = member.instead_of(operation.payload, operation.dot)
        if payload is None:
            left = tuple(o for o in parked.operations if o.dot != operation.dot)
            self._save(replace(parked, operations=left))
            return
        tag = member.send_again(payload)
        self._save(parked.reissued(operation, tag.dot))
        member.delivered_again(payload, tag)

    def _settle(self, engine: GroupEngine) -> None:
        for incarnation in sorted(engine.tombs):
            if name_of(incarnation) == self._member.name:
                tag = engine.settle(incarnation)
                if self._member.parked is not None:
                    self._save(self._member.parked.settled(incarnation, tag.dot))
                self._member.channel.flush()

    def _save(self, parked: Parked | None) -> None:
        # With a journal, it is durable before the new dot leaves: both go into one sync.
        self._member.parked = parked
