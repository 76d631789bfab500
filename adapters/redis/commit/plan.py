"""What one commit will send to the server, what it expects to hear, and whom it will then answer.

EXEC does not roll back: a command that fails inside it leaves the others applied. So every command in a plan carries
the reply that it must get; another one means that the key was changed past the gateway.
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
from crdtcast.adapters.redis.store.hiding import settling
from crdtcast.adapters.redis.store.named_args import db_of_args, sent_of

_pack: Callable[[tuple[bytes, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]


class CalledCommand(Protocol):
    """What the command of a request is, as far as its reply depends on that."""

    @property
    def name(self) -> str: ...
    @property
    def shown(self) -> str:
        """The name as the server writes it in errors."""

    @property
    def is_read(self) -> bool:
        """Whether the server answers it, after the connection's own writes."""

    def keys_of(self, args: Sequence[bytes]) -> Sequence[bytes]:
        """The keys among these arguments."""


class Asker(Protocol):
    """Who has sent a request."""

    @property
    def closed(self) -> bool:
        """Whether nothing reaches it any more."""


class Answerable(Protocol):
    """A request, as far as commands and commits know it: what it says, and how it is answered."""

    @property
    def client(self) -> Asker: ...
    @property
    def command(self) -> CalledCommand: ...
    @property
    def args(self) -> list[bytes]:
        """Its words, the name first."""

    @property
    def protocol(self) -> int:
        """In which its reply is to be."""

    def answer(self, value: object) -> None:
        """Fix the reply: any value that `resp.encode` takes."""


class Expect(Enum):
    """The kind of reply a command must get, where the exact one is not known beforehand."""

    INTEGER = "an integer"
    ANY = "anything, errors included: a client's read"


SAYS_OK = b"OK"
"""The reply that a SET must get."""


class _Select(dict[int, bytes]):
    """The command by number of the database."""

    def __missing__(self, db: int) -> bytes:
        self[db] = packed = _pack((b"SELECT", b"%d" % db))
        return packed


_SELECT = _Select()
_KINDS: dict[type, Expect] = {int: Expect.INTEGER}


class Plan:
    """Commands in order, for one MULTI … EXEC or, without any write, for one plain pipeline of reads."""

    writes: bool = False
    atomic: bool = False
    """Whether its reads must be at one instant."""
    reads: bool = False
    """Whether it has reads of clients."""
    _db = 0
    protocol: int = 2
    """In which the server answers as of here."""

    # What each plan has of its own; said here, since what is said in `__init__` is an instruction of each.

    pieces: list[bytes]
    expected: list[Expect | int | bytes]
    keys: dict[int, bytes]
    """Position of a command on the clients' databases -> the key that is blamed if its reply is not as expected."""
    looks: set[int]
    """Positions of those of them that leave their key as it is."""
    from_reply: list[tuple[Answerable, int]]
    """Request, position: it is answered with the reply at the position."""
    from_sum: list[tuple[Answerable, Sequence[int]]]
    """It is answered with the sum of the replies at the positions."""
    counted: list[tuple[Answerable, int]]
    """Request, position: the reply there counts subscribers, the gateway as one of them."""
    answers: list[tuple[Answerable, object]]
    """It is answered with a value known now."""
    settling: list[tuple[bytes, int]]
    """Keys, and where the reply stands that tells what they hold now (`Keyspace.settled`)."""
    dated: list[tuple[Sequence[Move], int]]
    """Keys whose deadlines were set, and where the reply stands that tells which of them are there."""
    flushes: list[tuple[int, int | None]]
    """Positions of commands that empty a database of the clients, and which; None: all of them."""
    as_they_are: set[int]
    """Positions of reads whose replies go to the client byte for byte."""

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
        self.settling = []
        self.dated = []
        self.flushes = []
        self.as_they_are = set()

    def native(self, key: bytes, expect: Expect | int | bytes, *command: bytes) -> int:
        """A command from database 0, and back to it; `key` is blamed if its reply is not the expected one.

        Returns its position: an answer can be made from the reply at it.
        """
        return self.native_packed(key, expect, _pack(command))

    def script(self, *command: bytes) -> int:
        """A command, sent in database 0, that belongs to no key: no reply to it is unexpected. Returns its position."""
        if self._db:
            self._select(0)
        self.writes = True
        return self._append(Expect.ANY, _pack(command))

    def native_packed(self, key: bytes, expect: Expect | int | bytes, packed: bytes) -> int:
        """The same for a command that is packed already."""
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
        """The same, packed, for one that tells a number and leaves the key as it is: it copies what is there."""
        place = self.at(home, packed)
        self.looks.add(place)
        return place

    def at(self, home: Home, packed: bytes, expect: Expect | int | bytes = Expect.INTEGER) -> int:
        """A packed command on a key of any database, ours too. Returns its position."""
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
        """Have these of the clients' databases be empty. The server frees the memory behind the commit."""
        self.writes = True
        for db in databases:
            if self._db != db:
                self._select(db)
            self.flushes.append((self._append(SAYS_OK, _pack((b"FLUSHDB", b"ASYNC"))), db))

    def settle(self, key: bytes) -> None:
        """Have a key that has become empty hold what it hid."""
        words = settling(key, self._metadata_db)
        self.settling.append((key, self.native(key, Expect.ANY, *words)))

    def set_deadlines(self, moves: Sequence[Move], offset_ms: int, *, pins: bool) -> None:
        """Have keys, and the index, get these deadlines; what is near is put off once more if it `pins`."""
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
        """A client's read, behind all that is in the plan so far; its reply goes to the client as it comes."""
        db = 0 if type(command) is list else db_of_args(command)
        if self._db != db:
            self._select(db)
        self.reads = True
        words = command if type(command) is list else sent_of(command)
        self.from_reply.append((request, self._append(Expect.ANY, _pack(tuple(words)))))

    def read_as_it_is(self, request: Answerable, command: list[bytes], protocol: int) -> None:
        """The same for a read whose reply is not taken apart; `speak(2)` has to follow."""
        self.speak(protocol)
        self.read(request, command)
        self.as_they_are.add(len(self.pieces) - 1)

    def count(self, request: Answerable) -> None:
        """A client's PUBLISH, or its question how many have subscribed."""
        self.counted.append((request, self._append(Expect.ANY, _pack(tuple(request.args)))))

    def speak(self, protocol: int) -> None:
        """Have the server answer what follows in this protocol."""
        if self.protocol != protocol:
            self.protocol = protocol
            self._append(Expect.ANY, _pack((b"HELLO", b"%d" % protocol)))

    def may_write(self, keys: Set[bytes]) -> Iterator[tuple[int, bytes]]:
        """Places of commands that may write one of these keys of the clients' databases, and which of them.

        The one place that says so: a command that tells only by its reply what it writes counts for all of them.
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
        """Leave the connection on database 0, where every plan starts."""
        if self._db:
            self._select(0)

    def answer_from(self, request: Answerable, positions: Sequence[int]) -> None:
        """Answer with the sum of these commands' replies: 0 without any."""
        if len(positions) == 1:
            self.from_reply.append((request, positions[0]))
        elif positions:
            self.from_sum.append((request, positions))
        else:
            self.answers.append((request, 0))

    def answer_with(self, request: Answerable, value: object) -> None:
        """Answer with a value known now, when the commit has succeeded."""
        self.answers.append((request, value))

    def surprises(self, replies: Sequence[object]) -> list[int]:
        """Positions of the commands whose replies are not as expected. ValueError if these are not all."""
        expected = self.expected
        if len(replies) != len(expected):
            raise ValueError(f"{len(replies)} replies to {len(expected)} commands")
        # Nearly all expect OK, or some integer, or this one, and get that: these cost no look of ours.
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
    """Whether a reply inside EXEC is what the plan relied on."""
    if expect is Expect.ANY:
        return True
    if expect is Expect.INTEGER:
        return isinstance(reply, int)
    return reply == expect and type(reply) is type(expect)
