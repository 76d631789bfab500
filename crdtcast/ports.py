"""Ports of this machine for processes that are started a moment later."""

import contextlib
import errno
import os
import random
import socket
from collections import deque

FIRST, LAST = 20_000, 32_767
"""Below the ports that Linux and macOS give to connections and to port 0, so that no such one takes a free port away
before its process listens there.
"""

_MOST_CLAIMS = 64

_choice = random.SystemRandom()
_claims: deque[int] = deque()
"""Descriptors of UDP sockets on the ports that were given last: so others who ask here get different ones."""


def free_ports(count: int) -> list[int]:
    """Different TCP ports of 127.0.0.1 that are free now. A process that chooses in another way may be quicker."""
    with contextlib.ExitStack() as open_together:
        ports: list[int] = []
        for port in _choice.sample(range(FIRST, LAST + 1), LAST + 1 - FIRST):
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


def _claim(port: int) -> bool:
    """Whether nobody else has claimed the port: then it is ours for a while."""
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
