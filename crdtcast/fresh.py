"""Incarnation ids for lives that begin now: the clock and the randomness that `crdtcast.incarnation` does without."""

import secrets
import time
from collections.abc import Callable

from crdtcast.incarnation import new_incarnation


def wall_clock_us() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000


def wall_clock_ms() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def fresh_incarnation(
    name: str, clock_us: Callable[[], int] = wall_clock_us, previous: str | None = None
) -> str:
    """An incarnation id for a process that begins with nothing, or goes on from a clean stop.

    It is larger than `previous`, the last one known of this node.
    """
    return new_incarnation(name, clock_us(), secrets.randbits(16), previous)
