"""Replaces keys by names in a client's words: if the client has selected another database than 0, uses a key that is
not its own name, or sends a command that names a database.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from crdtcast.adapters.redis.clients.large_request import LargeArgs
from crdtcast.adapters.redis.commands.arguments import integer
from crdtcast.adapters.redis.commands.errors import NOT_AN_INTEGER
from crdtcast.adapters.redis.server.resp import ReplyError
from crdtcast.adapters.redis.store.databases import ELSEWHERE, Databases, name_of
from crdtcast.adapters.redis.store.named_args import NamedArgs

if TYPE_CHECKING:
    from crdtcast.adapters.redis.commands.table import Command

_TOO_FAR = ReplyError("ERR value is out of range, value must between -2147483648 and 2147483647")
OUT_OF_RANGE = ReplyError("ERR DB index is out of range")


def named(
    command: Command, args: list[bytes], db: int, databases: Databases
) -> list[bytes] | ReplyError:
    """The words of a command sent in this database, with names; the server's error if they name a database that does
    not exist.
    """
    if command.crosses:
        return _crossing(args, db, databases)
    places = command.places(args)
    keys = [args[place] for place in places]
    if db:
        begun = name_of(db, b"")
        names = [begun + key for key in keys]
    elif keys and max(keys) >= ELSEWHERE:
        names = [name_of(0, key) for key in keys]
    else:
        return args
    if type(args) is LargeArgs and command.is_list:
        args.name(db, names[0])
        return args
    words = NamedArgs(args, db, args)
    for place, name in zip(places, names, strict=True):
        words[place] = name
    return words


def database(word: bytes, databases: Databases) -> int | ReplyError:
    """The number of a clients' database; otherwise the error of the server, or of the gateway."""
    number = integer(word)
    if number is None:
        return NOT_AN_INTEGER
    if not -(1 << 31) <= number < 1 << 31:
        return _TOO_FAR
    if not 0 <= number < databases.count:
        return OUT_OF_RANGE
    return not_a_clients(number) if number == databases.ours else number


def not_a_clients(number: int) -> ReplyError:
    """The error for a database that clients cannot use."""
    return ReplyError(
        f"ERR crdtcast: database {number} holds the gateway's own metadata: use another database, "
        "or move the metadata with --metadata-db"
    )


def _crossing(args: list[bytes], db: int, databases: Databases) -> list[bytes] | ReplyError:
    """COPY source target [DB number] [REPLACE], MOVE key number: names of both keys. The server reports other errors in
    the words.
    """
    verb, source, target, *options = args
    numbers = [behind for word, behind in pairwise(options) if word.upper() == b"DB"]
    if verb.upper() == b"MOVE":
        numbers, target = [target], source
    into = db
    for number in numbers:  # the last one counts
        told = database(number, databases)
        if not isinstance(told, ReplyError):
            into = told
        elif number == b"%d" % databases.ours:
            return told
    words = [verb, name_of(db, source), name_of(into, target), *options]
    return words if words == args else NamedArgs(words, db, list(args))
