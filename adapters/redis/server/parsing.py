"""Parsers: clients' bytes become commands, a server's bytes become whole replies. This file knows no
sockets.

`RequestParser` has two paths. hiredis takes ordinary chunks. Everything else (the rest of a chunk,
inline commands, large counts, clients that have not authenticated) goes through an incremental
parser. It checks every length as soon as it has the header, so that nothing is buffered for a
request that will be refused.
"""

import math
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import hiredis

from crdtcast.adapters.redis.clients.inline import split_line
from crdtcast.adapters.redis.clients.large_request import (
    ARGUMENT_BYTES,
    LARGE_COUNT,
    MANY,
    LargeRequest,
)
from crdtcast.adapters.redis.server.resp import Raw
from crdtcast.exceptions import RemoteProtocolError

_pack: Callable[[tuple[bytes, ...]], bytes] = hiredis.pack_command  # type: ignore[assignment]

Args = list[bytes]

_PROBED = [secrets.token_hex(16).encode()]
_PROBE = _pack(tuple(_PROBED))
"""A request that no client can guess. Appended to a chunk it shows whether the chunk ended at the end of a request:
only then is the probe the last request that hiredis returns.
"""
_NO_MORE: list[object] = []
"""Returned by hiredis when no further request is complete; an empty request equals it."""
_LISTS = {list}
_BEGINNING = re.compile(rb"\*[^\r]{0,3}\r").match
_MAX_LINE = 64 * 1024
_MAX_HEADER = 32
_READ_ON = 1 << 18
"""Bytes to read at a time while a request with very many arguments arrives."""


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits on one request of one client. Lengths are in bytes; each argument counts eight bytes more."""

    bulk: int = 64 * 1024 * 1024
    arguments: int = 8 * 1024 * 1024
    request: int = 64 * 1024 * 1024


UNAUTHENTICATED = RequestLimits(bulk=16384, arguments=10, request=10 * (16384 + 8))
"""The server's own limits for clients that have not authenticated."""


class FastReader:
    """One hiredis reader for all clients: between two chunks nothing is left in it."""

    __slots__ = ("feed", "gets")

    feed: Callable[[bytes], None]
    gets: Callable[[], Args]

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Drop a partial request in the reader."""
        reader = hiredis.Reader(notEnoughData=_NO_MORE)
        self.feed, self.gets = reader.feed, reader.gets


class RequestParser:
    """Parses one client's bytes into commands.

    `feed` returns the complete commands. After a violation it returns those before it, and `error`
    is the text for the client; do not feed more then. `limits` may change between two calls.
    """

    __slots__ = (
        "_args",
        "_buffer",
        "_busy",
        "_count",
        "_fast",
        "_large",
        "_length",
        "_limits",
        "_on_high",
        "_size",
        "error",
        "missing",
    )

    def __init__(
        self,
        fast: FastReader,
        limits: RequestLimits,
        on_high: Callable[[], None] = lambda: None,
    ) -> None:
        """on_high: called before `feed` returns a word that begins with 0xff, and sometimes without one."""
        self._limits = limits
        self._on_high = on_high
        self.error: str | None = None
        self.missing: int = 0
        """Bytes that are still missing of the bulk string in progress: a hint for the next read."""
        self._fast = fast
        self._busy = True  # unless hiredis may have the next chunk: no request is in progress, and no limit is tight
        self._buffer = bytearray()  # bytes that are not parsed yet
        self._args: Args = []
        self._count = 0  # arguments still missing; 0 between two requests
        self._large: LargeRequest | None = None
        self._length = -1  # of the bulk string in progress; -1 when its header is still missing
        self._size = 0  # bytes of the arguments so far

    def feed(self, chunk: bytes) -> list[Args]:
        """Take bytes of a socket; return the complete commands, lists of at least one argument."""
        if b"\n\xff" in chunk or chunk[0] == 255:
            self._on_high()
        if self._busy or _BEGINNING(chunk) is None or LARGE_COUNT(chunk) is not None:
            if self._large is not None:
                return self._feed_large(chunk)
            self._buffer += chunk
            return self.resume()
        fast = self._fast
        commands: list[Args] = []
        taken = None
        try:
            fast.feed(chunk + _PROBE)
            commands += iter(fast.gets, _NO_MORE)
            b"".join(chain.from_iterable(commands))  # a TypeError unless every argument is a string
            if set(map(type, commands)) == _LISTS:
                if commands[-1] == _PROBED:
                    del commands[-1]
                    return commands
                taken = b"".join(_pack(tuple(command)) for command in commands)
        except (hiredis.ProtocolError, TypeError):
            pass
        fast.renew()
        # A prefix of the chunk: all arguments were bulk strings. The careful parser takes the rest.
        if taken is not None and chunk.startswith(taken):
            self._buffer += memoryview(chunk)[len(taken) :]
            return self._careful(commands, whole=True)
        # Something is unusual: the careful parser starts over and finds out what.
        self._buffer += chunk
        return self._careful([], whole=True)

    @property
    def limits(self) -> RequestLimits:
        """Limits on one request."""
        return self._limits

    @limits.setter
    def limits(self, limits: RequestLimits) -> None:
        self._limits = limits
        self._busy = True  # until `_careful` has looked

    def resume(self) -> list[Args]:
        """Return commands that an earlier `feed` left. It leaves some only while the limits are
        `UNAUTHENTICATED`, since each call returns one command then.
        """
        commands = self._careful([], whole=False)
        if self._limits is UNAUTHENTICATED or self.error is not None or not commands:
            return commands
        if self._buffer:
            rest = bytes(self._buffer)
            if _BEGINNING(rest) is None or LARGE_COUNT(rest) is not None:
                return self._careful(commands, whole=True)
            self._buffer.clear()
            self._busy = False
            return commands + self.feed(rest)
        return commands

    def _careful(self, commands: list[Args], *, whole: bool) -> list[Args]:
        """Parse the buffer: all of it, or only up to the end of the request in progress."""
        buffer = self._buffer
        position = 0
        try:
            while True:
                if self._count:
                    position, complete = self._arguments(position)
                    if not complete:
                        break
                    commands.append(self._args)
                    self._args, self._size = [], 0
                    if not whole:
                        break
                elif position >= len(buffer):
                    break
                elif buffer[position] == 42:
                    header = self._header(position, "too big mbulk count string")
                    if header is None:
                        break
                    text, position = header
                    count = self._checked_count(text)
                    if count >= MANY:
                        self._large = LargeRequest(count, self._limits.request)
                        chunk = bytes(memoryview(buffer)[position:])
                        buffer.clear()
                        return commands + self._feed_large(chunk)
                    self._count = count
                else:
                    end = buffer.find(b"\n", position)
                    if end < 0 or end - position > _MAX_LINE:
                        if end >= 0 or len(buffer) - position > _MAX_LINE:
                            raise RemoteProtocolError("too big inline request")
                        break
                    words = split_line(bytes(buffer[position:end]))
                    position = end + 1
                    if words:
                        if max(words) >= b"\xff":
                            self._on_high()
                        commands.append(words)
                        if not whole:
                            break
        except RemoteProtocolError as violation:
            self.error = f"ERR Protocol error: {violation}"
            buffer.clear()
            self._args = []
            return commands
        del buffer[:position]
        self._busy = bool(self._count or buffer) or self._limits is UNAUTHENTICATED
        self.missing = max(0, self._length + 2 - len(buffer)) if self._length >= 0 else 0
        return commands

    def _feed_large(self, chunk: bytes) -> list[Args]:
        """Continue a request with very many arguments; parse what follows it as usual."""
        assert self._large is not None
        self.missing, self._busy = _READ_ON, True
        if not self._large.is_plain(chunk):
            self._buffer += self._large.taken + chunk
            self._count, self._large = self._large.count, None
            return self._careful([], whole=True)
        try:
            args = self._large.feed(chunk)
        except RemoteProtocolError as violation:
            self.error = f"ERR Protocol error: {violation}"
            return []
        if args is None:
            return []
        rest, self._large = self._large.rest, None
        self.missing, self._busy = 0, False
        return [args, *(self.feed(rest) if rest else ())]

    def _arguments(self, position: int) -> tuple[int, bool]:
        """Parse the bulk strings of the request in progress that have arrived."""
        buffer, args = self._buffer, self._args
        available = len(buffer)
        while self._count:
            if self._length < 0:
                if position >= available:
                    return position, False
                if buffer[position] != 36:
                    raise RemoteProtocolError(f"expected '$', got {_shown(buffer[position])}")
                header = self._header(position, "too big bulk count string")
                if header is None:
                    return position, False
                text, position = header
                self._length = self._checked_length(text)
            end = position + self._length
            if end + 2 > available:
                return position, False
            args.append(bytes(buffer[position:end]))
            self._size += self._length + ARGUMENT_BYTES
            position = end + 2
            self._length = -1
            self._count -= 1
        return position, True

    def _header(self, position: int, too_long: str) -> tuple[bytes, int] | None:
        """The number after a type byte, and the position after its line; None if the line is incomplete."""
        buffer = self._buffer
        end = buffer.find(b"\r\n", position, position + _MAX_HEADER)
        if end < 0:
            if len(buffer) - position >= _MAX_HEADER:
                raise RemoteProtocolError(too_long)
            return None
        return bytes(buffer[position + 1 : end]), end + 2

    def _checked_count(self, text: bytes) -> int:
        count = _number(text)
        if count is None:
            raise RemoteProtocolError("invalid multibulk length")
        most = min(self._limits.arguments, self._limits.request // ARGUMENT_BYTES)
        if count > most:
            if self._limits is UNAUTHENTICATED:
                raise RemoteProtocolError("unauthenticated multibulk length")
            raise RemoteProtocolError(
                f"invalid multibulk length: {count} arguments, the limit is {most}"
            )
        return max(0, count)

    def _checked_length(self, text: bytes) -> int:
        length, limits = _number(text), self._limits
        if length is None or length < 0:
            raise RemoteProtocolError("invalid bulk length")
        if length > limits.bulk or self._size + length + ARGUMENT_BYTES > limits.request:
            if limits is UNAUTHENTICATED:
                raise RemoteProtocolError("unauthenticated bulk length")
            if length > limits.bulk:
                raise RemoteProtocolError(
                    f"invalid bulk length: {length} bytes, the limit is {limits.bulk}"
                )
            raise RemoteProtocolError(f"request too large: more than {limits.request} bytes")
        return length


def _number(text: bytes) -> int | None:
    digits = text[1:] if text[:1] == b"-" else text
    return int(text) if digits.isdigit() and len(digits) < 20 else None


def _shown(byte: int) -> str:
    return f"'{chr(byte)}'" if 32 <= byte < 127 else f"byte {byte}"


class ReplySplitter:
    """Cuts a server's bytes into whole replies without decoding them, so that they can be relayed unchanged.

    Attributes stay with the reply that they precede. Push messages are dropped: they answer no
    command. Raises RemoteProtocolError if a byte begins no reply; the connection is unusable then.
    """

    __slots__ = ("_buffer", "_open", "_position", "_start", "dropped", "most")

    def __init__(self) -> None:
        self.most: int = 0
        """Bytes to keep of the reply in progress; 0: all. Of a longer one only the end is returned."""
        self.dropped: int = 0
        """Bytes dropped of the reply in progress, or of the one just completed."""
        self._buffer = bytearray()
        self._start = 0  # of the reply in progress
        self._position = 0  # parsed up to here
        self._open: list[
            int
        ] = []  # elements still missing, per open aggregate, the outermost first

    def feed(self, chunk: bytes) -> None:
        """Take bytes of the socket."""
        if self._position - self._start > self.most > 0:
            self.dropped += self._position - self._start
            self._start = self._position
        if self._start:
            del self._buffer[: self._start]
            self._position -= self._start
            self._start = 0
        self._buffer += chunk

    def enter(self) -> int | None:
        """Enter the array that comes next, so that its elements are the next replies. Call it between two replies.

        Returns the number of elements; -1 if the next reply is not an array, or null; None if that is not known yet.
        """
        self.dropped = 0
        buffer, start = self._buffer, self._start
        end = buffer.find(b"\r\n", start)
        if end < 0:
            return None
        if buffer[start] != 42:
            return -1
        count = _header_number(buffer, start, end)
        if count >= 0:
            self._start = self._position = end + 2
        return count

    def next(self) -> Raw | None:
        """The next whole reply; None if it is not complete yet."""
        if not self._open:
            self.dropped = 0
        while self._advance():
            reply = Raw(self._buffer[self._start : self._position])
            self._start = self._position
            if reply[0] != 62:
                return reply
        return None

    def _advance(self) -> bool:
        buffer, position, missing = self._buffer, self._position, self._open
        available = len(buffer)
        at_most = math.inf  # try another run of short strings only with at most so many missing
        while position < available:
            end = buffer.find(b"\r\n", position)
            if end < 0:
                break
            sign = buffer[position]
            following = end + 2
            if sign == 36 and missing and _RUN < missing[-1] <= at_most:
                if run := _SHORT_STRINGS(buffer, position):
                    position = run.end()
                    missing[-1] -= _RUN
                    continue
                at_most = missing[-1] - _RUN
            if sign in _BULK:
                length = _header_number(buffer, position, end)
                if length >= 0:
                    following += length + 2
                    if following > available:
                        break
            elif sign in _AGGREGATE:
                count = _header_number(buffer, position, end) * _AGGREGATE[sign]
                position = following
                if sign == 124:  # attributes do not count as an element
                    missing.append(count + 1)
                    continue
                if count > 0:
                    missing.append(count)
                    continue
            elif sign not in _SIMPLE:
                raise RemoteProtocolError(f"the server's reply begins with {_shown(sign)}")
            position = following
            while missing:
                missing[-1] -= 1
                if missing[-1]:
                    break
                missing.pop()
            else:
                self._position = position
                return True
        self._position = position
        return False


def _header_number(buffer: bytearray, position: int, end: int) -> int:
    try:
        return int(buffer[position + 1 : end])
    except ValueError:
        raise RemoteProtocolError("the server's reply has an invalid length") from None


def _short_strings(count: int) -> re.Pattern[bytes]:
    """Matches so many bulk strings of 1 to 79 bytes in a row, at a fifth of the cost of parsing each."""
    by_first_digit = [
        b"%d(?:%b)"
        % (
            first,
            b"|".join(
                [
                    rb"\r\n.{%d}" % first,
                    *(
                        rb"%d\r\n.{%d}" % (second, 10 * first + second)
                        for second in range(10)
                        if first < 8
                    ),
                ]
            ),
        )
        for first in range(1, 10)
    ]
    return re.compile(rb"(?:\$(?:%b)\r\n){%d}" % (b"|".join(by_first_digit), count), re.DOTALL)


_RUN = 256
_SHORT_STRINGS = _short_strings(_RUN).match
_BULK = frozenset(b"$!=")
_SIMPLE = frozenset(b"+-:_,#(")
_AGGREGATE = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2, ord("|"): 2}
