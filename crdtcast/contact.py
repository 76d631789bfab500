"""A member's side of a join: it gives a copy of the application's state, then lets the joiner in.

The copy is taken before the join, so that a joiner that cannot acknowledge anything yet holds
nobody's stability back. What happens to the application from then on is noted, and travels with the
admission; so the joiner's application becomes what this member's was at the instant of the join.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from crdtcast.causality.tags import Vector
from crdtcast.exceptions import (
    HandshakeError,
    LocalProtocolError,
    NotReadyError,
    RemoteProtocolError,
)
from crdtcast.hosting import Guest, Hosting, check_crowd
from crdtcast.replacing import whose_place
from crdtcast.transport.link import Link
from crdtcast.wire.group_frames import Admit, Copy, InGroup
from crdtcast.wire.state import Entry, Happened, pack_entry

if TYPE_CHECKING:
    from crdtcast.member import GroupMember

MOST_NOTED = 64 * 2**20
"""Bytes of payload noted for one joiner; one that takes longer has to copy again."""
_NOTE_OVERHEAD = 200


class _Guest(Guest):
    """One joiner: the copy it was given, as of `vector`, and what has happened since then."""

    def __init__(self, link: Link, vector: Vector) -> None:
        super().__init__(link)
        self.vector = vector
        self.since: list[Happened] = []
        self.noted = 0
        self.lapsed = False
        """Too much has happened since: it has to copy again."""


class Contact(Hosting[_Guest]):
    """Answers joiners on behalf of one member. `answer` sends a frame on a link."""

    def __init__(self, member: "GroupMember", answer: Callable[[Link, InGroup], None]) -> None:
        super().__init__(answer)
        self._member = member

    def happened(self, happened: Happened) -> None:
        """Something happens to the application."""
        for guest in self.guests():
            if guest.lapsed:
                continue
            guest.since.append(happened)
            guest.noted += _NOTE_OVERHEAD + len(happened.payload or b"")
            if guest.noted > MOST_NOTED:
                guest.lapsed = True
                guest.since.clear()
                guest.offered = None  # what it has not fetched yet is worth nothing any more

    @property
    def is_busy(self) -> bool:
        """Whether anybody has to be told what happens."""
        return bool(self._guests)

    def _copy(self, link: Link, frame: Copy) -> None:
        engine = self._member.engine
        engine.check_reader(link.name, frame.reads)
        if not engine.standing.can_send:
            raise HandshakeError(f"{engine.me} is about to leave the group: ask another member")
        if self._member.witness:
            raise HandshakeError(f"{engine.me} is a witness without a state to give: ask another")
        try:
            state = self._member.application_state()
        except Exception as error:
            raise self._process_failed(error) from error
        if state is None:
            raise HandshakeError(
                f"{engine.me} has no process whose state it could give: join through "
                "a member that runs one"
            )
        self._offer(self._receive(_Guest(link, dict(engine.vector))), frame.serial, state)

    def _admit(self, link: Link, frame: Admit) -> None:
        guest = self._guest(link)
        if guest is not None and guest.lapsed:
            raise NotReadyError("this copy is too old by now: begin again")
        engine = self._member.engine
        check_crowd(engine, frame.base)
        try:
            # What is reported stable has to have reached the application that is copied.
            self._member.settle()
        except Exception as error:
            raise self._process_failed(error) from error
        try:
            admission = engine.admit(
                frame.base,
                covered=None if guest is None else guest.vector,
                copied_from=engine.me,
                replaces=whose_place(engine, frame.base, frame.replaces, self._member.channel.here),
                witness=frame.witness,
                reads=frame.reads,
            )
        except NotReadyError:
            raise
        except (LocalProtocolError, RemoteProtocolError) as error:
            raise HandshakeError(str(error)) from error
        if guest is None:
            guest = self._receive(_Guest(link, {}))
        entry = Entry(
            admission.incarnation,
            self._member.channel.founding,
            admission.state,
            tuple(guest.since),
        )
        self._offer(guest, frame.serial, pack_entry(entry))

    def _process_failed(self, error: Exception) -> HandshakeError:
        """The failure of this member's own application, not of the joiner."""
        self._member.process_failed(error)
        return HandshakeError(
            f"the process of {self._member.incarnation} fails: ask another member"
        )
