"""Long frames in less room, with zstd (RFC 8878). Optional: without the package `zstandard` nothing is
offered to peers. Sans-I/O.

A compressed body is one zstd frame in the place of the msgpack list; the first bytes tell them apart.
"""

from typing import Any

from crdtcast.exceptions import RemoteProtocolError

try:
    import zstandard
except ImportError:  # the extra `zstd` is not installed
    zstandard: Any = None  # type: ignore[no-redef]

MAGIC = b"\x28\xb5\x2f\xfd"
"""No msgpack list begins with these."""
WORTHWHILE = 4096
"""Bytes of a body from which on compression is tried."""
MOST = 256 * 1024 + 256
"""Bytes that a compressed body may become: longer ones go in sections, each compressed by itself, so that a few bytes
of a peer never cost more than that.
"""
_LEVEL = 1


def available() -> bool:
    """Whether this installation can compress."""
    return zstandard is not None


class Compressor:
    """For all that one node sends. Not for several threads."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)

    def compressed(self, body: bytes) -> bytes:
        """`body` in less room, or as it is when that gains less than an eighth of it."""
        packed: bytes = self._compressor.compress(body)
        return packed if len(packed) * 8 < len(body) * 7 else body


def decompressed(body: bytes, limit: int) -> bytes:
    """The inverse of `Compressor.compressed`. RemoteProtocolError for what is no zstd frame, or claims to be longer
    than `limit`: that is checked before any room is taken.
    """
    try:
        claimed = zstandard.get_frame_parameters(body)
        if not 0 < claimed.content_size <= limit or claimed.window_size > max(limit, 2**20):
            raise RemoteProtocolError(
                f"a compressed frame that claims {claimed.content_size:,} bytes, where {limit:,} are allowed"
            )
        unpacked: bytes = zstandard.ZstdDecompressor().decompress(
            body, max_output_size=claimed.content_size, allow_extra_data=False
        )
    except zstandard.ZstdError as error:
        raise RemoteProtocolError(f"an invalid compressed frame: {error}") from error
    return unpacked
