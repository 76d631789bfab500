"""Frames: all that two nodes send each other, as bytes and back. Sans-I/O; this file knows no sockets.

A frame is a length (4 bytes, big-endian, of the body alone) and a msgpack list whose first element is the frame's kind.
Peers are not trusted: the length is checked before any of the body is kept, and anything that is not exactly a frame is
a `RemoteProtocolError`. A frame is the same on all links, except for the protocol version and compression; so a
broadcast is encoded once for all peers that agree in these.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import msgpack

from crdtcast.causality.member_id import valid_incarnation, valid_name
from crdtcast.causality.messages import Digest, Message
from crdtcast.causality.tags import MAX_COUNTER
from crdtcast.engine.level import PROGRAM, Span
from crdtcast.engine.operations import read_level, read_span
from crdtcast.exceptions import LocalProtocolError, RemoteProtocolError
from crdtcast.wire import group_frames
from crdtcast.wire.fields import (
    MAX_IDENTIFIER,
    MAX_ORIGINS,
    UNTOLD,
    Named,
    Names,
    Numbers,
    Section,
    digest_fields,
    message_fields,
    named_fields,
    printable,
    read_digest,
    read_message,
    read_named,
    read_section,
    section_fields,
)
from crdtcast.wire.fields import FrameKind as FrameKind
from crdtcast.wire.frame_shapes import SHORT, unpacked_frame
from crdtcast.wire.group_frames import Apart, Founding, Grouped, GroupFrame, Here, Known
from crdtcast.wire.offer_frames import ASKING, Asking, asking_fields

PROTOCOL_VERSION = 1
"""The version that this program speaks. A link speaks the lower of both sides' versions, if both support it."""
OLDEST_VERSION = 1

MAX_FRAME = 16 * 2**20
"""Most bytes of a frame's body, by default."""
MAX_HANDSHAKE_FRAME = 4096
"""The limit for a peer that is not identified yet."""
MAX_ADDRESS = 300
NONCE_BYTES = 32
PREFIX = 4
"""Bytes of the length before a body."""


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Says only that the sender is alive. Sent when nothing else was sent for a while; never answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """The sender's identity. The first frame in each direction.

    process: random, new for each running node. It distinguishes a reconnect from another process of the same name, and
        a node from itself.
    fence: epoch of the owner of the gateway's server (0 without one); of two owners the higher one is right.
    max_frame: the longest body that the sender accepts.
    clock_ms: its wall clock, if drift is watched.
    shared: its links carry several groups (`crdtcast.wire.group_frames`); then `group` names the set of links, and
        `incarnation` the process, or the server that it owns.
    address: where others can dial it, if known.
    nonce: random for this connection, if the sender has a secret and requires the other side to prove it
        (`wire/auth.py`); else empty.
    zstd: it understands compressed frames.
    level, reads: if the members are fixed: the format level in which it sends, and those that its program reads.
    databases: the number of databases of the gateway's server, and the one that is the gateway's; None without one.
    """

    group: str
    name: str
    incarnation: str
    process: bytes
    fence: int = 0
    max_frame: int = MAX_FRAME
    clock_ms: int | None = None
    version: int = PROTOCOL_VERSION
    oldest: int = OLDEST_VERSION
    shared: bool = False
    address: str = ""
    nonce: bytes = b""
    zstd: bool = False
    level: int = PROGRAM.lowest
    reads: Span = PROGRAM
    databases: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Welcome:
    """Ends the handshake. Number 0: "no objection". A number above 0: "this link counts"."""

    number: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the sender will not link with the receiver: a word for the program and a sentence for its operator."""

    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Proof:
    """Proves that the sender knows the shared secret: see `wire/auth.py`."""

    mac: bytes


Frame: TypeAlias = (
    KeepAlive
    | Hello
    | Welcome
    | Refusal
    | Proof
    | Named
    | Section
    | Message
    | Digest
    | Asking
    | GroupFrame
)

_pack: Callable[[object], bytes] = msgpack.Packer(use_bin_type=True).pack
_HOW: dict[str, Any] = {"raw": False, "strict_map_key": True, "max_map_len": MAX_ORIGINS}
_unpack: Callable[..., Any] = partial(msgpack.unpackb, **_HOW)
_unpack_long: Callable[..., Any] = partial(unpacked_frame, **_HOW)
_MAX_ELEMENTS = 2 * MAX_ORIGINS + 16


def length_of(body: bytes) -> bytes:
    """The bytes before a frame's body."""
    return len(body).to_bytes(PREFIX, "big")


def framed(body: bytes) -> bytes:
    """A frame's body after its length."""
    return length_of(body) + body


KEEPALIVE_FRAME = framed(_pack([int(FrameKind.KEEPALIVE)]))
"""Six bytes: all that two members without news send each other."""


def encode(frame: Frame, max_frame: int = MAX_FRAME) -> bytes:
    """The bytes of `frame` with its length. Raises LocalProtocolError if its body is longer than `max_frame` bytes."""
    return framed(encode_body(frame, max_frame))


def encode_body(frame: Frame, max_frame: int = MAX_FRAME, numbers: Numbers | None = None) -> bytes:
    """The body, without its length. numbers: for incarnation ids; without them ids are spelled out."""
    # Messages first, and without a match statement: this is the hot path.
    if type(frame) is Message:
        fields = message_fields(frame, numbers)
    elif type(frame) is Grouped:
        fields = group_frames.grouped_fields(frame, numbers)
    else:
        fields = _fields_of(frame, numbers)
    body = _pack(fields)
    if len(body) > max_frame:
        raise LocalProtocolError(
            f"cannot send a {type(frame).__name__} of {len(body):,} bytes: frames have at most "
            f"{max_frame:,}: send smaller payloads, or raise max_frame on all members"
        )
    return body


def _fields_of(frame: Frame, numbers: Numbers | None) -> list[object]:
    match frame:
        case Digest():
            return digest_fields(frame, numbers)
        case Here() | Apart() | Founding() | Known():
            return group_frames.fields_of(frame)
        case Named():
            return named_fields(frame)
        case Section():
            return section_fields(frame)
        case _ if isinstance(frame, Asking):
            return asking_fields(frame)
        case Hello():
            return [int(FrameKind.HELLO), _hello_fields(frame)]
        case Welcome(number):
            return [int(FrameKind.WELCOME), number]
        case Refusal(reason, text):
            return [int(FrameKind.REFUSAL), reason, text]
        case Proof(mac):
            return [int(FrameKind.PROOF), mac]
        case _:
            return [int(FrameKind.KEEPALIVE)]


def _hello_fields(hello: Hello) -> dict[str, object]:
    fields: dict[str, object] = {
        "version": hello.version,
        "oldest": hello.oldest,
        "group": hello.group,
        "name": hello.name,
        "incarnation": hello.incarnation,
        "process": hello.process,
        "fence": hello.fence,
        "max_frame": hello.max_frame,
        "clock_ms": hello.clock_ms,
    }
    if hello.shared:
        fields.update(shared=True, address=hello.address)
    else:
        fields.update(level=hello.level, reads=list(hello.reads))
    if hello.nonce:
        fields.update(nonce=hello.nonce)
    if hello.zstd:
        fields.update(zstd=True)
    if hello.databases is not None:
        fields.update(databases=list(hello.databases))
    return fields


def decode(body: bytes, names: Names = UNTOLD) -> Frame:
    """The frame with this body (without length). names: those that the sender has announced.

    Raises RemoteProtocolError unless `body` is exactly one frame.
    """
    try:
        # msgpack reserves memory for what an array's header claims, and headers may be nested.
        size = len(body)
        if size <= SHORT:
            fields = _unpack(body, max_array_len=size)
        else:
            fields = _unpack_long(body, max_array_len=min(size, _MAX_ELEMENTS))
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise RemoteProtocolError(
            f"a frame's body of {len(body):,} bytes is not valid msgpack for this protocol: "
            f"{type(error).__name__}"
        ) from error
    if type(fields) is not list or not fields:
        raise RemoteProtocolError("a frame's body is not a list that begins with a kind")
    kind = fields[0]
    if type(kind) is int:
        with_names = _WITH_NAMES.get(kind)
        if with_names is not None:
            return with_names(fields, names)
        decoder = _DECODERS.get(kind)
        if decoder is not None:
            return decoder(fields)
    raise RemoteProtocolError(f"unknown frame kind {kind!r:.40}")


def _decode_keepalive(fields: list[Any]) -> KeepAlive:
    if len(fields) != 1:
        raise RemoteProtocolError("a keep-alive frame with content")
    return KeepAlive()


def _decode_welcome(fields: list[Any]) -> Welcome:
    if len(fields) != 2 or type(fields[1]) is not int or not 0 <= fields[1] <= MAX_COUNTER:
        raise RemoteProtocolError("a welcome frame without a number")
    return Welcome(fields[1])


def _decode_refusal(fields: list[Any]) -> Refusal:
    if len(fields) != 3 or type(fields[1]) is not str or type(fields[2]) is not str:
        raise RemoteProtocolError("a refusal frame without a reason and a text")
    return Refusal(printable(fields[1][:64]), printable(fields[2][:1000]))


def _decode_proof(fields: list[Any]) -> Proof:
    if len(fields) != 2 or type(fields[1]) is not bytes or len(fields[1]) > MAX_IDENTIFIER:
        raise RemoteProtocolError("a proof frame of the wrong shape")
    return Proof(fields[1])


def _decode_hello(fields: list[Any]) -> Hello:
    """Unknown keys are of a later version, and are ignored."""
    if len(fields) != 2 or type(fields[1]) is not dict:
        raise RemoteProtocolError("a hello frame of the wrong shape")
    said = fields[1]

    def number(key: str) -> int:
        value = said.get(key)
        if type(value) is not int or not 0 <= value <= MAX_COUNTER:
            raise RemoteProtocolError(f"a hello whose {key!r} is not a number: {value!r:.40}")
        return value

    def text(key: str, valid: Callable[[str], bool]) -> str:
        value = said.get(key)
        if type(value) is not str or not valid(value):
            raise RemoteProtocolError(f"a hello with an invalid {key!r}: {value!r:.80}")
        return value

    process = said.get("process")
    if type(process) is not bytes or not 0 < len(process) <= MAX_IDENTIFIER:
        raise RemoteProtocolError("a hello without the process's number")
    nonce = said.get("nonce", b"")
    if type(nonce) is not bytes or len(nonce) not in (0, NONCE_BYTES):
        raise RemoteProtocolError("a hello with an invalid 'nonce'")
    return Hello(
        group=text("group", valid_name),
        name=text("name", valid_name),
        incarnation=text("incarnation", valid_incarnation),
        process=process,
        fence=number("fence"),
        max_frame=number("max_frame"),
        clock_ms=None if said.get("clock_ms") is None else number("clock_ms"),
        version=number("version"),
        oldest=number("oldest"),
        shared=said.get("shared") is True,
        address=text("address", _valid_address) if said.get("shared") is True else "",
        nonce=nonce,
        zstd=said.get("zstd") is True,
        level=read_level(said.get("level", PROGRAM.lowest)),
        reads=_span(said.get("reads", list(PROGRAM))),
        databases=_databases(said.get("databases")),
    )


def _databases(fields: object) -> tuple[int, int] | None:
    match fields:
        case None:
            return None
        case [int(count), int(own)] if 0 <= own < MAX_COUNTER and 0 < count < MAX_COUNTER:
            return count, own
    raise RemoteProtocolError(f"a hello whose 'databases' are not two numbers: {fields!r:.40}")


def _span(fields: object) -> Span:
    if type(fields) is not list or len(fields) != 2:
        raise RemoteProtocolError(f"a hello whose 'reads' is not a span: {fields!r:.40}")
    return read_span(*fields)


def _valid_address(text: str) -> bool:
    return len(text) <= MAX_ADDRESS and text.isprintable()


_DECODERS: dict[int, Callable[[list[Any]], Frame]] = {
    int(FrameKind.KEEPALIVE): _decode_keepalive,
    int(FrameKind.HELLO): _decode_hello,
    int(FrameKind.WELCOME): _decode_welcome,
    int(FrameKind.REFUSAL): _decode_refusal,
    int(FrameKind.PROOF): _decode_proof,
    int(FrameKind.NAMED): read_named,
    int(FrameKind.SECTION): read_section,
    **ASKING,
    **group_frames.DECODERS,
}
_WITH_NAMES: dict[int, Callable[[list[Any], Names], Frame]] = {
    int(FrameKind.MESSAGE): read_message,
    int(FrameKind.DIGEST): read_digest,
    int(FrameKind.GROUPED): group_frames.read_grouped,
}
