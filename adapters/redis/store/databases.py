"""The databases of a server. The gateway works on *names* of keys, and each name includes its database. So effects,
logs over keys, records, digests and messages need not know that there are several databases.

A key of database 0 is its own name, unless it begins with the byte 0xff, which is rare. Any other name is that byte,
the number of the database, the key. A client's words become names in one place, once its command is known
(`commands/names.py`), and keys again where native commands are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from crdtcast.adapters.redis.server.steps import Read, Steps, taken

ELSEWHERE = b"\xff"
"""First byte of a name that differs from its key. Names with it sort after all others."""
MOST_DATABASES = 256
"""How many databases names can distinguish."""
USUAL = 16
"""Databases of a server by default."""

# For scripts, which start in database 0: `place` returns the database and the key of a name; `home` selects that
# database and returns the key.
LUA_HOME = b"""
local stands = 0
local function to(db)
  if db ~= stands then
    redis.call('SELECT', db)
    stands = db
  end
end
local function place(name)
  if string.byte(name) ~= 255 then return 0, name end
  return string.byte(name, 2), string.sub(name, 3)
end
local function home(name)
  local db, key = place(name)
  to(db)
  return key
end
"""


class Home(NamedTuple):
    """Where a value is kept.

    owner: the name of the client's key, which is blamed.
    key: the native key.
    db: the database in the server.
    """

    owner: bytes
    key: bytes
    db: int


def name_of(db: int, key: bytes) -> bytes:
    """The name of a key of a database."""
    return key if not db and key < ELSEWHERE else b"\xff%c%b" % (db, key)


def key_of(name: bytes) -> bytes:
    """The key in its database."""
    return name if name < ELSEWHERE else name[2:]


def db_of(name: bytes) -> int:
    """The database of a name."""
    return 0 if name < ELSEWHERE else name[1]


def home_of(name: bytes) -> Home:
    """Where the visible value of a key is."""
    if name < ELSEWHERE:
        return Home(name, name, 0)
    return Home(name, name[2:], name[1])


def described(name: bytes) -> str:
    """For people: `b'x'`, or `b'x' of database 3`."""
    key, db = key_of(name), db_of(name)
    return f"{key!r} of database {db}" if db else repr(key)


def in_words(name: bytes) -> str:
    """The name for a list of keys: `x`, or `x of database 3`."""
    key, db = key_of(name).decode(errors="backslashreplace"), db_of(name)
    return f"{key} of database {db}" if db else key


def object_of(name: bytes) -> bytes:
    """The name of a key in an event log: `x`, or, after the byte 0xff, `database 3: x`."""
    return name if name < ELSEWHERE else b"\xffdatabase %d: %b" % (db_of(name), key_of(name))


def names_in(names: Iterable[bytes], db: int | None) -> list[bytes]:
    """The names of a database; all if `db` is None."""
    return [name for name in names if db is None or db_of(name) == db]


def check_name(name: bytes) -> None:
    """Raises ValueError if these bytes are not the name of a key."""
    if name >= ELSEWHERE and (len(name) < 2 or name_of(name[1], name[2:]) != name):
        raise ValueError(f"{name!r:.40} is not the name of a key")


@dataclass(frozen=True, slots=True)
class Databases:
    """The databases of one server.

    ours: the one for the gateway's metadata, which clients cannot use.
    """

    count: int
    ours: int

    @property
    def told(self) -> tuple[int, int]:
        """The part that members exchange: it must be the same for all."""
        return self.count, self.ours

    @property
    def clients(self) -> tuple[int, ...]:
        """The databases that are replicated."""
        return tuple(db for db in range(self.count) if db != self.ours)


# The gateway's own reads

Words = Sequence[bytes]
_NAMES = {b"MGET": slice(1, None), b"MEMORY": slice(2, 3)}
"""Position of the names in commands that do not have one name after the verb."""
_NAME = slice(1, 2)


def select(db: int) -> tuple[bytes, bytes]:
    """The command that selects a database."""
    return b"SELECT", b"%d" % db


def in_home(home: Home, commands: list[list[bytes]]) -> Steps[Sequence[Any]]:
    """Replies to commands that run in the database of `home`."""
    if not home.db:
        return (yield commands)
    replies = yield [[*select(home.db)], *commands, [*select(0)]]
    return replies[1:-1]


def sent(asked: Iterable[tuple[int, list[bytes]]]) -> tuple[list[list[bytes]], list[int]]:
    """The commands to send, each in its database, and the positions of their replies. The connection is on database 0
    before and after.
    """
    commands: list[list[bytes]] = []
    places: list[int] = []
    stands = 0
    for db, words in asked:
        if db != stands:
            commands.append([*select(db)])
            stands = db
        places.append(len(commands))
        commands.append(words)
    if stands:
        commands.append([*select(0)])
    return commands, places


def reading_by_name(commands: Iterable[Words]) -> Steps[list[Any]]:
    """Replies to commands on names. All names of one command are in the same database."""
    asked: list[tuple[int, list[bytes]]] = []
    for words in commands:
        where = _NAMES.get(words[0], _NAME)
        native = list(words)
        native[where] = map(key_of, words[where])
        asked.append((db_of(words[where][0]), native))
    natives, places = sent(asked)
    replies = (yield natives) if natives else ()
    return [replies[place] for place in places]


def by_name(read: Read) -> Read:
    """The same, awaited."""

    async def read_named(commands: Sequence[Words]) -> list[object]:
        return await taken(reading_by_name(commands), read)

    return read_named


BEGIN = END = b"0"
"""Where a `scan` begins, and what it returns at the end."""


def scanning(databases: Databases, at: bytes, most: int) -> Steps[tuple[bytes, list[bytes]]]:
    """Some names of keys of all databases, perhaps with repetitions, and where to continue.

    Raises TypeError if the server does not answer, or `at` is not a place in a clients' database.
    """
    number, _, cursor = at.rpartition(b":")
    db = int(number or 0)
    if db not in databases.clients:
        raise TypeError(f"clients cannot use database {db}")
    home = Home(b"", b"", db)
    (reply,) = yield from in_home(home, [[b"SCAN", cursor, b"COUNT", b"%d" % most]])
    if not isinstance(reply, list):
        raise TypeError(f"the server does not answer: {reply!r:.80}")
    following, keys = reply
    names = [name_of(db, key) for key in keys]
    if following != b"0":
        return b"%d:%b" % (db, following), names
    further = next((each for each in databases.clients if each > db), None)
    return END if further is None else b"%d:0" % further, names


async def scan(read: Read, databases: Databases, at: bytes, most: int) -> tuple[bytes, list[bytes]]:
    """The same, awaited."""
    return await taken(scanning(databases, at, most), read)
