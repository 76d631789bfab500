"""A request without a reply that goes through the commits behind a client's earlier requests."""

from __future__ import annotations

from collections.abc import Callable

from crdtcast.adapters.redis.clients.client import Request
from crdtcast.adapters.redis.server.resp import ReplyError


class Barrier(Request):
    """Comes back when the client's earlier requests are answered and what they have read is in the engine's vector.

    reached: called once, in the turn in which its commit was answered, when the engine's vector is exactly what the
        server holds; with an error if the server is away.
    """

    __slots__ = ("_reached",)

    def __init__(self, request: Request, reached: Callable[[ReplyError | None], None]) -> None:
        super().__init__(request.client, request.args, request.command)
        self._reached = reached

    def answer(self, value: object) -> None:
        """The commit is answered; the client hears nothing of it."""
        self.answered = True
        self._reached(value if isinstance(value, ReplyError) else None)
