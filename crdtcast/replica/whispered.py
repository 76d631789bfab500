"""What a replica's program is told of others' whispers."""

from collections.abc import Awaitable, Callable

from crdtcast.engine.whispers import Listener, Whisper

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
