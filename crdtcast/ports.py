"""Ports of this machine for processes that are started a moment later."""

import contextlib
import errno
import random
import socket

FIRST, LAST = 20_000, 32_767
"""Below the ports that Linux and macOS give to connections and to port 0, so that no such one takes a free port away
before its process listens there.
"""

_choice = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    """Different TCP ports of 127.0.0.1 that are free now. Another process may still be quicker."""
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
                ports.append(port)
            if len(ports) == count:
                return ports
    raise OSError(errno.EADDRINUSE, f"no {count} free ports from {FIRST} to {LAST} at 127.0.0.1")
