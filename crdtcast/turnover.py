"""What the log of a member says of the others that come and go."""

from collections.abc import Collection, Iterator

from crdtcast.engine import GroupEngine, How
from crdtcast.engine.operations import Evict
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


def evictions_asked(engine: GroupEngine, told: set[Evict]) -> Iterator[str]:
    """A line for each eviction that a member has asked for and that is not in `told`, which is brought up to date."""
    asked = engine.evictions_asked
    if asked.keys() == told:
        return
    for request, who in asked.items():
        if request not in told:
            force = " by force" if request.force else ""
            yield f"{who} asks for the eviction{force} of {request.incarnation}"
    told.clear()
    told.update(asked)
