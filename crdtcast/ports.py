"""Free ports of this machine, for processes that start a moment later."""

import contextlib
import errno
import math
import os
import random
import socket
from collections import deque
from collections.abc import Iterator

FIRST, LAST = 20_000, 32_767
"""Below the ports that Linux and macOS use for outgoing connections and for port 0, so that neither takes a free port
before its process listens there.
"""

_MOST_CLAIMS = 64

_choice = random.SystemRandom()
_claims: deque[int] = deque()
"""Descriptors of UDP sockets on the ports returned last, so that other callers on this machine get different ones."""


def free_ports(count: int) -> list[int]:
    """Different TCP ports of 127.0.0.1 that are free now. A process that chooses in another way may take them first."""
    with contextlib.ExitStack() as open_together:
        ports: list[int] = []
        for port in _every_port():
            probe = open_together.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                if _claim(port):
                    ports.append(port)
            if len(ports) == count:
                return ports
    raise OSError(
        errno.EADDRINUSE, f"found no {count} free ports from {FIRST} to {LAST} at 127.0.0.1"
    )


def _every_port() -> Iterator[int]:
    """Each port once, in equal steps of a random width from a random one: to shuffle all takes longer than to bind."""
    count = LAST + 1 - FIRST
    port, step = _choice.randrange(count), 0
    while math.gcd(step, count) != 1:
        step = _choice.randrange(1, count)
    for _ in range(count):
        yield FIRST + port
        port = (port + step) % count


def _claim(port: int) -> bool:
    """Claim the port, unless another process has. Returns whether that succeeded; the claim lasts for a while."""
    with socket.socket(type=socket.SOCK_DGRAM) as claim:
        try:
            claim.bind(("127.0.0.1", port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        _claims.append(claim.detach())
    if len(_claims) > _MOST_CLAIMS:
        os.close(_claims.popleft())
    return True
