"""Parts of frames that several kinds share: kinds, messages, digests, and the checks of their fields.

The incarnation ids in a message or digest are all spelled out, or all given as the sender's numbers
(`wire/id_table.py`).
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from crdtcast.causality.member_id import valid_incarnation
from crdtcast.causality.messages import Digest, DigestKind, Message
from crdtcast.causality.tags import MAX_COUNTER, Dot, make_tuple
from crdtcast.exceptions import RemoteProtocolError

MAX_ORIGINS = 65_536
"""Most entries of a vector, and dots of a context. (msgpack reserves memory for what a header claims.)"""
MAX_IDENTIFIER = 160
"""Most characters. The longest incarnation id has two bases and a number."""


class FrameKind(enum.IntEnum):
    """First element of a frame's list. Numbers are permanent; a new kind needs a new protocol version. ENDED, COPY,
    ADMIT, VIEWS and WHISPER come only inside GROUPED. ASK and the kinds from OFFER to PART come inside GROUPED, too, or
    alone if the members are fixed.
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
    NAMED = 18
    ASK = 19
    SECTION = 20
    VIEWS = 21
    FOUNDING = 22
    WHISPER = 23


Numbers: TypeAlias = Mapping[str, int]
"""Id -> the sender's number for it."""
Names: TypeAlias = Mapping[int, str]
"""The sender's number -> id."""
UNTOLD: Names = {}


@dataclass(frozen=True, slots=True)
class Named:
    """The sender's numbers from `first` on stand for these ids. Numbers below `oldest` are no longer used."""

    oldest: int
    first: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the body of another frame; `left` bytes of it are still to come."""

    left: int
    piece: bytes


def section_fields(section: Section) -> list[object]:
    """A section as a list that begins with its frame's kind."""
    return [int(FrameKind.SECTION), section.left, section.piece]


def read_section(fields: list[Any]) -> Section:
    """The inverse of `section_fields`."""
    if len(fields) != 3 or type(fields[2]) is not bytes or not fields[2]:
        raise RemoteProtocolError("a section of the wrong shape")
    return Section(read_number(fields[1], "what is left of a long frame"), fields[2])


def printable(text: str) -> str:
    """A peer's text as it may go into our log: one line, without control characters for terminals."""
    return "".join(c if c.isprintable() else "?" for c in text)


def read_incarnation(text: object) -> str:
    """An incarnation id that a frame must have."""
    if type(text) is str and valid_incarnation(text):
        return text
    raise RemoteProtocolError(f"not an incarnation: {text!r:.80}")


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


def message_fields(message: Message, numbers: Numbers | None = None) -> list[object]:
    """A message as a list that begins with its frame's kind."""
    dot = message.dot
    if numbers is None:
        fields: list[object] = [4, dot[0], dot[1], message.kind, message.payload]
        for dependency in message.context:
            fields += dependency
        return fields
    fields = [4, numbers[dot[0]], dot[1], message.kind, message.payload]
    for origin, counter in message.context:
        fields.append(numbers[origin])
        fields.append(counter)
    return fields


def read_message(fields: list[Any], names: Names = UNTOLD) -> Message:
    """The inverse of `message_fields`."""
    if len(fields) == 7:  # the usual case: one dependency, well-formed
        _, origin, counter, kind, payload, depended, n = fields
        if (
            _INTEGERS.issuperset(map(type, (origin, counter, kind, depended, n)))
            and type(payload) is bytes
            and 0 < counter <= MAX_COUNTER
            and 0 < n <= MAX_COUNTER
            and 0 <= kind < 256
        ):
            try:
                dot: Dot = make_tuple(Dot, (names[origin], counter))
                return Message(dot, (make_tuple(Dot, (names[depended], n)),), payload, kind)
            except KeyError:
                raise _unknown_number() from None
    if len(fields) < 5 or len(fields) % 2 == 0:
        raise RemoteProtocolError(f"a message frame of {len(fields)} fields")
    kind, payload = fields[3], fields[4]
    if type(payload) is not bytes or type(kind) is not int or not 0 <= kind < 256:
        raise RemoteProtocolError("a message frame with a payload or kind of the wrong type")
    if type(fields[1]) is int:
        return Message(*_read_numbered(fields, names), payload, kind)
    pairs = zip(fields[5::2], fields[6::2], strict=True)
    context = [read_dot(origin, counter) for origin, counter in pairs]
    return Message(read_dot(fields[1], fields[2]), tuple(context), payload, kind)


def _read_numbered(fields: list[Any], names: Names) -> tuple[Dot, tuple[Dot, ...]]:
    """Dot and context. This is the hot path: ids were checked when their numbers were announced."""
    counter = fields[2]
    if type(counter) is not int or not 0 < counter <= MAX_COUNTER:
        raise RemoteProtocolError(f"not a counter: {counter!r:.40}")
    context: list[Dot] = []
    try:
        dot = make_tuple(Dot, (names[fields[1]], counter))
        if len(fields) > 5:
            rest = iter(fields[5:])
            for number, counter in zip(rest, rest, strict=True):
                if type(counter) is not int or not 0 < counter <= MAX_COUNTER:
                    raise RemoteProtocolError(f"not a counter: {counter!r:.40}")
                context.append(make_tuple(Dot, (names[number], counter)))
    except (KeyError, TypeError):
        raise _unknown_number() from None
    return dot, tuple(context)


_INTEGERS = frozenset((int,))


def _unknown_number() -> RemoteProtocolError:
    return RemoteProtocolError("numbers of unknown incarnations")


def _ids(numbers: list[Any], names: Names) -> list[str]:
    try:
        return [names[number] for number in numbers]
    except (KeyError, TypeError):
        raise _unknown_number() from None


_DECLARED = 3
"""Added to the kind of a digest whose sender's messages do not acknowledge. A program without this kind would count
them, so it should refuse the kind.
"""
_DIGEST_KINDS = {kind + more: (kind, not more) for kind in DigestKind for more in (0, _DECLARED)}


def digest_fields(digest: Digest, numbers: Numbers | None = None) -> list[object]:
    """A digest as a list; a field that only groups with changing members need is omitted if it is empty."""
    vector: object = dict(digest.vector)
    if numbers is not None:
        vector = _pairs([numbers[o] for o in digest.vector], list(digest.vector.values()))
    kind = int(digest.kind) + (0 if digest.acknowledging else _DECLARED)
    fields: list[object] = [int(FrameKind.DIGEST), kind, vector]
    if digest.dropped:
        fields.append(digest.dropped)
    return fields


def _pairs(numbers: list[int], counters: list[int]) -> list[int]:
    pairs = [0] * (2 * len(numbers))
    pairs[::2], pairs[1::2] = numbers, counters
    return pairs


def read_digest(fields: list[Any], names: Names = UNTOLD) -> Digest:
    """The inverse of `digest_fields`."""
    if (
        len(fields) not in (3, 4)
        or type(fields[1]) is not int
        or (told := _DIGEST_KINDS.get(fields[1])) is None
    ):
        raise RemoteProtocolError("a digest frame of the wrong shape or kind")
    given = fields[2]
    vector = _read_numbered_vector(given, names) if type(given) is list else read_vector(given)
    kind, acknowledging = told
    if len(fields) == 3:
        return Digest(kind, vector, acknowledging=acknowledging)
    return Digest(kind, vector, read_number(fields[3], "a sum of counters"), acknowledging)


def _read_numbered_vector(given: list[Any], names: Names) -> dict[str, int]:
    counters = given[1::2]
    if len(given) % 2 or len(counters) > MAX_ORIGINS:
        raise RemoteProtocolError(f"a vector of {len(given):,} numbers")
    for counter in counters:
        if type(counter) is not int or not 0 <= counter <= MAX_COUNTER:
            raise RemoteProtocolError(f"not a vector's counter: {counter!r:.40}")
    return dict(zip(_ids(given[::2], names), counters, strict=True))


def named_fields(named: Named) -> list[object]:
    """The meanings of numbers as a list."""
    return [int(FrameKind.NAMED), named.oldest, named.first, *named.ids]


def read_named(fields: list[Any]) -> Named:
    """The inverse of `named_fields`."""
    if len(fields) < 4:
        raise RemoteProtocolError(f"a named frame of {len(fields)} fields")
    oldest, first = read_number(fields[1], "a number"), read_number(fields[2], "a number")
    ids = tuple([read_text(text, "an incarnation") for text in fields[3:]])
    if oldest > first or "" in ids:
        raise RemoteProtocolError("a named frame with old numbers, or with no incarnation")
    return Named(oldest, first, ids)
