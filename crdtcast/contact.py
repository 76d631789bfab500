"""A member's side of a join: it gives a copy of the application's state, then lets the joiner in.

The copy is taken before the join, so that a joiner that cannot acknowledge anything yet holds
nobody's stability back. What happens to the application from then on is noted, and travels with the
admission; so the joiner's application becomes what this member's was at the instant of the join.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from crdtcast.engine import Span
from crdtcast.exceptions import (
    HandshakeError,
    LocalProtocolError,
    NotReadyError,
    RemoteProtocolError,
)
from crdtcast.group_state import Entry, Happened, pack_entry
from crdtcast.hosting import TOO_OLD, Guest, Hosting, crowd
from crdtcast.link import Link
from crdtcast.replacing import whose_place
from crdtcast.tags import Vector
from crdtcast.wire_groups import Admit, InGroup, Unable

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
                guest.serial += 1  # what it has not fetched yet is worth nothing any more

    @property
    def is_busy(self) -> bool:
        """Whether anybody has to be told what happens."""
        return bool(self._guests)

    def _copy(self, link: Link, reads: Span) -> None:
        engine = self._member.engine
        try:
            engine.check_reader(link.name, reads)
        except HandshakeError as error:
            self._answer(link, Unable(False, str(error)))
            return
        if not engine.standing.can_send:
            text = f"{engine.me} is about to leave the group: ask another member"
            self._answer(link, Unable(False, text))
            return
        if self._member.witness:
            text = f"{engine.me} is a witness without a state to give: ask another"
            self._answer(link, Unable(False, text))
            return
        try:
            state = self._member.application_state()
        except Exception as error:
            self._process_failed(link, error)
            return
        if state is None:
            text = (
                f"{engine.me} has no process whose state it could give: join through "
                "a member that runs one"
            )
            self._answer(link, Unable(False, text))
            return
        self._offer(self._receive(_Guest(link, dict(engine.vector))), state)

    def _admit(self, link: Link, frame: Admit) -> None:
        guest = self._guest(link)
        if guest is not None and guest.lapsed:
            self._answer(link, TOO_OLD)
            return
        engine = self._member.engine
        if (unable := crowd(engine, frame.base)) is not None:
            self._answer(link, unable)
            return
        try:
            # What is reported stable has to have reached the application that is copied.
            self._member.settle()
        except Exception as error:
            self._process_failed(link, error)
            return
        try:
            admission = engine.admit(
                frame.base,
                covered=None if guest is None else guest.vector,
                copied_from=engine.me,
                replaces=whose_place(engine, frame.base, frame.replaces, self._member.channel.here),
                witness=frame.witness,
                reads=frame.reads,
            )
        except NotReadyError as error:
            self._answer(link, Unable(True, str(error)))
            return
        except (LocalProtocolError, RemoteProtocolError) as error:
            self._answer(link, Unable(False, str(error)))
            return
        if guest is None:
            guest = self._receive(_Guest(link, {}))
        entry = Entry(
            admission.incarnation,
            self._member.channel.founding,
            admission.state,
            tuple(guest.since),
        )
        self._offer(guest, pack_entry(entry))

    def _process_failed(self, link: Link, error: Exception) -> None:
        """The failure of this member's own application, not of the joiner."""
        text = f"the process of {self._member.incarnation} fails: ask another member"
        self._answer(link, Unable(False, text))
        self._member.process_failed(error)
