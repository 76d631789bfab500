"""A member's side of a join: it gives a copy of the application's state, then lets the joiner in.

The copy is taken before the join, so that a joiner that cannot acknowledge anything yet holds
nobody's stability back. What happens to the application from then on is noted, and travels with the
admission; so the joiner's application becomes what this member's was at the instant of the join.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from crdtcast.engine import Standing
from crdtcast.exceptions import LocalProtocolError, NotReadyError, RemoteProtocolError
from crdtcast.group_state import Entry, Happened, pack_entry
from crdtcast.incarnation import base_of, name_of
from crdtcast.link import Link
from crdtcast.tags import Vector
from crdtcast.wire_groups import PART_BYTES, Admit, Copy, Fetch, InGroup, Offer, Part, Unable

if TYPE_CHECKING:
    from crdtcast.member import GroupMember

MOST_NOTED = 64 * 2**20
"""Bytes of payload noted for one joiner; one that takes longer has to copy again."""
_NOTE_OVERHEAD = 200
_FRAME_ROOM = 1024


class _Guest:
    """One joiner: the copy it was given, as of `vector`, and what has happened since then."""

    def __init__(self, vector: Vector) -> None:
        self.vector = vector
        self.since: list[Happened] = []
        self.noted = 0
        self.serial = 0
        self.offered = b""


class Contact:
    """Answers joiners on behalf of one member. `answer` sends a frame on a link."""

    def __init__(self, member: "GroupMember", answer: Callable[[Link, InGroup], None]) -> None:
        self._member = member
        self._answer = answer
        self._guests: dict[Link, _Guest] = {}

    def asked(self, link: Link, frame: InGroup) -> None:
        """A frame of the dialogue came."""
        match frame:
            case Copy():
                self._copy(link)
            case Admit(base, replaces, witness):
                self._admit(link, base, replaces, witness)
            case Fetch(serial, offset):
                self._fetch(link, serial, offset)
            case _:
                raise RemoteProtocolError(f"a {type(frame).__name__}, which nobody has asked for")

    def gone(self, link: Link) -> None:
        """The joiner has it all, or the link with it is gone."""
        self._guests.pop(link, None)

    def clear(self) -> None:
        """This member has changed its identity: nothing that was begun goes on."""
        self._guests.clear()

    def happened(self, happened: Happened) -> None:
        """Something happens to the application."""
        for link, guest in list(self._guests.items()):
            guest.since.append(happened)
            guest.noted += _NOTE_OVERHEAD + len(happened.payload or b"")
            if guest.noted > MOST_NOTED:
                del self._guests[link]

    @property
    def is_busy(self) -> bool:
        """Whether anybody has to be told what happens."""
        return bool(self._guests)

    def _copy(self, link: Link) -> None:
        engine = self._member.engine
        if engine.standing not in (Standing.MEMBER, Standing.DISPUTED):
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
        guest = self._guests[link] = _Guest(dict(engine.vector))
        self._offer(link, guest, state)

    def _admit(self, link: Link, base: str, replaces: tuple[str, ...], witness: bool) -> None:
        if name_of(base) != link.name:
            raise RemoteProtocolError(f"{link.name} wants to join as {base}, a name of others")
        guest = self._guests.get(link)
        engine = self._member.engine
        named = [r for r in replaces if "." in r]
        named += [m for m in engine.members if name_of(m) in replaces and base_of(m) != base]
        try:
            # What is reported stable has to have reached the application that is copied.
            self._member.settle()
        except Exception as error:
            self._process_failed(link, error)
            return
        try:
            admission = engine.admit(
                base,
                covered=None if guest is None else guest.vector,
                copied_from=engine.me,
                replaces=named,
                witness=witness,
            )
        except NotReadyError as error:
            self._answer(link, Unable(True, str(error)))
            return
        except (LocalProtocolError, RemoteProtocolError) as error:
            self._answer(link, Unable(False, str(error)))
            return
        if guest is None:
            guest = self._guests[link] = _Guest({})
        entry = Entry(
            admission.incarnation,
            self._member.channel.founding,
            admission.state,
            tuple(guest.since),
        )
        self._offer(link, guest, pack_entry(entry))

    def _process_failed(self, link: Link, error: Exception) -> None:
        """The failure of this member's own application, not of the joiner."""
        text = f"the process of {self._member.incarnation} fails: ask another member"
        self._answer(link, Unable(False, text))
        self._member.process_failed(error)

    def _offer(self, link: Link, guest: _Guest, offered: bytes) -> None:
        guest.serial += 1
        guest.offered = offered
        self._answer(link, Offer(guest.serial, len(offered)))

    def _fetch(self, link: Link, serial: int, offset: int) -> None:
        guest = self._guests.get(link)
        if guest is None or guest.serial != serial:
            self._answer(link, Unable(True, "this copy is too old by now: begin again"))
            return
        size = min(PART_BYTES, link.peer.max_frame - _FRAME_ROOM)
        self._answer(link, Part(serial, offset, guest.offered[offset : offset + size]))
