"""What the other members are known to have delivered: for notices that are weaker than stability, and who is behind.

Two questions, one list each. *Delivered*: who has the message, as its newest digest says. *Settled*: from whom can
nothing concurrent with it come any more; that takes a digest before which all that its sender had sent has been
delivered here (late adoption). Stability is the second, of all members.
"""

from collections.abc import Collection

from crdtcast.causality.tags import Dot, Vector
from crdtcast.engine.core import Core
from crdtcast.engine.engine import Engine


def delivered(engine: Core, origin: str) -> list[int]:
    """For each member, this one included, how many messages of `origin` it has delivered for all that is known here;
    the largest number first.
    """
    counters = [_counter(peer.newest, origin) for peer in engine._peers.values()]
    return _with_own(engine, origin, counters)


def settled(engine: Core, origin: str) -> list[int]:
    """The same with the digests only that count for stability."""
    counters = [_counter(peer.row, origin) for peer in engine._peers.values()]
    return _with_own(engine, origin, counters)


def lacking(engine: Core, dot: Dot) -> list[str]:
    """The other members that have not delivered that message, for all that is known here."""
    origin, counter = dot
    peers = engine._peers.values()
    return sorted(p.incarnation for p in peers if _counter(p.newest, origin) < counter)


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
    """Up to where everything is stable here; the notices for it may still have to be taken by `poll_stable`."""
    if engine._evaluate_now:
        engine._evaluate()
    return engine._stability.stable


def size(engine: Core) -> int:
    """The number of members, this one included, also of those that have not been heard of yet."""
    return len(engine.names) if isinstance(engine, Engine) else len(engine._peers) + 1


def linked(engine: Core) -> Collection[str]:
    """The other members to which there is a link."""
    return [peer.incarnation for peer in engine._peers.values() if peer.linked]


def ahead(engine: Core) -> set[str]:
    """The members that have told of more than is delivered here, or of nothing yet: by incarnation id,
    or by name if none of that name is known.
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
