"""Decides which members to evict for their silence, if the operator has chosen so, and which level to raise to;
explains why an eviction waits. Pure.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from crdtcast.causality.member_id import name_of
from crdtcast.engine import GroupEngine
from crdtcast.engine.failure_detector import Suspect
from crdtcast.exceptions import LocalProtocolError


def to_evict(engine: GroupEngine, suspects: Mapping[str, Suspect], after: float) -> list[str]:
    """Incarnations that this member should request to evict, in one change.

    suspects: by name.
    after: seconds of silence.
    Empty unless the members that are heard are a majority of the voters: a minority's request would be carried out
    when it is back, against members that live. Only the lowest heard member that holds state requests, for all.
    """
    members = engine.members
    heard = {me for me in members if name_of(me) not in suspects and me not in engine.victims}
    if not engine.view.is_quorum(heard):
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
    engine: GroupEngine,
    wanted: Collection[str],
    suspects: Collection[str],
    described: Callable[[Sequence[str]], str],
) -> str:
    """What an eviction waits for, and what an operator can do.

    wanted: incarnations.
    suspects: names.
    described: text for incarnations.
    """
    names = sorted(map(name_of, wanted))
    waits_for = engine.waits_for()
    silent = f"{described(waits_for)} {'does' if len(waits_for) == 1 else 'do'} not answer"
    forced = any(engine.wants.victims.values())
    said = f"{', '.join(names)} {_is(names)} not evicted yet; the request stays"
    if others := [who for who in waits_for if who not in engine.victims]:
        said += f": waiting for an answer of {described(others)}"
        if gone := sorted({name_of(who) for who in others} & set(suspects)):
            said += (
                f". If {', '.join(gone)} {_is(gone)} dead, too, evict all in one change: "
                f"`crdtcast evict {' '.join(names + gone)}{' --force' if forced else ''}`"
            )
    elif waits_for and forced:
        rest = sorted({*names, *map(name_of, waits_for)})
        said += f": {silent}. Evict all in one change: `crdtcast evict {' '.join(rest)} --force`"
    elif waits_for:
        voters = ", ".join(sorted(map(name_of, engine.view.voters)))
        said += (
            f": it needs a majority of the voters ({voters}), and {silent}. `--force` evicts "
            "without a majority, and may split the group"
        )
    else:
        said += ": the others are about to decide"
    return f"{said}. `crdtcast evict --withdraw {' '.join(names)}` takes it back"


def _is(names: Collection[str]) -> str:
    return "is" if len(names) == 1 else "are"


def level_to_raise(engine: GroupEngine, level: int | None = None) -> int:
    """The format level to request: `level`, or the highest that all members read.

    Without `level`, raises LocalProtocolError, with the members that must be upgraded, if all read only the present
    one.
    """
    if level is not None:
        return level
    if engine.raisable > engine.level:
        return engine.raisable
    if engine.reads.highest <= engine.level:
        raise LocalProtocolError(
            f"nothing to raise: the group's format level is {engine.level}, the highest that this "
            "program reads"
        )
    lacking = ", ".join(map(name_of, engine.lacking_level(engine.level + 1)))
    raise LocalProtocolError(
        f"cannot raise the format level {engine.level}: upgrade {lacking} first, or evict members "
        "that are dead"
    )
