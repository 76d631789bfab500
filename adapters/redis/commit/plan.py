"""The plan of one commit: commands for the server, the replies expected, and the requests to answer then.

EXEC does not roll back: if a command fails inside it, the others stay applied. So each command in a plan carries the
reply that it must get; another reply means that the key was changed directly in the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from enum import Enum
from itertools import compress, count
from operator import and_, ne
from typing import Protocol

import hiredis

from crdtcast.adapters.redis.deadlines.index import Move, finish
from crdtcast.adapters.redis.store.databases import ELSEWHERE, Home, db_of, home_of
from crdtcast.adapters.redis.store.hiding import keeping_deadline, settling
from crdtcast.adapters.redis.store.named_args import db_of_args, sent_of

_pack: Callable[[tuple[bytes, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


class CalledCommand(Protocol):
    """The command of a request, as far as its reply depends on it."""

    @property
    def name(self) -> str: ...
    @property
    def shown(self) -> str:
        """The name as the server writes it in errors."""

    @property
    def is_read(self) -> bool:
        """Whether the server answers it, after the earlier writes of the same connection."""

    def keys_of(self, args: Sequence[bytes]) -> Sequence[bytes]:
        """The keys among these arguments."""


class Asker(Protocol):
    """The sender of a request."""

    @property
    def closed(self) -> bool:
        """Whether its connection is closed."""


class Answerable(Protocol):
    """A request as commands and commits see it: its words, and how to answer it."""

    @property
    def client(self) -> Asker: ...
    @property
    def command(self) -> CalledCommand: ...
    @property
    def args(self) -> list[bytes]:
        """Its words, the name first."""

    @property
    def protocol(self) -> int:
        """The protocol of its reply: 2 or 3."""

    def answer(self, value: object) -> None:
        """Fix the reply: any value that `resp.encode` takes."""


class Expect(Enum):
    """The kind of reply that a command must get, if the exact one is not known before."""

    INTEGER = "an integer"
    ANY = "anything, errors included: a client's read"


SAYS_OK = b"OK"
"""The reply that a SET must get."""


class _Select(dict[int, bytes]):
    """The packed SELECT command by number of the database."""

    def __missing__(self, db: int) -> bytes:
        self[db] = packed = _pack((b"SELECT", b"%d" % db))
        return packed


_SELECT = _Select()
_KINDS: dict[type, Expect] = {int: Expect.INTEGER}


class Plan:
    """Commands in order, for one MULTI … EXEC or, without writes, for one plain pipeline of reads."""

    writes: bool = False
    atomic: bool = False
    """Whether its reads must be at one instant."""
    reads: bool = False
    """Whether it contains reads of clients."""
    _db = 0
    protocol: int = 2
    """The protocol that the server answers in after the commands so far."""

    # Fields of each plan. A docstring in `__init__` would cost an instruction for each plan.

    pieces: list[bytes]
    expected: list[Expect | int | bytes]
    keys: dict[int, bytes]
    """Position of a command on the clients' databases -> the key to blame if its reply is not the expected one."""
    looks: set[int]
    """Positions of those of them that do not change their key."""
    from_reply: list[tuple[Answerable, int]]
    """Request, position: the reply at the position answers it."""
    from_sum: list[tuple[Answerable, Sequence[int]]]
    """Request, positions: the sum of the replies at the positions answers it."""
    counted: list[tuple[Answerable, int]]
    """Request, position: the reply there counts subscribers, the gateway as one of them."""
    answers: list[tuple[Answerable, object]]
    """Request, value: the value, known now, answers it."""
    drawn: list[tuple[Answerable, Sequence[int], int, object]]
    """Request, positions, number: the value, known now, answers it if the replies there sum up to the number."""
    settling: list[tuple[bytes, int]]
    """Keys, and the positions of the replies that say what they hold now (`Keyspace.settled`)."""
    dated: list[tuple[Sequence[Move], int]]
    """Keys whose deadlines were set, and the position of the reply that says which of them exist."""
    flushes: list[tuple[int, int | None]]
    """Positions of commands that empty a database of the clients, and its number; None: all databases."""
    scripts: list[tuple[Callable[[object], None], int]]
    """Who gets the reply at a position: the gateway's own scripts."""
    as_they_are: set[int]
    """Positions of reads whose replies go to the client unchanged, byte for byte."""

    def __init__(self, metadata_db: int) -> None:
        self._metadata_db = metadata_db
        self.pieces = []
        self.expected = []
        self.keys = {}
        self.looks = set()
        self.from_reply = []
        self.from_sum = []
        self.counted = []
        self.answers = []
        self.drawn = []
        self.settling = []
        self.dated = []
        self.flushes = []
        self.scripts = []
        self.as_they_are = set()

    def native(self, key: bytes, expect: Expect | int | bytes, *command: bytes) -> int:
        """A command that begins and ends on database 0; `key` is blamed if its reply is not the expected one.

        Returns its position, for `answer_from`.
        """
        return self.native_packed(key, expect, _pack(command))

    def script(self, *command: bytes) -> int:
        """A command on database 0 that belongs to no key: any reply to it is expected. Returns its position."""
        if self._db:
            self._select(0)
        self.writes = True
        return self._append(Expect.ANY, _pack(command))

    def hold(self) -> int:
        """Keep a place for a script like those of `script`, which `fill` gives later. Returns its position."""
        if self._db:
            self._select(0)
        self.writes = True
        return self._append(Expect.ANY, b"")

    def fill(self, place: int, command: Sequence[bytes]) -> None:
        """Give the command for a place that was held."""
        self.pieces[place] = _pack(tuple(command))

    def native_packed(self, key: bytes, expect: Expect | int | bytes, packed: bytes) -> int:
        """Like `native`, for a command that is packed already."""
        if self._db:
            self._select(0)
        self.writes = True
        pieces = self.pieces
        self.keys[place := len(pieces)] = key
        pieces.append(packed)
        self.expected.append(expect)
        return place

    def on_key(self, name: bytes, expect: Expect | int | bytes, verb: bytes, *behind: bytes) -> int:
        """A command on the visible value of a key, in its database."""
        if name < ELSEWHERE:
            return self.native_packed(name, expect, _pack((verb, name, *behind)))
        home = home_of(name)
        return self.at(home, _pack((verb, home.key, *behind)), expect)

    def look(self, home: Home, packed: bytes) -> int:
        """Like `at`, for a command that replies with a number and does not change the key: it copies the value."""
        place = self.at(home, packed)
        self.looks.add(place)
        return place

    def at(self, home: Home, packed: bytes, expect: Expect | int | bytes = Expect.INTEGER) -> int:
        """A packed command on a key of any database, our own included. Returns its position."""
        if home.db == self._metadata_db:
            return self.metadata_packed(packed, expect)
        if self._db != home.db:
            self._select(home.db)
        self.writes = True
        place = self._append(expect, packed)
        self.keys[place] = home.owner
        return place

    def metadata_packed(self, packed: bytes, expect: Expect | int | bytes = Expect.INTEGER) -> int:
        """A packed command on our own database. Returns its position."""
        if self._db != self._metadata_db:
            self._select(self._metadata_db)
        self.writes = True
        return self._append(expect, packed)

    def flush(self, databases: Iterable[int]) -> None:
        """Empty these databases of the clients. The server frees the memory after the commit."""
        self.writes = True
        for db in databases:
            if self._db != db:
                self._select(db)
            self.flushes.append((self._append(SAYS_OK, _pack((b"FLUSHDB", b"ASYNC"))), db))

    def settle(self, key: bytes) -> None:
        """If a key has become empty, bring out the value that it hid."""
        words = settling(key, self._metadata_db)
        self.settling.append((key, self.native(key, Expect.ANY, *words)))

    def keep_deadline(self, key: bytes) -> None:
        """Keep the deadline of a key that the next command may empty, for `settle`."""
        self.script(*keeping_deadline(key, self._metadata_db))

    def set_deadlines(self, moves: Sequence[Move], offset_ms: int, *, pins: bool) -> None:
        """Give keys, and the index, these deadlines. pins: whether to postpone near ones again."""
        words = finish(moves, self._metadata_db, offset_ms, pins=pins)
        place = self.native(moves[0].key, Expect.ANY, *words)
        self.looks.add(place)
        self.dated.append((moves, place))

    def metadata(self, expect: Expect | int | bytes, *command: bytes) -> None:
        """A command on our own database."""
        if self._db != self._metadata_db:
            self._select(self._metadata_db)
        self.writes = True
        self.pieces.append(_pack(command))
        self.expected.append(expect)

    def read(self, request: Answerable, command: list[bytes]) -> None:
        """A client's read, after all commands so far; the client gets its reply."""
        db = 0 if type(command) is list else db_of_args(command)
        if self._db != db:
            self._select(db)
        self.reads = True
        words = command if type(command) is list else sent_of(command)
        self.from_reply.append((request, self._append(Expect.ANY, _pack(tuple(words)))))

    def read_as_it_is(self, request: Answerable, command: list[bytes], protocol: int) -> None:
        """Like `read`, but the reply is not decoded. Call `speak(2)` afterwards."""
        self.speak(protocol)
        self.read(request, command)
        self.as_they_are.add(len(self.pieces) - 1)

    def count(self, request: Answerable) -> None:
        """A client's PUBLISH, or a command that counts subscribers."""
        self.counted.append((request, self._append(Expect.ANY, _pack(tuple(request.args)))))

    def speak(self, protocol: int) -> None:
        """Let the server answer in this protocol from here on."""
        if self.protocol != protocol:
            self.protocol = protocol
            self._append(Expect.ANY, _pack((b"HELLO", b"%d" % protocol)))

    def may_write(self, keys: Set[bytes]) -> Iterator[tuple[int, bytes]]:
        """Positions of commands that may write one of these keys of the clients' databases, with the key.

        Only this method decides that. A command that shows only by its reply what it writes counts for all its keys.
        """
        if not keys.isdisjoint(self.keys.values()):
            for place, key in self.keys.items():
                if key in keys and place not in self.looks:
                    yield place, key
        for moves, place in self.dated:
            yield from ((place, move.key) for move in moves if move.is_new and move.key in keys)
        for place, db in self.flushes:
            yield from ((place, key) for key in keys if db is None or db_of(key) == db)

    def finish(self) -> None:
        """Return to database 0, where every plan starts."""
        if self._db:
            self._select(0)

    def answer_from(self, request: Answerable, positions: Sequence[int]) -> None:
        """Answer with the sum of the replies to these commands; 0 if there are none."""
        if len(positions) == 1:
            self.from_reply.append((request, positions[0]))
        elif positions:
            self.from_sum.append((request, positions))
        else:
            self.answers.append((request, 0))

    def answer_with(self, request: Answerable, value: object) -> None:
        """Answer with a value known now, after the commit has succeeded."""
        self.answers.append((request, value))

    def surprises(self, replies: Sequence[object]) -> list[int]:
        """Positions of the commands whose replies are not the expected ones.

        Raises ValueError if the number of replies is wrong.
        """
        expected = self.expected
        if len(replies) != len(expected):
            raise ValueError(f"{len(replies)} replies to {len(expected)} commands")
        # Nearly all commands expect OK, any integer or a certain one, and get it: no loop then.
        found = list(map(_KINDS.get, map(type, replies), replies))
        if found == expected:
            return []
        differ = map(and_, map(ne, expected, found), map(ne, expected, replies))
        looked_at = compress(count(), differ)
        return [at for at in looked_at if not as_expected(replies[at], expected[at])]

    def _select(self, db: int) -> None:
        self._db = db
        self.pieces.append(_SELECT[db])
        self.expected.append(SAYS_OK)

    def _append(self, expect: Expect | int | bytes, packed: bytes) -> int:
        pieces = self.pieces
        pieces.append(packed)
        self.expected.append(expect)
        return len(pieces) - 1


def as_expected(reply: object, expect: Expect | int | bytes) -> bool:
    """Whether a reply inside EXEC is the one that the plan relied on."""
    if expect is Expect.ANY:
        return True
    if expect is Expect.INTEGER:
        return isinstance(reply, int)
    return reply == expect and type(reply) is type(expect)
