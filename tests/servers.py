"""Servers that the tests of one worker use one after the other, empty each time: a start costs more than most tests do.

A test that configures its server, or loses its data, has one of its own (`start_server`).
"""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.adapters.redis.server.raw_client import RawClient

AUDIT_EVENT = "crdtcast.tests.borrow"
"""Who borrows depends on a process as much as who starts one, so `conftest.py` wants the same mark."""

_idle: list[EmbeddedServer] = []
_started: list[EmbeddedServer] = []
_directories = contextlib.ExitStack()


def borrow(appendfsync: str = "everysec") -> EmbeddedServer:
    """A server that is running and empty, until `give_back`."""
    sys.audit(AUDIT_EVENT)
    for server in _idle:
        if server.appendfsync == appendfsync:
            _idle.remove(server)
            break
    else:
        directory = _directories.enter_context(tempfile.TemporaryDirectory(prefix="crdtcast-"))
        server = start_server(Path(directory), appendfsync=appendfsync)
        _started.append(server)
    if server.process.poll() is not None:
        server.restart()
    with RawClient(server.port) as client:
        client.call("FLUSHALL")
    return server


def give_back(server: EmbeddedServer) -> None:
    """The server is free for another test, running or not."""
    _idle.append(server)


@contextlib.contextmanager
def borrowed(appendfsync: str = "everysec") -> Iterator[EmbeddedServer]:
    """`borrow` for a block."""
    server = borrow(appendfsync)
    try:
        yield server
    finally:
        give_back(server)


def stop_all() -> None:
    """End every server, at the end of the run."""
    for server in _started:
        server.stop()
    _directories.close()
