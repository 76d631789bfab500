"""Membership operations: ordinary causal messages with a `kind`, and their payloads (msgpack arrays).

A kind that this program does not know is opaque: stored, delivered, repaired, and without effect.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgpack

from crdtcast.causality.member_id import base_of, valid_incarnation
from crdtcast.causality.tags import Vector
from crdtcast.engine.level import PROGRAM, Span
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.msgpack_limits import unpacked_within

MOST_REPLACED = 1000
"""Incarnations that one join names: earlier lives of its node, and those that an operator declares lost."""
MOST_ENDED = 65_536
"""Incarnations that one sweep may list: at most as many as a vector has entries."""
MOST_COUNTER = 2**63 - 1
MOST_LEVEL = 2**31 - 1


class OperationKind(enum.IntEnum):
    """The kind of a message."""

    APPLICATION = 0
    JOIN = 1
    SWEEP = 2
    SETTLED = 3
    READS = 4


class How(enum.IntEnum):
    """Why an incarnation ended."""

    LEFT = 0
    EVICTED = 1
    FORCED = 2

    @property
    def is_eviction(self) -> bool:
        """Whether others have removed it."""
        return self is not How.LEFT


@dataclass(frozen=True, slots=True)
class Cut:
    """Where an ended incarnation ends: its last message that counts, and why."""

    counter: int
    how: How


@dataclass(frozen=True, slots=True)
class Join:
    """`base` is a member from this message on, with the state of its contact, which had delivered `vector`.

    replaces: bases of earlier incarnations of the same node, or of one that the operator declares replaced. A change of
        view removes them, without their votes.
    witness: whether it holds no application state. reads: the format levels that its program reads.
    """

    base: str
    replaces: tuple[str, ...]
    witness: bool
    vector: Vector
    reads: Span = PROGRAM


@dataclass(frozen=True, slots=True)
class Sweep:
    """These have ended at the sender; all that comes after this message comes after all of theirs."""

    ended: tuple[tuple[str, Cut], ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """The successor of `incarnation`, which was cut after `counter`, has sent again what it had to."""

    incarnation: str
    counter: int


@dataclass(frozen=True, slots=True)
class Reads:
    """The sender's program reads these format levels from now on: it was upgraded, or is an older one again."""

    span: Span


Operation: TypeAlias = Join | Sweep | Settled | Reads


def encode(operation: Operation) -> tuple[OperationKind, bytes]:
    """The kind and the payload of the message that carries it."""
    fields: list[Any]
    match operation:
        case Join(base, replaces, witness, vector, reads):
            kind, fields = (
                OperationKind.JOIN,
                [base, list(replaces), witness, dict(vector), list(reads)],
            )
        case Sweep(ended):
            kind, fields = OperationKind.SWEEP, _listed(ended)
        case Settled(incarnation, counter):
            kind, fields = OperationKind.SETTLED, [incarnation, counter]
        case Reads(span):
            kind, fields = OperationKind.READS, list(span)
    return kind, msgpack.packb(fields)


def _listed(ended: tuple[tuple[str, Cut], ...]) -> list[Any]:
    return [[incarnation, cut.counter, int(cut.how)] for incarnation, cut in ended]


def decode(kind: int, payload: bytes) -> Operation | None:
    """The operation in a message; None if this program does not know the kind, or it is the application's.

    Raises RemoteProtocolError if the payload is invalid.
    """
    read = _READ.get(kind)
    if read is None:
        return None
    try:
        return read(*unpacked_within(payload, MOST_ENDED + 8))
    except RemoteProtocolError:
        raise
    except Exception as error:  # msgpack raises many kinds, and so do wrong shapes
        raise RemoteProtocolError(
            f"unreadable membership operation of kind {kind}: {error}"
        ) from error


def _incarnation(text: Any) -> str:
    if not isinstance(text, str) or not valid_incarnation(text):
        raise RemoteProtocolError(
            f"{text!r:.80} in a membership operation is not an incarnation id"
        )
    return text


def _base(text: Any) -> str:
    if base_of(_incarnation(text)) != text:
        raise RemoteProtocolError(f"{text!r} in a membership operation is not the base of an id")
    return str(text)


def _counter(number: Any) -> int:
    if type(number) is not int or not 0 <= number <= MOST_COUNTER:
        raise RemoteProtocolError(f"{number!r:.80} in a membership operation is not a counter")
    return number


def _join(base: Any, replaces: Any, witness: Any, vector: Any, reads: Any) -> Join:
    if len(replaces) > MOST_REPLACED:
        raise RemoteProtocolError(f"{base!r:.80} would replace {len(replaces):,} incarnations")
    known = {_incarnation(origin): _counter(counter) for origin, counter in vector.items()}
    return Join(_base(base), tuple(map(_base, replaces)), bool(witness), known, read_span(*reads))


def read_level(number: Any) -> int:
    """A format level that another program has written. Raises RemoteProtocolError for anything else."""
    if type(number) is not int or not 1 <= number <= MOST_LEVEL:
        raise RemoteProtocolError(f"invalid format level {number!r:.80}")
    return number


def read_span(lowest: Any, highest: Any) -> Span:
    """A span of levels that another program has written. Raises RemoteProtocolError for anything else."""
    span = Span(read_level(lowest), read_level(highest))
    if span.lowest > span.highest:
        raise RemoteProtocolError(f"invalid span of format levels: {span}")
    return span


def _cuts(listed: Any) -> tuple[tuple[str, Cut], ...]:
    return tuple((_incarnation(who), Cut(_counter(n), How(how))) for who, n, how in listed)


_READ: dict[int, Callable[..., Operation]] = {
    OperationKind.JOIN: _join,
    OperationKind.SWEEP: lambda *ended: Sweep(_cuts(ended)),
    OperationKind.SETTLED: lambda who, counter: Settled(_incarnation(who), _counter(counter)),
    OperationKind.READS: lambda lowest, highest: Reads(read_span(lowest, highest)),
}
