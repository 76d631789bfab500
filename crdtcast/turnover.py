"""What the log of a member says of the others that come and go."""

from collections.abc import Collection, Iterator

from crdtcast.causality.member_id import name_of
from crdtcast.engine import GroupEngine, How
from crdtcast.engine.views import Proposal

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
    """What somebody asks the group to decide, if this member has promised it, and more is at stake than votes."""
    proposal = engine.open_change
    if proposal is None or not proposal.needs_all:
        return ""
    return f"{proposal.ballot.proposer} asks to {in_words(proposal)}"


def in_words(proposal: Proposal) -> str:
    """What it would change, as one asks to do it."""
    others = set(proposal.victims) - ({proposal.ballot.proposer} if proposal.leaves else set())
    replaced = sorted(map(name_of, others & set(proposal.word.replaced)))
    evicted = sorted(map(name_of, others - set(proposal.word.replaced)))
    what = []
    if evicted:
        what.append(f"evict {', '.join(evicted)}{' by force' if proposal.word.forced else ''}")
    if replaced:
        what.append(f"put out {', '.join(replaced)}, whose place another member takes")
    if proposal.leaves:
        what.append("leave")
    if proposal.level is not None:
        what.append(f"raise the format level to {proposal.level}")
    return " and to ".join(what) or "give votes to those who have joined, or to call off a change"
