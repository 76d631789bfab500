"""Notifies the service manager that has started this process: it serves, it is alive, it stops.

The protocol is sd_notify(3): datagrams to the socket of `NOTIFY_SOCKET`. Without that variable nothing is sent.
"""

import logging
import os
import socket
from collections.abc import Mapping

import trio

_LOGGER = logging.getLogger("crdtcast")


class Supervisor:
    """Sends nothing if the environment names no socket."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._place = environment.get("NOTIFY_SOCKET", "")
        self._period = _watchdog(environment)

    def ready(self) -> None:
        """The process serves."""
        self._tell("READY=1\nSTATUS=serves")

    def stopping(self) -> None:
        """The process is about to stop."""
        self._tell("STOPPING=1\nSTATUS=stops")

    async def keep_alive(self) -> None:
        """Report while this runs that the event loop turns: at once, then twice in the allowed time."""
        self._tell("STATUS=starts")
        while self._period:
            self._tell("WATCHDOG=1")
            await trio.sleep(self._period / 2)

    def _tell(self, what: str) -> None:
        if not self._place:
            return
        address = "\0" + self._place[1:] if self._place.startswith("@") else self._place
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as teller:
                teller.setblocking(False)
                teller.sendto(what.encode(), address)
        except OSError as error:
            _LOGGER.warning(
                "cannot notify the service manager at %s: %s", self._place, error.strerror or error
            )


def _watchdog(environment: Mapping[str, str]) -> float:
    """Seconds within which the manager expects a sign of life; 0 if it expects none."""
    told, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID")
    if not told.isdecimal() or process not in (None, str(os.getpid())):
        return 0.0
    return int(told) / 1_000_000
