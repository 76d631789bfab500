"""Evicts members that are silent for too long, if the operator has chosen so; why an eviction waits; which level to
raise to. Pure.
"""

from collections.abc import Collection, Mapping

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


def why_not_evicted(
    engine: GroupEngine, victim: str, before: Collection[str], suspects: Collection[str]
) -> str:
    """What an eviction waits for, and what an operator can do. before: the victim's incarnations. suspects: names."""
    members = set(map(name_of, engine.members))
    unheard = sorted(map(name_of, engine.unheard))
    gone = {me for me in engine.members if name_of(me) in suspects or me in engine.unheard}
    others = ", ".join(sorted(members - set(map(name_of, before))))
    wait = f"of {len(members)} members {len(members - members.intersection(suspects))} are live"
    if unheard:
        wait += f"; {', '.join(unheard)} were let in and never heard of"
    todo = "when more of them are back"
    if (too := gone - engine.victims) and engine.is_majority_without(gone):
        todo += f", or when {', '.join(sorted(map(name_of, too)))}, which are gone, too, are evicted as well"
    return (
        f"{victim} is not cut off yet: the others ({others}) have to say what they have of it, and be a majority "
        f"({wait}). It goes on {todo}; --force, once for each that is gone, does without a majority"
    )


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
