"""Where operators connect: a Unix socket of this user, or a port of this machine."""

import os
import socket
import stat
from pathlib import Path

import trio

from crdtcast.exceptions import ConfigurationError, UnusableInputError
from crdtcast.service.settings import is_path
from crdtcast.transport.options import parse_address
from crdtcast.transport.tcp import listen

_PATIENCE = 5.0


async def listen_at(place: str) -> trio.SocketListener:
    """Listen at a path or at `host:port`. Raises ConfigurationError if that fails.

    Replaces a socket on which no process listens any more. The file's mode is 0600; a missing directory is created with
    0700.
    """
    if not is_path(place):
        return (await listen(parse_address(place)))[0]
    path = Path(place)
    if len(os.fsencode(path)) > 100:
        raise ConfigurationError(
            f"cannot listen at {path}: a socket path has at most 100 bytes: choose a shorter one"
        )
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not is_own(path.parent):
            raise ConfigurationError(
                f"cannot listen at {path}: other users may write to its directory: choose another "
                "path"
            )
        if await _answers(path):
            raise ConfigurationError(
                f"cannot listen at {path}: another node listens there: stop it, or give this node "
                "another name or admin path"
            )
        if _is_taken(path):
            raise ConfigurationError(
                f"cannot listen at {path}: the path exists and is not a socket: choose another "
                "admin path"
            )
        remove(place)
        listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            await listener.bind(place)
        finally:
            os.umask(before)
        listener.listen(64)
    except OSError as error:
        why = error.strerror or error
        raise ConfigurationError(
            f"cannot listen at {path}: {why}: choose an admin path that this user may write to"
        ) from error
    return trio.SocketListener(listener)


def is_own(directory: Path) -> bool:
    """Whether no other user can replace a socket in it."""
    found = directory.stat()
    shared = found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX
    return found.st_uid in (os.getuid(), 0) and not shared


def _is_taken(path: Path) -> bool:
    """Whether the path exists and is not a socket."""
    return path.exists() and not path.is_socket()


async def _answers(path: Path) -> bool:
    try:
        stream = await trio.open_unix_socket(str(path))
    except OSError:
        return False
    await stream.aclose()
    return True


def remove(place: str) -> None:
    """Delete the socket's file, if it is a path."""
    if is_path(place):
        Path(place).unlink(missing_ok=True)


async def connect(place: str) -> trio.SocketStream:
    """Connect to a node's admin socket. Raises UnusableInputError, which says what to do, if that fails."""
    try:
        with trio.fail_after(_PATIENCE):
            if is_path(place):
                return await trio.open_unix_socket(place)
            return await trio.open_tcp_stream(*parse_address(place))
    except (OSError, trio.TooSlowError) as error:
        why = getattr(error, "strerror", None) or str(error) or "no answer"
        raise UnusableInputError(
            f"no node answers at {place} ({why}): start it, or choose another one with --node or "
            "--admin"
        ) from error
