"""What members of a group send each other, and what an engine hands to its surroundings. Plain values."""

import enum
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from crdtcast.causality.tags import Dot, Tag, Vector


@dataclass(slots=True, unsafe_hash=True)
class Message:
    """One causal broadcast: its dot, its reduced context and an opaque payload. To be read only; not frozen, because
    making a frozen one takes three times as long, and this is once per message.

    `kind` is 0 for an application's message; other numbers are for membership operations. A kind this program does
    not know is stored, delivered and repaired like any other.
    """

    dot: Dot
    context: tuple[Dot, ...]
    payload: bytes
    kind: int = 0


class DigestKind(enum.IntEnum):
    """NEWS tells, ASK wants a REPLY. A REPLY is never answered, so an exchange ends.

    TOLD comes in the place of a REPLY to a member that lacks what it has told before: its vector is that, and
    acknowledges nothing.
    """

    NEWS = 0
    ASK = 1
    REPLY = 2
    TOLD = 6  # between them are those of senders whose messages do not acknowledge: see `crdtcast.wire.fields`


@dataclass(frozen=True, slots=True)
class Digest:
    """A member's vector: acknowledgement, request for repair and sign of life in one (see docs/protocol.md).

    dropped: sum of the counters that the vector does not name any more, because their incarnations were swept; with it
        the vectors of one sender can be told older from newer by their sum.
    acknowledging: whether the sender's messages acknowledge, too: not if they leave before their past is durable.
    weight: that sum, worked out once; -1 if there is something else than counters in the vector.
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
    """Tells an incarnation that it has ended here: at which of its messages if it was evicted, None if long ago."""

    incarnation: str
    cut: int | None = None


class Transmit(NamedTuple):
    """Effect: send `message` to the member `to` (an incarnation id), or to every other member if None."""

    to: str | None
    message: Any


class Delivery(NamedTuple):
    """tcdeliver: `payload` with its exact `tag`; `local` when this member sent it.

    sees_all: it comes after everything that was delivered or sent here before it. False may be said of one that does.
    """

    payload: bytes
    tag: Tag
    kind: int = 0
    local: bool = False
    sees_all: bool = False
