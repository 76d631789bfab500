"""Monitor of a gateway's server: it sends INFO each second, over a separate connection.

No large reply delays the answer there. So a server that does not answer for long is dead or unreachable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import trio

from crdtcast.adapters.redis.server.address import ServerAddress
from crdtcast.adapters.redis.server.connection import ServerConnection
from crdtcast.adapters.redis.server.poller import Poller
from crdtcast.exceptions import ServerError

Sections = dict[str, dict[str, str]]
"""Fields of INFO, by section. Names of sections are in lower case, names of fields as the server writes them."""

PATIENCE_SECONDS = 30.0
_EVERY_SECONDS = 1.0
LEAST_PATIENCE_SECONDS = 2 * _EVERY_SECONDS
"""With less, the monitor would declare a server dead before it asks again."""


def parse_sections(text: bytes) -> Sections:
    """The sections of an INFO reply; lines before the first heading are dropped."""
    sections: Sections = {}
    fields: dict[str, str] = {}
    for line in text.decode("utf-8", "surrogateescape").splitlines():
        name, colon, value = line.partition(":")
        if line[:2] == "# ":
            fields = sections.setdefault(line[2:].strip().lower(), {})
        elif colon:
            fields[name] = value
    return sections


class ServerMonitor:
    """Keeps `sections`, the server's last INFO, at most a second old while it answers.

    told: called with each one.
    dead: called once, with the reason, if the server has not answered for `patience` seconds.
    """

    def __init__(
        self,
        poller: Poller,
        address: ServerAddress,
        *,
        told: Callable[[Sections], None],
        dead: Callable[[str], None],
        patience: float,
    ) -> None:
        self._poller = poller
        self._address = address
        self._told = told
        self._dead = dead
        self._patience = patience
        self.sections: Sections = {}

    async def run(self) -> None:
        """Ask until cancelled, or until the server is dead."""
        with trio.move_on_after(self._patience) as scope:
            while True:
                with contextlib.suppress(ServerError):
                    connection = await ServerConnection.open(self._poller, self._address)
                    try:
                        await self._ask(connection, scope)
                    finally:
                        connection.close()
                await trio.sleep(_EVERY_SECONDS)
        if scope.cancelled_caught:
            self._dead(f"no answer for {self._patience:.0f} s")

    async def _ask(self, connection: ServerConnection, scope: trio.CancelScope) -> None:
        while True:
            (reply,) = await connection.call([("INFO", "all")])
            if not isinstance(reply, Exception):
                scope.deadline = trio.current_time() + self._patience
                self.sections = parse_sections(reply)
                self._told(self.sections)
            await trio.sleep(_EVERY_SECONDS)
