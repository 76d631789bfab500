"""Comparing replicas while clocks differ: a digest names the horizon up to which it leaves deadlines out."""

from typing import NamedTuple

from .effects import Slot, Value
from .server import Server

BOUND = 2
"""How far a clock in service may be from the true time; further, and the member is out of service."""
MARGIN = 3 * BOUND
"""From the teller's time to the horizon: the clocks' bounds, and some time on the way."""

Held = dict[str, tuple[dict[Slot, Value], int]]


class Digest(NamedTuple):
    """Values at a vector, without the keys whose deadline is not behind the horizon."""

    vector: tuple[int, ...]
    horizon: int
    held: Held


def held_behind(server: Server, horizon: int) -> Held:
    return {
        key: (native.slots, native.deadline)
        for key, native in server.data.items()
        if native.deadline > max(horizon, server.time)
    }


def tell(server: Server) -> Digest:
    horizon = server.time + MARGIN
    return Digest(tuple(server.own.vector), horizon, held_behind(server, horizon))


def differs(server: Server, digest: Digest) -> bool:
    """Whether this replica holds something else. False where nobody can say: other vectors, or a horizon passed."""
    if tuple(server.own.vector) != digest.vector or server.own.lost:
        return False
    return server.time < digest.horizon and held_behind(server, digest.horizon) != digest.held
