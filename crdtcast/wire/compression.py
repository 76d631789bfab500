"""Compression of long frames, with zstd (RFC 8878). Optional: without the package `zstandard` peers are not offered it.
Sans-I/O.

A compressed body is one zstd frame instead of a msgpack list; the first bytes distinguish them.
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
"""Most bytes of a decompressed body. Longer bodies go in sections, each compressed separately, so that a few bytes of
a peer never cost more than that.
"""
_LEVEL = 1


def available() -> bool:
    """Whether this installation can compress."""
    return zstandard is not None


class Compressor:
    """Compresses all that one node sends. Not thread-safe."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)

    def compressed(self, body: bytes) -> bytes:
        """`body` compressed, or unchanged if that saves less than an eighth."""
        packed: bytes = self._compressor.compress(body)
        return packed if len(packed) * 8 < len(body) * 7 else body


def decompressed(body: bytes, limit: int) -> bytes:
    """The inverse of `Compressor.compressed`. Raises RemoteProtocolError if `body` is not a zstd frame, or claims to be
    longer than `limit`, which is checked before memory is allocated.
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
