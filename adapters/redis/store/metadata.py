"""Layout of the metadata database: everything that a restart needs, written in the same MULTI as the clients' data.

    state    msgpack map: identity, vector, context, stable vector, clock (`StoredState`)
    record   list: what the server did by itself in the last commit, until its message is stored (`recorded/record.py`)
    store    hash, "origin:counter" -> msgpack [order, kind, context, payload] of each delivered, unstable message
    fence    rising epoch of the one gateway that may write
    durable  counter that the durability probe writes, so that WAITAOF has a write to wait for
    hidden:TYPE:KEY   a value whose type is hidden by another under the same key
    exact:TYPE:KEY    exact values of slots whose native value is an approximation (`types/exact_values.py`)
    damaged  set of keys that were overwritten directly in the server and wait for another region's copy
    disputed set of keys that differ between members, while nothing shows which copy is right
    incomplete set of large keys of which only some slots are repaired yet
    foreign:KEY       what was found in place of a repaired key, for a week
    parked   writes of an evicted incarnation of this gateway that the group may lack (`crdtcast.journal.saved`)
    taken:ORIGIN:COUNTER:PLACE   what a local unstable removal took away (`group/preimages.py`)
    adopting hash, until the deadlines of a database that was taken over are in the index (`deadlines/adopted.py`)
    left-out set of patterns: the keys that the group leaves out (`adoption/left_out.py`)
    joining  set, while a copy of the group's data is written: the ids under which this member has asked to join

A quiet group holds `state`, `fence` and `durable` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar

import msgpack

from crdtcast.adapters.redis.group.format_level import check_stored
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Tag, Vector
from crdtcast.engine import GroupState
from crdtcast.exceptions import ConfigurationError
from crdtcast.journal.format import check_format
from crdtcast.wire.state import pack_state, unpack_state

FORMAT = 4
"""Format of the value of `state` up to `level`; `level` gives the format of the rest."""
_pack: Callable[[object], bytes] = msgpack.Packer().pack
STATE, STORE, FENCE, DURABLE = b"state", b"store", b"fence", b"durable"
DAMAGED, DISPUTED, INCOMPLETE = REFUSED = (b"damaged", b"disputed", b"incomplete")
JOINING, PARKED = b"joining", b"parked"
RECORD = b"record"
LEFT_OUT = b"left-out"
HIDDEN_PREFIX, TAKEN_PREFIX, FOREIGN_PREFIX = b"hidden:", b"taken:", b"foreign:"
EXACT_PREFIX = b"exact:"
CONSTANT_KEYS = frozenset({STATE, FENCE, DURABLE})
"""The keys of a quiet group, however much data it holds."""


@dataclass(slots=True, kw_only=True)
class StoredState:
    """The value of `state`: the instant after the commit that wrote it. Only the committer changes it, once per commit;
    its vectors are read-only.
    """

    format: ClassVar[int] = FORMAT
    group: str
    name: str
    incarnation: str
    members: tuple[str, ...]
    counter: int
    vector: Vector
    context: tuple[Dot, ...]
    stable: Vector
    clock: int
    """Greatest hybrid logical time used or seen."""
    reported: tuple[Dot, ...] = ()
    """The messages that the last commit reported as stable and forgot. A restart writes them to the event log if they
    are missing in it.
    """
    order: int
    """Messages delivered or sent so far, by any incarnation, plus notes of this one about its view. It orders the
    entries of `store`. A server that comes back with less has lost data.
    """
    number: int = 0
    """Commits so far. Shows whether a commit whose answer was lost was applied."""
    level: int
    """The format level that a program must read to continue from this server."""
    founding: str = ""
    """Identifies the group among those of that name: its founder's first incarnation; empty where the members are
    fixed.
    """
    membership: list[Any] | None = None
    """The members of the group, as `pack_membership` gives them; None where the members are fixed."""
    _kept: tuple[object, ...] = field(default=(), init=False, repr=False, compare=False)
    _kept_packed: bytes = field(default=b"", init=False, repr=False, compare=False)

    def encode(self) -> bytes:
        """The value, with the number of its format. What few commits change is packed when it changes."""
        kept = _KEPT_VALUES(self)
        if kept != self._kept:
            told = dict(zip(_KEPT, kept, strict=True))
            if not self.founding:
                del told["founding"], told["membership"]
            pairs = b"".join(map(_pack, chain.from_iterable(told.items())))
            self._kept = kept
            self._kept_packed = _map_header(len(told) + len(_CHANGING)) + pairs
        changing = _pack(
            [*chain.from_iterable(zip(_CHANGING, _CHANGING_VALUES(self), strict=True))]
        )
        return self._kept_packed + changing[_LIST_HEADER:]

    def group_state(self, unstable: Iterable[Message]) -> GroupState:
        """The state from which a `GroupEngine` continues. unstable: the messages of `store`.

        Raises RemoteProtocolError if the state is invalid.
        """
        empty = pack_state(GroupState())
        state = unpack_state([*empty[:_MEMBERSHIP_FROM], *(self.membership or ())])
        return replace(
            state,
            counter=self.counter,
            vector=dict(self.vector),
            context=self.context,
            stable=dict(self.stable),
            unstable=tuple(unstable),
        )

    @classmethod
    def decode(cls, raw: bytes) -> StoredState:
        """Raises ConfigurationError if the value is not ours, OutdatedError if this program cannot read it."""
        try:
            told = msgpack.unpackb(raw)
            version = told.pop("format")
            check_format("the server's metadata", version, FORMAT)
            if version != FORMAT:
                raise ConfigurationError(
                    f"the server's metadata has format {version}, and this gateway reads "
                    f"{FORMAT}: use another server, or the program that wrote it"
                )
            check_stored("the server", int(told["level"]))
            for name in ("context", "reported"):
                told[name] = tuple(Dot(origin, counter) for origin, counter in told[name])
            told["members"] = tuple(told["members"])
            return cls(**told)
        except (ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException) as error:
            raise ConfigurationError(
                "the metadata database holds a key 'state' that crdtcast did not write: choose "
                "another database with --metadata-db"
            ) from error


_KEPT = (
    *("format", "level", "group", "name", "incarnation", "members", "reported"),
    *("founding", "membership"),
)
"""Fields of the value of `state` that most commits leave as they are; the last two only where members come and go."""
_CHANGING = ("counter", "vector", "context", "stable", "clock", "order", "number")
_KEPT_VALUES, _CHANGING_VALUES = attrgetter(*_KEPT), attrgetter(*_CHANGING)
_map_header: Callable[[int], bytes] = msgpack.Packer().pack_map_header
_LIST_HEADER = 1
"""Bytes before the items of a packed list of up to 15 items."""
_MEMBERSHIP_FROM = 5
"""Where the part that is not about messages begins in `pack_state`'s list."""


def pack_membership(outline: GroupState) -> list[Any]:
    """The stored form of what changes little: members, ended incarnations, voters, open decisions."""
    return pack_state(outline)[_MEMBERSHIP_FROM:]


def notes(outline: GroupState) -> int:
    """How often this member has noted something about its view."""
    return 0 if outline.record is None else outline.record.serial


def store_field(dot: Dot) -> bytes:
    """Field of a message in the hash `store`."""
    origin, counter = dot
    return f"{origin}:{counter}".encode()


def entry(order: int, message: Message) -> tuple[bytes, bytes]:
    """Field and value of a message in the hash `store`. order: see `StoredState.order`."""
    origin, counter = message.dot
    value = _pack([order, message.kind, message.context, message.payload])
    return f"{origin}:{counter}".encode(), value


def own_entry(order: int, tag: Tag, payload: bytes) -> tuple[bytes, bytes]:
    """The same for a message that the application of this member has sent."""
    origin, counter = tag.dot
    return f"{origin}:{counter}".encode(), _pack([order, 0, tag.context, payload])


def decode_store(rows: dict[bytes, bytes]) -> list[Message]:
    """The messages of the hash `store`, in the order in which they were delivered."""
    entries: list[tuple[int, Message]] = []
    for name, raw in rows.items():
        origin, _, counter = name.decode().rpartition(":")
        order, kind, context, payload = msgpack.unpackb(raw)
        dots = tuple(Dot(*pair) for pair in context)
        entries.append((order, Message(Dot(origin, int(counter)), dots, payload, kind)))
    entries.sort(key=lambda entry: entry[0])
    return [message for _, message in entries]
