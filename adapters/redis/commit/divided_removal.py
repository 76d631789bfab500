"""A removal of very many keys, executed in pieces, so that no other client waits for the whole.

Each piece is a separate request to the committer, and a separate event at every member. Between two pieces other
clients see some of the keys gone and some not. Inside MULTI nothing is divided: there each key counts as a command.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdtcast.adapters.redis.clients.client import Request
from crdtcast.adapters.redis.commands.table import MOST_KEYS
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store.named_args import same_keys


class RemovalPiece(Request):
    """The request for some of the keys."""

    __slots__ = ("_whole",)

    def __init__(self, whole: _Whole, request: Request, keys: Sequence[bytes]) -> None:
        args = same_keys(request.args, [request.args[0], *keys])
        super().__init__(request.client, args, request.command)
        self._whole = whole

    def answer(self, value: object) -> None:
        """Count this reply; the last one answers the client."""
        self.answered = True
        self._whole.heard(value)


class _Whole:
    """Sums the replies to the pieces."""

    def __init__(self, request: Request, pieces: int) -> None:
        self._request = request
        self._left = pieces
        self._done = 0
        self._removed = 0
        self._error: ReplyError | None = None
        """The first error."""
        self._errors_differ = False

    def heard(self, value: object) -> None:
        """Take the reply to one more piece."""
        if isinstance(value, int):
            self._done += 1
            self._removed += value
        elif isinstance(value, ReplyError):
            self._error = self._error or value
            self._errors_differ |= str(value) != str(self._error)
        self._left -= 1
        if not self._left:
            self._request.answer(
                self._removed if self._error is None else self._failed(self._error)
            )

    def _failed(self, error: ReplyError) -> ReplyError:
        if not (self._done or self._errors_differ):
            return error  # it holds for all of them
        return ReplyError(
            f"ERR crdtcast: this command removes {MOST_KEYS} keys at a time; {self._removed} are "
            f"known to be removed, then: {str(error).removeprefix('ERR crdtcast: ')}; send it "
            "again"
        )


def divided(request: Request) -> Sequence[Request]:
    """The request, or its pieces if it removes very many keys."""
    keys = request.args[1:]
    if len(keys) <= MOST_KEYS or not request.command.removes_keys:
        return (request,)
    starts = range(0, len(keys), MOST_KEYS)
    whole = _Whole(request, len(starts))
    return [RemovalPiece(whole, request, keys[start : start + MOST_KEYS]) for start in starts]
