"""Evicting whoever is silent for too long, if the operator has said so beforehand. Pure."""

from collections.abc import Mapping

from crdtcast.engine import GroupEngine
from crdtcast.incarnation import name_of
from crdtcast.suspicion import Suspect


def to_evict(engine: GroupEngine, suspects: Mapping[str, Suspect], after: float) -> list[str]:
    """Incarnations that this member should ask the others to cut off. suspects: by name. after: seconds
    of silence.

    Only where those who are heard are a majority: what a minority asks for would be done when it is
    back, to members that live. One of them asks for all, the least that holds state.
    """
    members = engine.members
    heard = {me for me in members if name_of(me) not in suspects and me not in engine.victims}
    if len(heard & engine.established) <= len(members) - len(heard):
        return []
    askers = sorted(me for me in heard if not members[me].witness)
    if not askers or askers[0] != engine.me:
        return []
    return [
        me
        for me in sorted(members)
        if me not in engine.victims
        and name_of(me) in suspects
        and suspects[name_of(me)].silence >= after
    ]
