"""One request with very many arguments, out of bytes, by hiredis: thirty times as fast as in Python.

hiredis makes room for as many arguments as a header says; so it gets the bytes when as many have come as so many
arguments take at least, and nothing that looks like another header of that kind. Memory then stays in proportion to
what the client has really sent.
"""

from __future__ import annotations

import re
from collections import Counter

import hiredis

from crdtcast.exceptions import RemoteProtocolError

MANY = 1000
"""Arguments from which on a request is read like this."""
ARGUMENT_BYTES = 8
"""What an argument counts beside its bytes: about its share of a list."""
LARGE_COUNT = re.compile(rb"\n[*%~>|]\d{4}").search
"""Finds what may be the header of a large array in bytes; in the middle of a string it is only a part of that."""
_CARRY = 5  # bytes at the end of a chunk that may begin such a header
_SHORTEST = len(b"$0\r\n\r\n")
_FRAMING = 5  # bytes around an argument, but for the digits of its length, which are fewer than ARGUMENT_BYTES


class LargeArgs(list[bytes]):
    """The arguments of such a request. size: their bytes. raw: the request as it came, which is what a server takes."""

    __slots__ = ("raw", "size")

    def __init__(self, args: list[bytes], size: int, raw: bytes) -> None:
        super().__init__(args)
        self.size = size
        self.raw = raw


def size_of(args: list[bytes]) -> int:
    """Bytes of all arguments."""
    return args.size if type(args) is LargeArgs else sum(map(len, args))


def raw_of(args: list[bytes]) -> bytes | None:
    """The request as it came, if it was kept."""
    return args.raw if type(args) is LargeArgs else None


class LargeRequest:
    """A request whose header said `count`; limit: bytes of all arguments, each with `ARGUMENT_BYTES` more."""

    __slots__ = ("_chunks", "_held", "_limit", "_raw", "_reader", "_tail", "count", "rest")

    def __init__(self, count: int, limit: int) -> None:
        self.count = count
        self._limit = limit
        self._chunks: list[bytes] = []
        self._tail = b"\n"
        self._held: bytearray | None = bytearray(b"*%d\r\n" % count)
        self._raw = len(self._held)
        self._reader = hiredis.Reader()
        self.rest = b""
        """What came behind the request, once it is complete."""

    def is_plain(self, chunk: bytes) -> bool:
        """Whether hiredis may have it; if not, `taken` and the chunk are for the careful parser."""
        return LARGE_COUNT(chunk) is None and LARGE_COUNT(self._tail + chunk[:_CARRY]) is None

    @property
    def taken(self) -> bytes:
        """Everything so far behind the header of the request."""
        return b"".join(self._chunks)

    def feed(self, chunk: bytes) -> LargeArgs | None:
        """The arguments, once they are complete. Raises RemoteProtocolError."""
        self._chunks.append(chunk)
        self._tail = (self._tail + chunk[-_CARRY:])[-_CARRY:]
        self._raw += len(chunk)
        if self._held is not None:
            self._held += chunk
            if len(self._held) < _SHORTEST * self.count:
                return None
            chunk, self._held = bytes(self._held), None
        self._reader.feed(chunk)
        try:
            args = self._reader.gets()
        except hiredis.ProtocolError as error:
            raise RemoteProtocolError(str(error)) from error
        if args is False:
            if self._raw > self._limit + _FRAMING * self.count:
                raise self._too_large()
            return None
        assert isinstance(args, list)
        try:
            size = len(b"".join(args))  # a TypeError unless every argument is a string
        except TypeError:
            raise RemoteProtocolError("expected '$' before each argument") from None
        if size + ARGUMENT_BYTES * len(args) > self._limit:
            raise self._too_large()
        raw = b"".join((b"*%d\r\n" % self.count, *self._chunks))
        self._chunks.clear()
        if self._reader.has_data():
            length = encoded_length(args)
            raw, self.rest = raw[:length], raw[length:]
        return LargeArgs(args, size, raw)

    def _too_large(self) -> RemoteProtocolError:
        return RemoteProtocolError(f"request too large: more than {self._limit} bytes")


def encoded_length(args: list[bytes]) -> int:
    """Bytes of a command in the only form that hiredis accepts (its lengths have no plus sign and no leading zeros)."""
    length = len(str(len(args))) + 3
    for argument, times in Counter(map(len, args)).items():
        length += (argument + len(str(argument)) + 5) * times
    return length
