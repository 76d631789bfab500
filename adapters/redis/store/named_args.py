"""A client's words with names in place of its keys (`databases`).

All code after `commands/names.py` uses the names. For a read, or a command that the server executes by itself, the
server gets the words as the client sent them.
"""

from __future__ import annotations

from collections.abc import Sequence

from crdtcast.adapters.redis.clients.large_request import LargeArgs
from crdtcast.adapters.redis.store.databases import key_of


class NamedArgs(list[bytes]):
    """A request's words with names.

    db: the database of the words.
    sent: the words as the client sent them, or as the server is to get them.
    """

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
    """Words for a piece of the request `like`; all but the first are names."""
    if type(like) is not NamedArgs:
        return args
    return NamedArgs(args, db_of_args(like), [args[0], *map(key_of, args[1:])])
