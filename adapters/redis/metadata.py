"""Layout of our own database beside the clients' data: everything a restart needs, written in the same MULTI.

    state    msgpack map: identity, vector, context, stable vector, clock (`StoredState`)
    store    hash, "origin:counter" -> msgpack [order, kind, context, payload] of each delivered, unstable message
    fence    rising epoch of the one gateway that may write
    durable  counter that the durability probe writes, so that WAITAOF has a write to wait for
    hidden:TYPE:KEY   a value whose type is hidden by another under the same key
    damaged  set of keys that were overwritten past the gateway and wait for another region's copy
    foreign:KEY       what was found in the place of such a key, for a week
    opaque   hash, as `store`, of delivered messages that this program cannot read: kept until one can

A quiet group holds `state`, `fence` and `durable` only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgpack

from crdtcast.exceptions import ConfigurationError
from crdtcast.messages import Message
from crdtcast.tags import Dot, Vector

FORMAT = 1
_pack: Callable[[object], bytes] = msgpack.packb
STATE, STORE, FENCE, DURABLE = b"state", b"store", b"fence", b"durable"
OPAQUE, DAMAGED = b"opaque", b"damaged"
HIDDEN_PREFIX = b"hidden:"
CONSTANT_KEYS = frozenset({STATE, FENCE, DURABLE})
"""What a quiet group keeps however much data it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The value of `state`: the instant after the commit that wrote it."""

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
    """What the last commit reported stable, and forgot: a restart writes it to the event log if that has not it."""
    order: int
    """Messages delivered or sent so far, by any incarnation: orders the entries of `store`."""

    def encode(self) -> bytes:
        return _pack(
            {
                "format": FORMAT,
                "group": self.group,
                "name": self.name,
                "incarnation": self.incarnation,
                "members": self.members,
                "counter": self.counter,
                "vector": dict(self.vector),
                "context": self.context,
                "stable": dict(self.stable),
                "clock": self.clock,
                "reported": self.reported,
                "order": self.order,
            }
        )

    @classmethod
    def decode(cls, raw: bytes) -> StoredState:
        """Raises ConfigurationError when the value is not ours or of a later program."""
        try:
            fields = msgpack.unpackb(raw)
            version = fields.pop("format")
            if version != FORMAT:
                raise ConfigurationError(
                    f"the server's metadata has format {version}, this gateway reads {FORMAT}: "
                    "upgrade the gateway, or point it at another server"
                )
            for name in ("context", "reported"):
                fields[name] = tuple(Dot(origin, counter) for origin, counter in fields[name])
            fields["members"] = tuple(fields["members"])
            return cls(**fields)
        except (ValueError, TypeError, KeyError, AttributeError, msgpack.UnpackException) as error:
            raise ConfigurationError(
                "the metadata database holds a key 'state' that crdtcast did not write: choose "
                "another one with --metadata-db"
            ) from error


def store_field(dot: Dot) -> bytes:
    """Field of a message in the hash `store`."""
    return b"%s:%d" % (dot.origin.encode(), dot.counter)


def encode_entry(order: int, message: Message) -> bytes:
    """Value of a message in the hash `store`."""
    return _pack([order, message.kind, message.context, message.payload])


def decode_store(rows: dict[bytes, bytes]) -> list[Message]:
    """The messages of the hash `store`, in the order in which they were delivered."""
    entries: list[tuple[int, Message]] = []
    for field, raw in rows.items():
        origin, _, counter = field.decode().rpartition(":")
        order, kind, context, payload = msgpack.unpackb(raw)
        dots = tuple(Dot(*pair) for pair in context)
        entries.append((order, Message(Dot(origin, int(counter)), dots, payload, kind)))
    entries.sort(key=lambda entry: entry[0])
    return [message for _, message in entries]


def forget_fields(dots: Iterable[Dot]) -> list[bytes]:
    """Fields of stable messages, for HDEL."""
    return [store_field(dot) for dot in dots]
