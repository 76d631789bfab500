"""A member's side of the dialogue by which others join: what each of them is offered, until it is in.

A joiner whose link breaks is known for a while by its process, and goes on where it was on its next link.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import trio

from crdtcast.causality.member_id import base_of, joined_by, name_of
from crdtcast.engine import GroupEngine
from crdtcast.exceptions import (
    CrdtcastError,
    HandshakeError,
    NotReadyError,
    RemoteProtocolError,
    ServerError,
)
from crdtcast.transport.link import Link
from crdtcast.wire.group_frames import Admit, Copy, InGroup
from crdtcast.wire.offer_frames import PART_BYTES, Fetch, Unable
from crdtcast.wire.offers import Offered, part_of

MOST_UNHEARD = 2
"""So many joiners that a member has let in may be unheard of before it lets another one in."""
KEPT_SECONDS = 60.0
"""So long a joiner without a link is waited for."""
FORGET = 0
"""The serial of a `Fetch` that asks for nothing: what was begun for us shall begin anew."""
_FRAME_ROOM = 1024


def check_crowd(engine: GroupEngine, base: str) -> None:
    """Raises NotReadyError if one more joiner has to wait: others were let in by this member, and nothing has come of
    them. If they are dead, nothing becomes stable until they are evicted.
    """
    own = base_of(engine.me)
    unheard = [
        who
        for who in engine.unheard
        if (join := joined_by(who)) is not None and join[0] == own and base_of(who) != base
    ]
    if len(unheard) < MOST_UNHEARD:
        return
    names = ", ".join(map(name_of, unheard))
    raise NotReadyError(
        f"{engine.me} has let in {names}, and has heard nothing of them yet: it lets nobody else in before that. If "
        f"they are dead, evict them (`crdtcast evict NAME`)",
    )


class Guest:
    """One joiner, on the link that it was last heard on."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.left_at: float | None = None
        """When that link broke."""
        self.offered: Offered | None = None


G = TypeVar("G", bound=Guest)


class Hosting(ABC, Generic[G]):
    """Answers joiners on behalf of one member. answer: sends a frame on a link."""

    def __init__(self, answer: Callable[[Link, InGroup], None]) -> None:
        self._answer = answer
        self._guests: dict[bytes, G] = {}

    def asked(self, link: Link, frame: InGroup) -> None:
        """A frame of the dialogue came. Raises RemoteProtocolError for what nobody may ask."""
        match frame:
            case Copy(serial) | Admit(serial):
                try:
                    self._request(link, frame)
                except (NotReadyError, HandshakeError) as error:
                    self._refuse(link, serial, error)
            case Fetch():
                self._fetch(link, frame)
            case _:
                raise RemoteProtocolError(f"a {type(frame).__name__}, which nobody has asked for")

    def _request(self, link: Link, frame: Copy | Admit) -> None:
        if isinstance(frame, Copy):
            self._copy(link, frame)
            return
        if name_of(frame.base) != link.name:
            raise RemoteProtocolError(
                f"{link.name} wants to join as {frame.base}, a name of others"
            )
        self._admit(link, frame)

    def _refuse(self, link: Link, serial: int, error: CrdtcastError) -> None:
        """It may ask again later where the fault is the moment's or the server's."""
        is_later = isinstance(error, NotReadyError | ServerError)
        self._answer(link, Unable(serial, is_later, str(error)))

    def gone(self, link: Link) -> None:
        """The joiner has it all, or the link with it is gone."""
        guest = self._guests.get(link.peer.process)
        if guest is None or guest.link is not link:
            return
        if link.closed is None:
            self._dismiss(guest)
        else:
            guest.left_at = trio.current_time()

    def clear(self) -> None:
        """This member goes on from something else: nothing that was begun is worth anything."""
        self._guests.clear()

    def guests(self) -> Iterator[G]:
        """Who is in the dialogue, or may come back to it."""
        for guest in list(self._guests.values()):
            if guest.left_at is not None and trio.current_time() - guest.left_at > KEPT_SECONDS:
                self._dismiss(guest)
            else:
                yield guest

    def _guest(self, link: Link) -> G | None:
        """The joiner at the other end of this link, if it is known."""
        guest = self._guests.get(link.peer.process)
        if guest is not None:
            guest.link, guest.left_at = link, None
        return guest

    def _receive(self, guest: G) -> G:
        self._guests[guest.link.peer.process] = guest
        return guest

    def _dismiss(self, guest: G) -> None:
        self._guests.pop(guest.link.peer.process, None)

    def _is_here(self, guest: G) -> bool:
        """Whether it is still the one who was given this."""
        return self._guests.get(guest.link.peer.process) is guest

    def _offer(self, guest: G, serial: int, data: bytes) -> None:
        guest.offered = Offered(serial, data)
        self._answer(guest.link, guest.offered.offer)

    def _fetch(self, link: Link, frame: Fetch) -> None:
        guest = self._guest(link)
        if frame.serial == FORGET:
            if guest is not None:
                self._dismiss(guest)
            return
        most = min(PART_BYTES, link.peer.max_frame - _FRAME_ROOM)
        self._answer(link, part_of(None if guest is None else guest.offered, frame, most))

    @abstractmethod
    def _copy(self, link: Link, frame: Copy) -> None:
        """It wants a copy, or the next piece of one. Raises NotReadyError or HandshakeError to refuse it."""

    @abstractmethod
    def _admit(self, link: Link, frame: Admit) -> None:
        """It wants to be let in. Raises NotReadyError or HandshakeError to refuse it."""
