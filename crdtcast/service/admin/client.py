"""The operator's end of an admin socket."""

import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from crdtcast.exceptions import LocalProtocolError, RemoteProtocolError, UnusableInputError
from crdtcast.service.admin.lines import Lines, be_greeted
from crdtcast.service.admin.sockets import connect, is_own
from crdtcast.service.settings import socket_directory
from crdtcast.transport.link import STREAM_ERRORS

_PATIENCE = 5.0


class Operator:
    """A connection to one node. node: its name."""

    def __init__(self, lines: Lines, node: str, place: str) -> None:
        self.node = node
        self._lines = lines
        self._place = place

    async def ask(
        self, do: str, *, tell: Callable[[str], None] = lambda _: None, **more: Any
    ) -> Any:
        """The node's answer. Raises LocalProtocolError with the node's reason if it refuses, and UnusableInputError if
        the connection has ended.

        tell: called with what the node waits for meanwhile.
        """
        try:
            await self._lines.send({"do": do, **more})
            while (answer := await self._lines.receive()) is not None and "waits" in answer:
                tell(str(answer["waits"]))
        except STREAM_ERRORS as error:
            raise UnusableInputError(
                f"node {self.node!r} at {self._place} closed the connection"
            ) from error
        if answer is None:
            raise UnusableInputError(f"node {self.node!r} at {self._place} has stopped")
        if answer.get("ok") is not True:
            raise LocalProtocolError(str(answer.get("error")))
        return answer.get("result")


@asynccontextmanager
async def operator(place: str, secrets: Sequence[bytes] = ()) -> AsyncIterator[Operator]:
    """Connect to the node at that path or address. Raises UnusableInputError, which says what to do, if that fails."""
    stream = await connect(place)
    try:
        lines = Lines(stream)
        try:
            with trio.fail_after(_PATIENCE):
                name = await be_greeted(lines, secrets)
        except trio.TooSlowError as error:
            raise UnusableInputError(
                f"{place} does not answer: the process may be stopped (SIGSTOP) or overloaded"
            ) from error
        except (RemoteProtocolError, *STREAM_ERRORS) as error:
            raise UnusableInputError(f"cannot talk to the node at {place}: {error}") from error
        yield Operator(lines, name, place)
    finally:
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(stream)


def find(node: str | None, place: str | None) -> str:
    """The address to connect to: `place`, the node's name (NAME or GROUP.NAME), or this user's only node.

    Raises UnusableInputError if no node matches, or several do.
    """
    if place is not None:
        return place
    directory = Path(socket_directory())
    if directory.is_dir() and not is_own(directory):
        raise UnusableInputError(
            f"cannot trust {directory}: other users may write to it and impersonate a node: "
            "remove it, or set --admin to the node's address"
        )
    found = sorted(directory.glob("*.sock")) if directory.is_dir() else []
    if node is not None:
        found = [path for path in found if node in (path.stem, path.stem.rpartition(".")[2])]
    if len(found) > 1:
        found = [path for path in found if _is_alive(path)]
    if len(found) == 1:
        return os.fspath(found[0])
    names = ", ".join(path.stem for path in found)
    wanted = "node of this user" if node is None else f"node {node!r} of this user"
    raise UnusableInputError(
        f"several nodes run here ({names}): choose one with --node GROUP.NAME"
        if found
        else f"no {wanted} has a socket in {directory}: start it, or set --admin to its address"
    )


def _is_alive(path: Path) -> bool:
    """Whether a process listens there: a node that was killed leaves its socket behind."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(os.fspath(path)) == 0
