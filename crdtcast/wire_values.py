"""Parts of frames that several kinds share: kinds, messages, digests, and what is checked in them."""

import enum
from collections.abc import Mapping
from typing import Any

from crdtcast.exceptions import RemoteProtocolError
from crdtcast.messages import Digest, DigestKind, Message
from crdtcast.tags import Dot

MAX_ORIGINS = 65_536
"""Entries of a vector, and dots of a context. (msgpack reserves room for what a header claims.)"""
MAX_IDENTIFIER = 160
"""Characters. The longest incarnation id holds two bases and a number."""
MAX_COUNTER = 2**63 - 1


class FrameKind(enum.IntEnum):
    """First element of a frame's list. Numbers are for ever; a new kind needs a new protocol
    version. Those from ENDED to PART are found inside GROUPED only.
    """

    KEEPALIVE = 0
    HELLO = 1
    WELCOME = 2
    REFUSAL = 3
    MESSAGE = 4
    DIGEST = 5
    HERE = 6
    APART = 7
    KNOWN = 8
    GROUPED = 9
    ENDED = 10
    COPY = 11
    ADMIT = 12
    OFFER = 13
    UNABLE = 14
    FETCH = 15
    PART = 16
    PROOF = 17


def printable(text: str) -> str:
    """What a stranger says goes into our log: one line of it, and no terminal's commands."""
    return "".join(c if c.isprintable() else "?" for c in text)


def read_number(value: object, what: str) -> int:
    """A counter, size or number that a frame must have."""
    if type(value) is int and 0 <= value <= MAX_COUNTER:
        return value
    raise RemoteProtocolError(f"not {what}: {value!r:.40}")


def read_text(value: object, what: str, longest: int = MAX_IDENTIFIER) -> str:
    """A text that a frame must have; it may be empty."""
    if type(value) is str and len(value) <= longest:
        return value
    raise RemoteProtocolError(f"not {what}: {value!r:.80}")


def read_dot(origin: object, counter: object) -> Dot:
    """A dot that a peer sent."""
    if (
        type(origin) is str
        and type(counter) is int
        and 0 < len(origin) <= MAX_IDENTIFIER
        and 0 < counter <= MAX_COUNTER
    ):
        return Dot(origin, counter)
    raise RemoteProtocolError(f"not a dot: {origin!r:.80}, {counter!r:.40}")


def read_vector(vector: object) -> dict[str, int]:
    """A vector that a peer sent."""
    if type(vector) is not dict:
        raise RemoteProtocolError("a digest frame without a vector")
    for origin, counter in vector.items():
        if (
            type(origin) is not str
            or not 0 < len(origin) <= MAX_IDENTIFIER
            or type(counter) is not int
            or not 0 <= counter <= MAX_COUNTER
        ):
            raise RemoteProtocolError(f"not a vector's entry: {origin!r:.80}: {counter!r:.40}")
    return vector


def message_fields(message: Message) -> list[object]:
    """A message as a list that begins with its frame's kind."""
    dot = message.dot
    fields: list[object] = [4, dot[0], dot[1], message.kind, message.payload]
    for dependency in message.context:
        fields += dependency
    return fields


def read_message(fields: list[Any]) -> Message:
    """The inverse of `message_fields`."""
    if len(fields) < 5 or len(fields) % 2 == 0:
        raise RemoteProtocolError(f"a message frame of {len(fields)} fields")
    kind, payload = fields[3], fields[4]
    if type(payload) is not bytes or type(kind) is not int or not 0 <= kind < 256:
        raise RemoteProtocolError("a message frame with a payload or kind of the wrong type")
    dots = iter(fields[5:])
    context = tuple([read_dot(origin, counter) for origin, counter in zip(dots, dots, strict=True)])
    return Message(read_dot(fields[1], fields[2]), context, payload, kind)


_DIGEST_KINDS = {int(kind): kind for kind in DigestKind}


def digest_fields(digest: Digest) -> list[object]:
    """A digest; what only groups with changing members need is left out where it is empty."""
    fields: list[object] = [int(FrameKind.DIGEST), int(digest.kind), dict(digest.vector)]
    if digest.ended or digest.dropped:
        fields += [dict(digest.ended), digest.dropped]
    return fields


def read_digest(fields: list[Any]) -> Digest:
    """The inverse of `digest_fields`."""
    if (
        len(fields) not in (3, 5)
        or type(fields[1]) is not int
        or (kind := _DIGEST_KINDS.get(fields[1])) is None
    ):
        raise RemoteProtocolError("a digest frame of the wrong shape or kind")
    vector = read_vector(fields[2])
    if len(fields) == 3:
        return Digest(kind, vector)
    return Digest(kind, vector, _read_cuts(fields[3]), read_number(fields[4], "a sum of counters"))


def _read_cuts(cuts: object) -> Mapping[str, int | None]:
    if type(cuts) is not dict:
        raise RemoteProtocolError("a digest frame whose ended incarnations are no table")
    for incarnation, counter in cuts.items():
        read_text(incarnation, "an incarnation")
        if counter is not None:
            read_number(counter, "a cut")
    return cuts
