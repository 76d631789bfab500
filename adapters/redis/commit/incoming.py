"""Decodes messages of other members before they are delivered; a large one piece by piece, in turns of the loop."""

from __future__ import annotations

from collections.abc import Callable

from crdtcast.adapters.redis.store.effects import Decoding, UnreadableError
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot


class Incoming:
    """Decodes the next message.

    later: calls a function in a later turn of the loop.
    on_ready: called when a message that `read` could not return yet is decoded.
    """

    def __init__(
        self, later: Callable[[Callable[[], None]], None], on_ready: Callable[[], None]
    ) -> None:
        self._later = later
        self._on_ready = on_ready
        self._dot: Dot | None = None
        self._decoding: Decoding | None = None
        self._error: UnreadableError | None = None
        self._ready = False

    def read(self, message: Message) -> Decoding | None:
        """The decoded message; None: not ready yet. Raises UnreadableError if this program cannot read it."""
        if message.dot == self._dot:
            if self._error is not None:
                raise self._error
            return self._decoding if self._ready else None
        decoding = Decoding(message.payload)
        if decoding.is_complete:
            return decoding
        self._dot, self._decoding, self._error, self._ready = message.dot, decoding, None, False
        self._later(lambda: self._go_on(decoding))
        return None

    def _go_on(self, decoding: Decoding) -> None:
        if decoding is not self._decoding:
            return  # another message took its place: its member was evicted, or the server was lost
        try:
            self._ready = decoding.step()
        except UnreadableError as error:
            self._error = error
        if self._ready or self._error is not None:
            self._on_ready()
        else:
            self._later(lambda: self._go_on(decoding))

    @property
    def is_under_way(self) -> bool:
        """Whether a message is decoded in pieces."""
        return self._dot is not None

    def delivered(self, message: Message) -> None:
        """Forget a message: it was delivered."""
        if message.dot == self._dot:
            self._dot = self._decoding = None
