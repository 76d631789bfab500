"""A client that sends words and returns the replies unchanged: no retries, no conversions, RESP2."""

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import hiredis

from crdtcast.exceptions import ServerError


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """An error as a reply to a command."""

    text: str


Reply: TypeAlias = "bytes | int | list[Reply] | ErrorReply | None"


class RawClient:
    """One connection to a gateway or server on 127.0.0.1. `timeout` bounds each reply, in seconds."""

    def __init__(self, port: int, timeout: float = 30.0) -> None:
        try:
            self.socket: socket.socket = socket.create_connection(("127.0.0.1", port), timeout)
        except OSError as error:
            raise ServerError(f"no server answers on port {port}: {error}") from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader: hiredis.Reader = hiredis.Reader()

    def call(self, *words: bytes | str) -> Reply:
        """The reply to one command. Raises ServerError if none comes."""
        (reply,) = self.pipeline([words])
        return reply

    def pipeline(self, commands: Sequence[Sequence[bytes | str]]) -> list[Reply]:
        """The replies to several commands, sent at once. Raises ServerError if one does not come."""
        try:
            self.socket.sendall(b"".join(packed(words) for words in commands))
            return [self.receive() for _ in commands]
        except OSError as error:
            reason = str(error) or type(error).__name__
            raise ServerError(f"no reply to {commands[0][0]!r}: {reason}") from error

    def receive(self) -> Reply:
        """The next reply."""
        while True:
            reply = self.reader.gets()
            if reply is not False:
                return as_reply(reply)
            piece = self.socket.recv(1 << 16)
            if not piece:
                raise ConnectionError("the connection was closed")
            self.reader.feed(piece)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def packed(words: Sequence[bytes | str]) -> bytes:
    """A command as an array of bulk strings."""
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"".join(
        (b"*%d\r\n" % len(parts), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts))
    )


def as_reply(parsed: Any) -> Reply:
    """A reply as hiredis parses it, converted to `Reply`."""
    if isinstance(parsed, hiredis.ReplyError):
        return ErrorReply(str(parsed))
    if isinstance(parsed, list):
        return [as_reply(item) for item in parsed]
    if isinstance(parsed, str):
        return parsed.encode()
    assert parsed is None or isinstance(parsed, bytes | int)
    return parsed
