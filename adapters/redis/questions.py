"""Questions between gateways over their links, and the answers, which are fetched in pieces (`wire_questions`).

A gateway asks each peer one question at a time. The peer keeps its answer until the gateway asks something else.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count

import trio

from crdtcast.exceptions import CrdtcastError, NotReadyError
from crdtcast.wire_questions import PIECE_BYTES, Answer, Ask, Asking

PATIENCE_SECONDS = 15.0
"""So long a peer has for each piece of an answer."""

_MOST_BYTES = 1 << 30


class _Question:
    """One that is open: the pieces that have come, and what wakes up the asker."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.answer = bytearray()
        self.size: int | None = None
        self.is_lost = False
        self.news = trio.Event()


class Questions:
    """One gateway's side. say: sends a frame to a peer by name, if that is linked. answer: makes an answer.

    spawn: runs something beside the rest.
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
        self._serials = count(1)
        self._open: dict[str, _Question] = {}
        self._turns: dict[str, trio.Lock] = {}
        self._given: dict[str, tuple[int, bytes]] = {}
        self._asked: dict[str, int] = {}

    async def ask(self, name: str, question: bytes) -> bytes:
        """The answer of that peer. Raises NotReadyError if none comes."""
        async with self._turns.setdefault(name, trio.Lock()):
            own = self._open[name] = _Question(next(self._serials))
            try:
                self._say(name, Ask(own.serial, 0, question))
                while own.size is None or len(own.answer) < own.size:
                    with trio.move_on_after(PATIENCE_SECONDS) as patience:
                        await own.news.wait()
                    if own.is_lost:
                        raise NotReadyError(f"the link with {name} is gone")
                    if patience.cancelled_caught or own.size == 0:
                        raise NotReadyError(f"{name} does not answer")
                    own.news = trio.Event()
                    if own.size is not None and len(own.answer) < own.size:
                        self._say(name, Ask(own.serial, len(own.answer), b""))
                return bytes(own.answer)
            finally:
                self._open.pop(name, None)

    def gone(self, name: str) -> None:
        """The link with that peer is gone, and what was on its way: nobody waits for it."""
        own = self._open.get(name)
        if own is not None:
            own.is_lost = True
            own.news.set()

    def heard(self, name: str, frame: Asking) -> None:
        """A peer's frame."""
        match frame:
            case Ask(serial, 0, question):
                self._asked[name] = serial
                self._given.pop(name, None)
                self._spawn(partial(self._give, name, serial, question))
            case Ask(serial, offset):
                self._give_piece(name, serial, offset)
            case Answer(serial, offset, size, piece):
                own = self._open.get(name)
                if own is None or own.serial != serial or offset != len(own.answer):
                    return  # to a question that was given up, or a piece that came twice
                own.size = size if size <= _MOST_BYTES and (piece or not size) else 0
                own.answer += piece
                own.news.set()

    async def _give(self, name: str, serial: int, question: bytes) -> None:
        answer = b""
        try:
            answer = await self._answer(name, question)
        except CrdtcastError as error:
            self._log.info("a question of %s is not answered: %s", name, error)
        if self._asked.get(name) == serial:
            self._given[name] = serial, answer
            self._give_piece(name, serial, 0)

    def _give_piece(self, name: str, serial: int, offset: int) -> None:
        given, answer = self._given.get(name, (0, b""))
        if given != serial:
            answer = b""
        piece = answer[offset : offset + PIECE_BYTES]
        self._say(name, Answer(serial, offset, len(answer), piece))
        if given == serial and offset + PIECE_BYTES >= len(answer):
            del self._given[name]
