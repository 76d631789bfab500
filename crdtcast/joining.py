"""A joiner's side: fetch a copy of the application's state from a member, ask to be let in, fetch what
has happened meanwhile. One attempt, with one contact; whoever calls decides what comes next.
"""

from dataclasses import dataclass
from typing import NamedTuple

from crdtcast.engine import PROGRAM, Span
from crdtcast.transport.channel import Channel
from crdtcast.transport.link import Link
from crdtcast.wire.group_frames import Admit, Copy, InGroup
from crdtcast.wire.offer_frames import Offer, Part, Unable
from crdtcast.wire.offers import ContactLostError, Fetcher, Progress, unseen
from crdtcast.wire.state import Entry, unpack_entry


class _Partial(NamedTuple):
    """What is here of a copy, of the process that offered it."""

    process: bytes
    offer: Offer
    copied: bytearray


@dataclass(frozen=True, slots=True)
class Wish:
    """What to ask for: see `crdtcast.wire.group_frames.Admit`. copies: whether there is an application."""

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
        self.progress: Progress = unseen
        self.asked = False
        """Whether the contact was asked to let us in, so that it may have."""
        self.source = ""
        """Whom a part of a copy is from that is not complete: it is worth waiting for."""
        self.reads = reads
        self._channel = channel
        self._partial: _Partial | None = None
        self._link: Link | None = None
        self._fetcher = Fetcher(_nowhere)
        self._reported = (0, 1)

    def heard(self, link: Link, frame: InGroup) -> None:
        """(For the channel.)"""
        if link is self._link and isinstance(frame, Offer | Unable | Part):
            self._fetcher.heard(frame)

    def gone(self, link: Link) -> None:
        """(For the channel.)"""
        if link is self._link:
            self._fetcher.lost()

    async def through(self, link: Link, wish: Wish) -> tuple[bytes, Entry]:
        """The copy, and the admission. Raises NotReadyError (ask again), HandshakeError (ask somebody
        else), ContactLostError, RemoteProtocolError.
        """
        self._use(link)
        copy = await self._copy(link) if wish.copies else b""
        self.asked = True
        return copy, unpack_entry(await self._fetcher.get(self._admit(wish)))

    def _admit(self, wish: Wish) -> Admit:
        serial = next(self._channel.serials)
        return Admit(serial, wish.base, wish.replaces, wish.witness, self.reads)

    def _copying(self) -> Copy:
        return Copy(next(self._channel.serials), self.reads)

    def _use(self, link: Link) -> None:
        """Begin an attempt over this link; a newer one may have its place by now."""
        self._link = link
        self._fetcher = Fetcher(lambda frame: self._channel.send_to([link.name], frame))
        if link.closed is not None:
            self._fetcher.lost()
        self.asked = False

    async def _copy(self, link: Link) -> bytes:
        """All of it, from where the link with the same process broke before."""
        partial = self._partial
        if partial is None or partial.process != link.peer.process:
            offer = await self._fetcher.ask(self._copying())
            partial = _Partial(link.peer.process, offer, bytearray())
        self._partial, self.source = None, ""
        try:
            return await self._fetcher.fetch(partial.offer, partial.copied, self._report)
        except ContactLostError:
            self._partial, self.source = partial, link.name
            raise

    def _report(self, received: int, size: int) -> None:
        before, of = self._reported
        if received * of > before * size:
            self._reported = received, size
            self.progress(received, size)


def _nowhere(frame: InGroup) -> None:
    raise ContactLostError("the link is gone")
