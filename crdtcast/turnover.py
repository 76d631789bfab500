"""What the log of a member says of the others that come and go."""

from collections.abc import Collection, Iterator

from crdtcast.engine import GroupEngine, How
from crdtcast.incarnation import name_of

_ENDED = {
    How.LEFT: "has left",
    How.EVICTED: "was evicted from",
    How.FORCED: "was evicted by force from",
}


def turnover(engine: GroupEngine, before: Collection[str], group: str) -> Iterator[str]:
    """A line for each other incarnation that has joined or ended since `before` were the members."""
    members = engine.members.keys() - {engine.me}
    others = set(before) - {engine.me}
    now = ", ".join(sorted(map(name_of, engine.members)))
    for incarnation in sorted(others - members):
        cut = engine.ended.get(incarnation)
        how = "is no member any more of" if cut is None else _ENDED[cut.how]
        yield f"{incarnation} {how} group {group}, whose members are {now}"
    for incarnation in sorted(members - others):
        yield f"{incarnation} has joined group {group}, whose members are {now}"


def change_wanted(engine: GroupEngine) -> str:
    """What the group is about to decide, as far as this member has promised it; empty: nothing."""
    proposal = engine.open_change
    if proposal is None:
        return ""
    what = [
        f"the eviction of {victim}"
        for victim in proposal.victims
        if victim != proposal.ballot.proposer
    ]
    if proposal.leaves:
        what.append("to leave")
    if proposal.level is not None:
        what.append(f"format level {proposal.level}")
    if not what:
        return ""
    force = " by force" if proposal.word.forced else ""
    return f"{proposal.ballot.proposer} asks for {', '.join(what)}{force}"
