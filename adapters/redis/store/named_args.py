"""A client's words with names in the place of its keys (`databases`).

All behind `conversation` goes by the names. What the server gets of a read, or of a command that it carries out by
itself, are the words as they were sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdtcast.adapters.redis.clients.large_request import LargeArgs
from crdtcast.adapters.redis.store.databases import key_of


class NamedArgs(list[bytes]):
    """sent: as the client has sent them, or the server is to get them; they are of that database."""

    __slots__ = ("db", "sent")

    def __init__(self, args: Sequence[bytes], db: int, sent: list[bytes]) -> None:
        super().__init__(args)
        self.db: int = db
        self.sent: list[bytes] = sent


def sent_of(args: list[bytes]) -> list[bytes]:
    """The words of a request as a server takes them."""
    kind = type(args)
    if kind is list:
        return args
    if kind is NamedArgs:
        return args.sent  # type: ignore[attr-defined, no-any-return]  # mypy does not see what `type` says
    return args.sent or args if kind is LargeArgs else args  # type: ignore[attr-defined]


def db_of_args(args: list[bytes]) -> int:
    """The database that a request is for."""
    return args.db if isinstance(args, NamedArgs | LargeArgs) else 0


def same_keys(like: list[bytes], args: list[bytes]) -> list[bytes]:
    """Other words, all but the first one names, for a request that these are a piece of."""
    if type(like) is not NamedArgs:
        return args
    return NamedArgs(args, db_of_args(like), [args[0], *map(key_of, args[1:])])
