"""The bytes of a journal: headers, frames, and the proof of how far it was synced. Pure functions.

    segment = header | frame | frame | …          frame = mark | kind | length | digest | content
    proof   = sector of its identity | sector of a slot | sector of a slot

Every digest is keyed by the journal's nonce and covers its place, so that bytes of another journal, or of another place
in this one, are never taken for a frame.
"""

import enum
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from crdtcast.exceptions import ConfigurationError

FORMAT = 1
"""Rises when older programs cannot read what this one writes."""
SECTOR = 512
"""Bytes that a disk writes completely or not at all."""
NONCE_BYTES = 16

_SEGMENT_MAGIC = b"crdtcast journal"
_PROOF_MAGIC = b"crdtcast j.proof"
_DIGEST_BYTES = 8
_MARK = b"\xc2\xd7\xca\x57"
_VERSION = struct.Struct(">16sH")
_HEADER = struct.Struct(">16sH16sQQQQH")
_FRAME = struct.Struct(">4sBQ")
_FRAME_BYTES = _FRAME.size + _DIGEST_BYTES
_SLOT = struct.Struct(">QQQ")
_RECORD = struct.Struct(">Q")


class FormatError(Exception):
    """The bytes are damaged or of another kind."""


@dataclass(frozen=True, slots=True)
class JournalProof:
    """How far a journal was synced.

    nonce: of this journal.
    segment, offset: all up to there was synced once.
    serial: of the newest slot; it rises with every sync.
    """

    nonce: bytes
    serial: int = 0
    segment: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Header:
    """The beginning of a segment.

    nonce: of the journal.
    number: of the segment.
    identity: of the proof's file, see `OpenFile.identity`.
    base: up to there the segment was synced before it got its name.
    damage: see `Recovered.damage`; it stays until there is a new snapshot.
    """

    nonce: bytes
    number: int
    identity: tuple[int, int]
    base: int
    damage: str = ""


class JournalFrameKind(enum.IntEnum):
    """The content of a frame: one snapshot, or the records of one sync."""

    SNAPSHOT = 1
    RECORDS = 2


@dataclass(frozen=True, slots=True)
class Frames:
    """The content of a segment.

    end: where the last readable frame ends.
    torn: whether bytes follow that.
    beyond: whether a readable frame follows somewhere after that.
    """

    snapshot: bytes | None
    records: tuple[bytes, ...]
    end: int
    torn: bool
    beyond: bool


def _digest(nonce: bytes, *parts: bytes | memoryview) -> bytes:
    digest = blake2b(key=nonce, digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(part)
    return digest.digest()


def check_version(raw: bytes, what: str) -> None:
    """Raises ConfigurationError if a newer program wrote this file."""
    for magic in (_SEGMENT_MAGIC, _PROOF_MAGIC):
        if raw.startswith(magic) and len(raw) >= _VERSION.size:
            check_format(what, _VERSION.unpack_from(raw)[1], FORMAT)


# The proof


def pack_identity(nonce: bytes) -> bytes:
    """A new proof, which proves nothing yet."""
    head = _VERSION.pack(_PROOF_MAGIC, FORMAT) + nonce
    return (head + _digest(nonce, head)).ljust(3 * SECTOR, b"\0")


def pack_slot(proof: JournalProof) -> tuple[int, bytes]:
    """The offset in the proof's file, and the bytes. Slots alternate, so that one of them is always whole."""
    slot = _SLOT.pack(proof.serial, proof.segment, proof.offset)
    return SECTOR * (1 + proof.serial % 2), slot + _digest(proof.nonce, b"slot", slot)


def unpack_proof(raw: bytes) -> JournalProof:
    """The content of a proof's file. Raises FormatError if it is damaged."""
    head = raw[: _VERSION.size + NONCE_BYTES]
    nonce = head[_VERSION.size :]
    if (
        len(raw) < 3 * SECTOR
        or not head.startswith(_VERSION.pack(_PROOF_MAGIC, FORMAT))
        or raw[len(head) : len(head) + _DIGEST_BYTES] != _digest(nonce, head)
    ):
        raise FormatError("the proof of its last sync is damaged")
    slots = [_unpack_slot(nonce, raw[start : start + SECTOR]) for start in (SECTOR, 2 * SECTOR)]
    return max(slots, key=lambda proof: proof.serial)


def _unpack_slot(nonce: bytes, sector: bytes) -> JournalProof:
    slot = sector[: _SLOT.size]
    if not any(sector):
        return JournalProof(nonce)
    if sector[_SLOT.size : _SLOT.size + _DIGEST_BYTES] != _digest(nonce, b"slot", slot):
        raise FormatError("the proof of its last sync is damaged")
    return JournalProof(nonce, *_SLOT.unpack(slot))


# Segments


def header_size(damage: str) -> int:
    """Bytes of a header with that damage text."""
    return _HEADER.size + len(damage.encode()) + _DIGEST_BYTES


def pack_header(header: Header) -> bytes:
    """The first bytes of a segment."""
    damage = header.damage.encode()
    packed = _HEADER.pack(
        _SEGMENT_MAGIC,
        FORMAT,
        header.nonce,
        header.number,
        *header.identity,
        header.base,
        len(damage),
    )
    return packed + damage + _digest(header.nonce, packed, damage)


def unpack_header(raw: bytes) -> Header:
    """The header of a segment. Raises FormatError if it is damaged."""
    if len(raw) < _HEADER.size:
        raise FormatError("it is too short")
    magic, version, nonce, number, inode, generation, base, length = _HEADER.unpack_from(raw)
    end = _HEADER.size + length
    if (
        magic != _SEGMENT_MAGIC
        or version != FORMAT
        or raw[end : end + _DIGEST_BYTES] != _digest(nonce, raw[:end])
    ):
        raise FormatError("its first bytes are damaged")
    damage = raw[_HEADER.size : end].decode(errors="replace")
    return Header(nonce, number, (inode, generation), base, damage)


def pack_frame(header: Header, offset: int, kind: JournalFrameKind, content: bytes) -> bytes:
    """A frame that begins `offset` bytes after the start of its segment."""
    head = _FRAME.pack(_MARK, kind, len(content))
    place = _SLOT.pack(header.number, offset, kind)
    return b"".join((head, _digest(header.nonce, place, head, content), content))


def pack_records(records: Sequence[bytes]) -> bytes:
    """The content of a frame of records."""
    return b"".join(part for r in records for part in (_RECORD.pack(len(r)), r))


def _unpack_records(content: bytes) -> Iterator[bytes]:
    start = 0
    while start < len(content):
        if len(content) - start < _RECORD.size:
            raise FormatError("records of the wrong length")
        (length,) = _RECORD.unpack_from(content, start)
        start += _RECORD.size
        if len(content) - start < length:
            raise FormatError("records of the wrong length")
        yield content[start : start + length]
        start += length


def _frame_at(header: Header, raw: bytes, offset: int) -> tuple[int, memoryview] | None:
    """Kind and content of the frame that begins there, if one does."""
    start = offset + _FRAME_BYTES
    if start > len(raw):
        return None
    mark, kind, length = _FRAME.unpack_from(raw, offset)
    if mark != _MARK or length > len(raw) - start:
        return None
    content = memoryview(raw)[start : start + length]
    head = raw[offset : offset + _FRAME.size]
    place = _SLOT.pack(header.number, offset, kind)
    if raw[start - _DIGEST_BYTES : start] != _digest(header.nonce, place, head, content):
        return None
    return kind, content


def read_frames(header: Header, raw: bytes) -> Frames:
    """All frames of a segment, up to the first place without one. Raises FormatError if a frame is intact but its
    content is invalid.
    """
    offset = header_size(header.damage)
    snapshot: bytes | None = None
    records: list[bytes] = []
    while (frame := _frame_at(header, raw, offset)) is not None:
        kind, content = frame
        if kind == JournalFrameKind.SNAPSHOT:
            snapshot = bytes(content)
            records.clear()
        elif kind == JournalFrameKind.RECORDS:
            records += _unpack_records(bytes(content))
        else:
            raise FormatError(f"unknown frame kind {kind}")
        offset += _FRAME_BYTES + len(content)
    torn = offset < len(raw)
    beyond = torn and _has_frame_after(header, raw, offset)
    return Frames(snapshot, tuple(records), offset, torn, beyond)


def _has_frame_after(header: Header, raw: bytes, offset: int) -> bool:
    # A frame is written after the one before was synced, so a later frame proves that.
    while (offset := raw.find(_MARK, offset + 1)) >= 0:
        if _frame_at(header, raw, offset) is not None:
            return True
    return False


def check_format(where: str, found: object, reads: int) -> None:
    """Raises ConfigurationError if the format `found` is above `reads`, the highest that this program reads."""
    if type(found) is int and found > reads:
        raise ConfigurationError(
            f"{where} has format {found}, and this program reads format {reads}: start the newer "
            "program that wrote it"
        )
