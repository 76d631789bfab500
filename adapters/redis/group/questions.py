"""Questions between gateways over their links. The answers are fetched as offers (`crdtcast.wire.offers`).

A gateway asks each peer one question at a time. The peer keeps its answer until the gateway asks something else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count

import trio

from crdtcast.exceptions import CrdtcastError, HandshakeError, NotReadyError
from crdtcast.transport.options import MIN_FRAME
from crdtcast.wire.offer_frames import Ask, Asking, Fetch, Unable
from crdtcast.wire.offers import ContactLostError, Fetcher, Offered, part_of

PATIENCE_SECONDS = 5.0
"""Time for a peer to send each piece of an answer, before it is asked again."""
TRIES = 3
PART_BYTES = MIN_FRAME - 1024
"""Bytes of one part of an answer; every peer accepts frames of this size."""
_MOST_BYTES = 1 << 30


class Questions:
    """One gateway's side.

    say: sends a frame to a peer by name, if that is linked.
    answer: makes an answer.
    spawn: runs something in the background.
    """

    def __init__(
        self,
        say: Callable[[str, Asking], None],
        answer: Callable[[str, bytes], Awaitable[bytes]],
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        logger: logging.Logger,
    ) -> None:
        self._say = say
        self._answer = answer
        self._spawn = spawn
        self._log = logger
        self.serials: Iterator[int] = count(1)
        """Numbers of this gateway's requests to its peers."""
        self._open: dict[str, tuple[int, Fetcher]] = {}
        self._turns: dict[str, trio.Lock] = {}
        self._asked: dict[str, Ask] = {}
        """The last question of each peer, until it is answered."""
        self._busy: set[str] = set()
        """Peers whose questions are being answered, one at a time. A question is dropped when a newer one comes."""
        self._given: dict[str, Offered] = {}

    async def ask(self, name: str, question: bytes) -> bytes:
        """The answer of that peer. Raises NotReadyError if none comes, RemoteProtocolError if it is invalid."""
        async with self._turns.setdefault(name, trio.Lock()):
            request = Ask(next(self.serials), question)
            fetcher = Fetcher(partial(self._say, name), PATIENCE_SECONDS, TRIES)
            self._open[name] = request.serial, fetcher
            try:
                offer = await fetcher.ask(request)
                if offer.size > _MOST_BYTES:
                    raise NotReadyError(f"the answer of {name} is too large: {offer.size:,} bytes")
                return await fetcher.fetch(offer, bytearray())
            except (ContactLostError, HandshakeError) as error:
                raise NotReadyError(f"{name} did not answer: {error}") from error
            finally:
                self._open.pop(name, None)

    def gone(self, name: str) -> None:
        """The link to that peer is lost, and all frames on it: forget its questions. The next process of that name
        numbers its requests from the start.
        """
        self._asked.pop(name, None)
        self._given.pop(name, None)
        if name in self._open:
            self._open[name][1].lost()

    def knows(self, name: str, frame: Asking) -> bool:
        """Whether a peer's frame belongs to a question."""
        if isinstance(frame, Ask):
            return True
        if isinstance(frame, Fetch):
            return name in self._given and self._given[name].serial == frame.serial
        return name in self._open and self._open[name][0] == frame.serial

    def heard(self, name: str, frame: Asking) -> None:
        """Take a peer's frame."""
        match frame:
            case Ask():
                self._asked[name] = frame
                self._given.pop(name, None)
                if name not in self._busy:
                    self._busy.add(name)
                    self._spawn(partial(self._give, name))
            case Fetch():
                self._say(name, part_of(self._given.get(name), frame, PART_BYTES))
            case _:
                if name in self._open:
                    self._open[name][1].heard(frame)

    async def _give(self, name: str) -> None:
        try:
            while (asked := self._asked.get(name)) is not None:
                answer = await self._answer_to(name, asked)
                if self._asked.get(name) is asked:
                    del self._asked[name]
                    if isinstance(answer, Offered):
                        self._given[name] = answer
                        self._say(name, answer.offer)
                    else:
                        self._say(name, answer)
        finally:
            self._busy.discard(name)

    async def _answer_to(self, name: str, asked: Ask) -> Offered | Unable:
        try:
            return Offered(asked.serial, await self._answer(name, asked.question))
        except CrdtcastError as error:
            self._log.info("did not answer a question of %s: %s", name, error)
            return Unable(asked.serial, True, str(error))
