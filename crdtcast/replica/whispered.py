"""What a replica's program is told of others' whispers."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from crdtcast.engine.whispers import Listener, Whisper
from crdtcast.exceptions import EndedError

WHISPER_SECONDS = 30.0
"""How long a whisper counts, if its sender does not say."""


class WhisperFeed:
    """What a listener hears, as it comes: an iterator that may be dropped at any time. For one task.

    news: returns when the listener has heard something.
    """

    def __init__(self, listener: Listener, news: Callable[[Listener], Awaitable[None]]) -> None:
        self._listener = listener
        self._news = news

    def __aiter__(self) -> "WhisperFeed":
        return self

    async def __anext__(self) -> Whisper:
        while (whisper := self._listener.next()) is None:
            await self._news(self._listener)
        return whisper


async def tell_whispers(
    whispers: WhisperFeed,
    callback: Callable[[Whisper], object],
    logger: logging.Logger,
) -> None:
    """Call it with each of them, until the replica ends. An error of the callback is logged, and ends this."""
    with suppress(EndedError):
        async for whisper in whispers:
            try:
                callback(whisper)
            except Exception:
                logger.exception(
                    "a callback for whispers has failed: it hears no more: %r", callback
                )
                return
