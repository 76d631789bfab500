"""Requests, offers and their transfer in parts, one after the other: both sides (`crdtcast.wire.offer_frames`).

Joining members use it, and gateways that ask each other. If a link breaks, the asker keeps what it has, and may
continue from there over the next link with the same process.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import trio

from crdtcast.exceptions import HandshakeError, NotReadyError, RemoteProtocolError
from crdtcast.wire.group_frames import Admit, Copy
from crdtcast.wire.offer_frames import Ask, Asking, Fetch, Offer, Part, Unable

PATIENCE = 5.0
"""Seconds without an answer after which a part is requested again."""
TRIES = 6
_AHEAD = 4
"""Most parts requested at a time."""
_TOO_OLD = "this copy is too old: start again"

Request: TypeAlias = Ask | Copy | Admit
Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number of bytes received, and the total."""


def unseen(received: int, size: int) -> None:
    """Reports no progress."""


class ContactLostError(Exception):
    """The link with the peer is down, or the peer does not answer. It may or may not have done what was asked."""


@dataclass(frozen=True, slots=True)
class Offered:
    """Data that a peer may fetch, under the number of its request."""

    serial: int
    data: bytes

    @property
    def offer(self) -> Offer:
        """The answer to the request."""
        return Offer(self.serial, len(self.data))


def part_of(offered: Offered | None, fetch: Fetch, most: int) -> Part | Unable:
    """The answer to a `Fetch`. most: bytes of a part."""
    if offered is None or offered.serial != fetch.serial:
        return Unable(fetch.serial, True, _TOO_OLD)
    return Part(fetch.serial, fetch.offset, offered.data[fetch.offset : fetch.offset + most])


class Fetcher:
    """The asker's side, over one link. say: sends a frame over it."""

    def __init__(
        self, say: Callable[[Request | Fetch], None], patience: float = PATIENCE, tries: int = TRIES
    ) -> None:
        self._say = say
        self._patience = patience
        self._tries = tries
        self._frames: deque[Asking] = deque()
        self._is_lost = False
        self._news = trio.lowlevel.ParkingLot()

    def heard(self, frame: Asking) -> None:
        """Take an answer of the peer."""
        self._frames.append(frame)
        self._news.unpark_all()

    def lost(self) -> None:
        """The link is down."""
        self._is_lost = True
        self._news.unpark_all()

    def say(self, frame: Request | Fetch) -> None:
        """Send a frame. Raises ContactLostError if the link is down."""
        if self._is_lost:
            raise ContactLostError("the link is closed")
        self._say(frame)

    async def get(self, request: Request) -> bytes:
        """All that the peer offers. Raises NotReadyError (ask again later), HandshakeError (ask another peer),
        ContactLostError or RemoteProtocolError.
        """
        return await self.fetch(await self.ask(request), bytearray())

    async def ask(self, request: Request) -> Offer:
        """The peer's offer; raises like `get`."""
        self.say(request)
        for _ in range(self._tries):
            answer = await self._answer(request.serial)
            if isinstance(answer, Offer):
                return answer
        raise ContactLostError("the peer does not answer")

    async def fetch(self, offer: Offer, copied: bytearray, report: Progress = unseen) -> bytes:
        """The offered bytes, of which `copied` are here already; raises like `get`."""
        asked: deque[int] = deque()  # offsets, the first one is expected next
        step = 0
        silences = 0
        while len(copied) < offer.size:
            if not asked:
                asked.append(len(copied))
                self.say(Fetch(offer.serial, len(copied)))
            answer = await self._answer(offer.serial)
            if answer is None:
                silences += 1
                asked.clear()
                if silences == self._tries:
                    raise ContactLostError("the peer does not answer")
                continue
            if not isinstance(answer, Part):
                continue
            if not answer.piece or len(copied) + len(answer.piece) > offer.size:
                raise RemoteProtocolError("a part that does not fit the offer")
            if answer.offset != len(copied):
                continue  # requested twice, or after a lost one
            silences = 0
            copied += answer.piece
            report(len(copied), offer.size)
            step = step or len(answer.piece)
            if asked and asked[0] == answer.offset:
                asked.popleft()
            following = (asked[-1] if asked else answer.offset) + step
            while len(asked) < _AHEAD and following < offer.size:
                asked.append(following)
                self.say(Fetch(offer.serial, following))
                following += step
        return bytes(copied)

    async def _answer(self, serial: int) -> Asking | None:
        """The next frame under that number; None if none comes for a while."""
        with trio.move_on_after(self._patience):
            while True:
                while not self._frames:
                    if self._is_lost:
                        raise ContactLostError("the link is closed")
                    await self._news.park()
                frame = self._frames.popleft()
                if isinstance(frame, Unable) and frame.serial == serial:
                    raise NotReadyError(frame.text) if frame.later else HandshakeError(frame.text)
                if frame.serial == serial:
                    return frame
        return None
