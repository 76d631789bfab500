"""Evicts members that are silent for too long, if the operator has chosen so; which level to raise to. Pure."""

from collections.abc import Mapping

from crdtcast.engine import GroupEngine
from crdtcast.exceptions import LocalProtocolError
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


def level_to_raise(engine: GroupEngine, level: int | None = None) -> int:
    """The format level to ask for: that one, or the greatest that all members read.

    Raises LocalProtocolError, with the members that must be upgraded, if all read the present one only.
    """
    if level is not None:
        return level
    if engine.raisable > engine.agreed:
        return engine.raisable
    if engine.reads.highest <= engine.agreed:
        raise LocalProtocolError(
            f"nothing to raise: the group's format level is {engine.agreed}, the highest that this program reads"
        )
    lacking = ", ".join(map(name_of, engine.lacking_level(engine.agreed + 1)))
    raise LocalProtocolError(
        f"the group's format level stays {engine.agreed}: upgrade {lacking} first, or evict those that are gone"
    )
