"""Who is known to have delivered something that has not been delivered here. Pure."""

from crdtcast.engine.core import Core
from crdtcast.engine.engine import Engine


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
