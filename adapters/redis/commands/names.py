"""Puts names in the place of the keys among a client's words: of one that has selected another database than 0, that
names a key which is not its own name, or that says itself in which database a key stands.
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
    """The words of a command that a client has sent in this database; the server's error if they name another one
    that is not there.
    """
    if command.crosses:
        return _crossing(args, db, databases)
    places = command.places(len(args))
    keys = args[places]
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
    words[places] = names
    return words


def database(word: bytes, databases: Databases) -> int | ReplyError:
    """The number of a database of the clients; the error that a server, or the gateway, has for it."""
    number = integer(word)
    if number is None:
        return NOT_AN_INTEGER
    if not -(1 << 31) <= number < 1 << 31:
        return _TOO_FAR
    if not 0 <= number < databases.count:
        return OUT_OF_RANGE
    return not_a_clients(number) if number == databases.ours else number


def not_a_clients(number: int) -> ReplyError:
    """Why a database is not to be used."""
    return ReplyError(
        f"ERR crdtcast: database {number} holds the gateway's own metadata: use another database, "
        "or move the metadata with --metadata-db"
    )


def _crossing(args: list[bytes], db: int, databases: Databases) -> list[bytes] | ReplyError:
    """COPY source target [DB number] [REPLACE], MOVE key number: names of both keys. What is wrong with the words the
    server says.
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
