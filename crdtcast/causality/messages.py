"""What members of a group send each other, and what an engine hands to its surroundings. Plain values."""

import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crdtcast.causality.tags import Dot, Tag, Vector


@dataclass(slots=True, unsafe_hash=True)
class Message:
    """One causal broadcast: its dot, its reduced context and an opaque payload. Read only.

    Not frozen: making a frozen one takes three times as long, and one is made per message.

    `kind` is 0 for an application's message; other numbers are for membership operations. A kind that this program
    does not know is stored, delivered and repaired like any other.
    """

    dot: Dot
    context: tuple[Dot, ...]
    payload: bytes
    kind: int = 0


class DigestKind(enum.IntEnum):
    """NEWS informs, ASK requests a REPLY. A REPLY is never answered, so an exchange ends.

    TOLD replaces a REPLY to a member that lacks what it has reported before, as after a restored disk: its vector shows
    what that was, and acknowledges nothing.
    """

    NEWS = 0
    ASK = 1
    REPLY = 2
    TOLD = 6  # between them are those of senders whose messages do not acknowledge: see `crdtcast.wire.fields`


@dataclass(frozen=True, slots=True)
class Digest:
    """A member's vector: acknowledgement, request for repair and sign of life in one (see docs/protocol.md).

    dropped: sum of the counters that left the vector because their incarnations were swept. It keeps the sums of one
        sender's vectors rising, so that they tell older from newer.
    acknowledging: whether the sender's messages acknowledge, too. They do not if they may leave before their past is
        durable.
    weight: sum of the counters in the vector, computed once; -1 if a value is not a counter.
    """

    kind: DigestKind
    vector: Vector
    dropped: int = 0
    acknowledging: bool = True
    weight: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        counters = self.vector.values()
        try:
            weight = sum(counters)
            if type(weight) is not int or min(counters, default=0) < 0:
                weight = -1
        except TypeError:
            weight = -1
        object.__setattr__(self, "weight", weight)


@dataclass(frozen=True, slots=True)
class Ended:
    """Tells an incarnation that it has ended at the sender. cut: its last message that counts, if it was evicted; None
    if that was long ago.
    """

    incarnation: str
    cut: int | None = None


class Transmit(NamedTuple):
    """Effect: send `message` to the member `to` (an incarnation id), or to every other member if None."""

    to: str | None
    message: Any


class Delivery(NamedTuple):
    """tcdeliver: `payload` with its exact `tag`.

    local: whether this member sent it.
    sees_all: it comes after everything that this member delivered or sent before it. May be False although it does.
    """

    payload: bytes
    tag: Tag
    kind: int = 0
    local: bool = False
    sees_all: bool = False
