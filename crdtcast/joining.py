"""A joiner's side: fetch a copy of the application's state from a member, ask to be let in, fetch what
has happened meanwhile. One attempt, with one contact; whoever calls decides what comes next.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import trio

from crdtcast.channel import Channel
from crdtcast.engine import PROGRAM, Span
from crdtcast.exceptions import HandshakeError, NotReadyError, RemoteProtocolError
from crdtcast.group_state import Entry, unpack_entry
from crdtcast.link import Link
from crdtcast.wire_groups import Admit, Copy, Fetch, InGroup, Offer, Part, Unable

_PATIENCE = 5.0
"""Seconds without an answer after which a part is asked for again."""
_TRIES = 6
_AHEAD = 4
"""Parts asked for at a time."""


Progress: TypeAlias = Callable[[int, int], None]


def _unseen(received: int, size: int) -> None:
    pass


class ContactLostError(Exception):
    """The link with the contact is gone, or it does not answer. Whether it has let us in is open."""


class _Partial(NamedTuple):
    """What is here of a copy, of the process that offered it."""

    process: bytes
    offer: Offer
    copied: bytearray


@dataclass(frozen=True, slots=True)
class Wish:
    """What to ask for: see `crdtcast.wire_groups.Admit`. copies: whether there is an application."""

    base: str
    replaces: tuple[str, ...]
    witness: bool
    copies: bool


class Joining:
    """Takes the frames of the dialogue from the channel while it lasts. progress: called with the
    bytes of the copy that are here, and of how many; the share never falls, though a copy may have
    to begin anew with another contact.
    """

    def __init__(self, channel: Channel, reads: Span = PROGRAM) -> None:
        self.progress: Progress = _unseen
        self.asked = False
        """Whether the contact was asked to let us in, so that it may have."""
        self.source = ""
        """Whom a part of a copy is from that is not complete: it is worth waiting for."""
        self.reads = reads
        self._channel = channel
        self._partial: _Partial | None = None
        self._link: Link | None = None
        self._frames: deque[InGroup] = deque()
        self._reported = (0, 1)
        self._news = trio.lowlevel.ParkingLot()

    def heard(self, link: Link, frame: InGroup) -> None:
        """(For the channel.)"""
        if link is self._link:
            self._frames.append(frame)
            self._news.unpark_all()

    def gone(self, link: Link) -> None:
        """(For the channel.)"""
        if link is self._link:
            self._link = None
            self._news.unpark_all()

    async def through(self, link: Link, wish: Wish) -> tuple[bytes, Entry]:
        """The copy, and the admission. Raises NotReadyError (ask again), HandshakeError (ask somebody
        else), ContactLostError, RemoteProtocolError.
        """
        self._use(link)
        copy = await self._copy(link) if wish.copies else b""
        self.asked = True
        offer = await self._ask(self._admit(wish))
        return copy, unpack_entry(await self._fetch(offer, bytearray()))

    def _admit(self, wish: Wish) -> Admit:
        return Admit(wish.base, wish.replaces, wish.witness, self.reads)

    def _use(self, link: Link) -> None:
        """Begin an attempt over this link; a newer one may have its place by now."""
        self._link = link if link.closed is None else None
        self.asked = False
        self._frames.clear()

    async def _copy(self, link: Link) -> bytes:
        """All of it, from where the link with the same process broke before."""
        partial = self._partial
        if partial is None or partial.process != link.peer.process:
            partial = _Partial(link.peer.process, await self._ask(Copy(self.reads)), bytearray())
        self._partial, self.source = None, ""
        try:
            return await self._fetch(partial.offer, partial.copied, self._report)
        except ContactLostError:
            self._partial, self.source = partial, link.name
            raise

    def _say(self, frame: InGroup) -> None:
        if self._link is None:
            raise ContactLostError
        self._channel.send_to([self._link.name], frame)

    async def _answer(self) -> InGroup | None:
        """The next frame of the contact; None if there is none for a while."""
        with trio.move_on_after(_PATIENCE):
            while not self._frames:
                if self._link is None:
                    raise ContactLostError
                await self._news.park()
            frame = self._frames.popleft()
            if isinstance(frame, Unable):
                raise NotReadyError(frame.text) if frame.later else HandshakeError(frame.text)
            return frame
        return None

    async def _ask(self, question: InGroup) -> Offer:
        self._say(question)
        for _ in range(_TRIES):
            answer = await self._answer()
            if isinstance(answer, Offer):
                return answer
            if answer is not None and not isinstance(answer, Part):
                raise RemoteProtocolError(f"a {type(answer).__name__} where an offer was expected")
        raise ContactLostError

    def _report(self, received: int, size: int) -> None:
        before, of = self._reported
        if received * of > before * size:
            self._reported = received, size
            self.progress(received, size)

    async def _fetch(self, offer: Offer, copied: bytearray, report: Progress = _unseen) -> bytes:
        """What is offered, of which this is here already."""
        asked: deque[int] = deque()  # offsets, of which the first is the next to come
        step = 0
        silences = 0
        while len(copied) < offer.size:
            if not asked:
                asked.append(len(copied))
                self._say(Fetch(offer.serial, len(copied)))
            answer = await self._answer()
            if answer is None:
                silences += 1
                asked.clear()
                if silences == _TRIES:
                    raise ContactLostError
                continue
            if not isinstance(answer, Part) or answer.serial != offer.serial:
                continue
            if not answer.piece or len(copied) + len(answer.piece) > offer.size:
                raise RemoteProtocolError("a part that is none of what was offered")
            if answer.offset != len(copied):
                continue  # asked for twice, or after one that was lost
            silences = 0
            copied += answer.piece
            report(len(copied), offer.size)
            step = step or len(answer.piece)
            if asked and asked[0] == answer.offset:
                asked.popleft()
            following = (asked[-1] if asked else answer.offset) + step
            while len(asked) < _AHEAD and following < offer.size:
                asked.append(following)
                self._say(Fetch(offer.serial, following))
                following += step
        return bytes(copied)
