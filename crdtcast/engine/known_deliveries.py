"""What other members are known to have delivered: for notices that are weaker than stability, and to see who is behind.

Two questions about a message. *Delivered*: which members have it, by their newest digests. *Settled*: from which
members nothing concurrent with it can come any more. That takes a digest before which all that its sender had sent is
delivered at this member (late adoption). Stability is the second, for all members.
"""

from collections.abc import Collection

from crdtcast.causality.tags import Dot, Vector
from crdtcast.engine.core import Core
from crdtcast.engine.engine import Engine


def delivered(engine: Core, origin: str) -> list[int]:
    """How many messages of `origin` each member, this one included, is known to have delivered; the largest first."""
    counters = [_counter(peer.newest, origin) for peer in engine._peers.values()]
    return _with_own(engine, origin, counters)


def settled(engine: Core, origin: str) -> list[int]:
    """The same with only the digests that count for stability."""
    counters = [_counter(peer.row, origin) for peer in engine._peers.values()]
    return _with_own(engine, origin, counters)


def lacking(engine: Core, dot: Dot) -> list[str]:
    """The other members that are not known to have delivered that message."""
    origin, counter = dot
    peers = engine._peers.values()
    return sorted(p.incarnation for p in peers if _counter(p.newest, origin) < counter)


def told(engine: Core, origin: str) -> dict[str, int]:
    """How many messages of `origin` each other member has delivered, as it said last; those that have said nothing are
    left out.
    """
    peers = [peer for peer in engine._peers.values() if peer.newest is not None]
    return {peer.incarnation: _counter(peer.newest, origin) for peer in peers}


def unsettled(engine: Core, dot: Dot) -> list[str]:
    """The other members from which something concurrent with that message can still come."""
    origin, counter = dot
    peers = engine._peers.values()
    return sorted(p.incarnation for p in peers if _counter(p.row, origin) < counter)


def _counter(vector: Vector | None, origin: str) -> int:
    return 0 if vector is None else vector.get(origin, 0)


def _with_own(engine: Core, origin: str, counters: list[int]) -> list[int]:
    counters.append(engine.durable.get(origin, 0))
    counters.sort(reverse=True)
    return counters


def stable(engine: Core) -> Vector:
    """Up to where everything is stable at this member; `poll_stable` may not have returned all of it yet."""
    if engine._evaluate_now:
        engine._evaluate()
    return engine._stability.stable


def size(engine: Core) -> int:
    """The number of members, including this one and those that have not been heard of yet."""
    return len(engine.names) if isinstance(engine, Engine) else len(engine._peers) + 1


def linked(engine: Core) -> Collection[str]:
    """The other members to which there is a link."""
    return [peer.incarnation for peer in engine._peers.values() if peer.linked]


def ahead(engine: Core) -> set[str]:
    """The members that have reported more than this one has delivered, or nothing yet: by incarnation id,
    or by name if no incarnation of it is known.
    """
    known = engine.vector
    unknown: set[str] = set()
    if isinstance(engine, Engine):
        unknown = set(engine.names) - engine.members.keys()
    for peer in engine._peers.values():
        told = peer.newest
        if told is None or any(n > known.get(o, n) for o, n in told.items()):
            unknown.add(peer.incarnation)
    return unknown
