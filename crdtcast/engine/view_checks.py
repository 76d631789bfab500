"""Checks of frames of views. A frame with a part that no member can have noted is refused whole, and changes nothing.

What holds for a record at every member is checked whichever peer passes it on: an honest one would also refuse it.
What depends on what members know by now is checked only on the link with the record's own member.
"""

from collections.abc import Collection, Iterable, Iterator

from crdtcast.causality.member_id import base_of, joined_by, valid_incarnation
from crdtcast.causality.tags import Vector
from crdtcast.engine.checks import MOST_STRANGE, ids_on_their_way, remembers_more
from crdtcast.engine.group_knowledge import GroupKnowledge
from crdtcast.engine.operations import How
from crdtcast.engine.views import (
    NO_BALLOT,
    Accepted,
    Ballot,
    Promise,
    Proposal,
    Record,
    View,
    ViewChange,
    Views,
)
from crdtcast.exceptions import RemoteProtocolError

MOST_BALLOTS = 2**48
"""The greatest ballot number: they go up one by one from 1, in each epoch."""


def check_views(sender: str, frame: Views, known: Vector, told: Vector) -> None:
    """Raises RemoteProtocolError if no member can have noted this, or if it names more ids than there can be.

    known: the receiver's vector. told: the newest one of the sender.
    """
    _check_ids(sender, frame.has.keys(), known, told)
    for asked in frame.asks:
        _check_ids(sender, asked.answered, known, told)
    for record in frame.records:
        if wrong := next(_wrong_in(record), None):
            raise RemoteProtocolError(
                f"{sender} forwards an invalid record of {record.member}: {wrong}"
            )
        if record.promise is not None and record.member == sender:
            _check_ids(sender, record.promise.members, known, told)
    for decided in frame.decided:
        if wrong := next(_wrong_in_change(decided.change), None):
            raise RemoteProtocolError(
                f"{sender} forwards an invalid decision of epoch {decided.epoch:,}: {wrong}"
            )


def check_own_record(record: Record, view: View, here: GroupKnowledge) -> None:
    """Raises RemoteProtocolError if its member cannot have noted this, as far as the receiver can tell. Raises what
    `remembers_more` returns if it counts on more messages of the receiver than that has sent.

    All members of one view know the same members that went before it.
    """
    if (record.epoch, record.name) != (view.epoch, view.name):
        return
    for what, incarnations in _named(record):
        for incarnation in incarnations:
            if here.membership.is_over(incarnation):
                raise RemoteProtocolError(
                    f"{record.member} {what} {incarnation}, which can no longer be a member"
                )
            join = joined_by(incarnation)
            if join is not None and join[0] == base_of(here.me):
                _check_sent(record, join[1], here)
    if record.promise is not None:
        _check_sent(record, record.promise.delivered.get(here.me, 0), here)


def _check_sent(record: Record, told: int, here: GroupKnowledge) -> None:
    known = here.counted(here.me)
    if told > known:
        raise remembers_more(record.member, here.me, told, known, resumed=here.resumed)


def _named(record: Record) -> Iterator[tuple[str, Iterable[str]]]:
    if record.promise is not None:
        yield "counts as a member", record.promise.members
    if record.proposal is not None:
        yield "would remove", record.proposal.victims
    for change in _changes(record):
        yield "would remove", change.out
        yield "gives a vote to", change.votes


def _changes(record: Record) -> Iterator[ViewChange]:
    if record.accepted is not None:
        yield record.accepted.change
    if record.proposal is not None and record.proposal.change is not None:
        yield record.proposal.change


def _check_ids(sender: str, ids: Collection[str], known: Vector, told: Vector) -> None:
    """Raises RemoteProtocolError for invalid ids, or more unknown ones than there can be: see `check_group_digest`."""
    strange = {each for each in ids if each not in known}
    most = len(known) + MOST_STRANGE
    if any(not valid_incarnation(each) for each in strange):
        raise RemoteProtocolError(f"{sender} sent views with an invalid incarnation id")
    if len(strange) > most and len(strange) - ids_on_their_way(strange, told) > most:
        raise RemoteProtocolError(
            f"{sender} sent views with {len(strange):,} unknown ids, in a group of {len(known):,}"
        )


# A record, wherever it is met


def contradicts_itself(record: Record) -> bool:
    """Whether no member can have noted this, whatever has happened."""
    return next(_wrong_in(record), None) is not None


def _wrong_in(record: Record) -> Iterator[str]:
    promised, promise = record.promised, record.promise
    accepted, proposal = record.accepted, record.proposal
    yield from _wrong_in_ballot(promised, may_be_none=True)
    if promise is not None:
        yield from _wrong_in_promise(promise, promised)
    if accepted is not None:
        yield from _wrong_in_accepted(accepted, promised)
    if proposal is not None:
        yield from _wrong_in_proposal(proposal, record)
    if promised != NO_BALLOT and promise is None and accepted is None:
        yield "it has promised a ballot without a promise"


def _wrong_in_ballot(ballot: Ballot, *, may_be_none: bool = False) -> Iterator[str]:
    if may_be_none and ballot == NO_BALLOT:
        return
    if not 1 <= ballot.number <= MOST_BALLOTS or not ballot.proposer:
        yield f"{ballot.number:,} is not a ballot number"


def _wrong_in_promise(promise: Promise, promised: Ballot) -> Iterator[str]:
    yield from _wrong_in_ballot(promise.ballot)
    if promise.ballot > promised:
        yield "its promise has a later ballot than the one it promised"
    if not _is_sorted(promise.members):
        yield "its members are not sorted"
    # A member cannot know a joiner whose admission by a victim it has not delivered.
    delivered: dict[str, int] = {}
    for who, counter in promise.delivered.items():
        base = base_of(who)
        delivered[base] = max(counter, delivered.get(base, 0))
    for member in promise.members:
        join = joined_by(member)
        if join is not None and delivered.get(join[0], join[1]) < join[1]:
            yield f"it knows {member}, but not the message that admitted it"


def _wrong_in_accepted(accepted: Accepted, promised: Ballot) -> Iterator[str]:
    yield from _wrong_in_ballot(accepted.ballot)
    if accepted.ballot > promised:
        yield "it has accepted a later ballot than the one it promised"
    yield from _wrong_in_change(accepted.change)


def _wrong_in_proposal(proposal: Proposal, record: Record) -> Iterator[str]:
    yield from _wrong_in_ballot(proposal.ballot)
    if proposal.ballot.proposer != record.member:
        yield "its proposal belongs to another member"
    if not _is_sorted(proposal.victims):
        yield "its victims are not sorted"
    if proposal.leaves != (record.member in proposal.victims):
        yield "its leave and its victims contradict each other"
    if not {*proposal.word.replaced, *proposal.word.forced} <= set(proposal.victims):
        yield "it says how to remove a member that it does not remove"
    if proposal.change is not None:
        if proposal.ballot > record.promised:
            yield "it asks to accept a ballot that it has not promised itself"
        yield from _wrong_in_change(proposal.change)


def _wrong_in_change(change: ViewChange) -> Iterator[str]:
    cuts = [who for who, _ in change.cuts]
    if not (_is_sorted(cuts) and _is_sorted(change.out) and _is_sorted(change.votes)):
        yield "a change is not sorted"
    if not set(change.out) <= set(cuts):
        yield "a change removes a member without saying where it ends"
    if set(change.votes) & set(cuts):
        yield "a change gives a vote to a member that it removes"


def _is_sorted(ids: Collection[str]) -> bool:
    """Whether they are sorted, and none is there twice: as every member writes them."""
    listed = list(ids)
    return listed == sorted(set(listed))


# A change, for members that are asked to accept it


def may_be(change: ViewChange, here: GroupKnowledge) -> bool:
    """Whether this may have been asked for, by what is certain at this member. If not, no honest one has accepted it.

    It may not if it cuts what this member has delivered, or says that a member that went did so in another way.
    """
    cuts, me = dict(change.cuts), here.me
    if me in change.out:
        return cuts[me].counter <= here.counted(me)
    if me in cuts or any(cut.counter < here.counted(who) for who, cut in change.cuts):
        return False
    for who, cut in change.cuts:
        known = here.membership.cut(who)
        if known is not None and (who in change.out or known.how is not cut.how):
            return False
    return True


def is_plausible(change: ViewChange, here: GroupKnowledge) -> bool:
    """Whether this may follow from what members, the receiver included, have promised; also by what others say.

    It may not if a member that stays has delivered more than the cuts allow, or if a new voter is neither a member
    at the receiver nor admitted by a message within the cuts.
    """
    if not may_be(change, here):
        return False
    for member in here.membership.going_on():
        if member != here.me and _is_beyond(change, member, here.newest(member)):
            return False
    if here.me in change.out:
        return True
    members = here.membership.going_on()
    ends = {base_of(who): cut.counter for who, cut in change.cuts}
    for voter in change.votes:
        join = joined_by(voter)
        if voter not in members and (join is None or ends.get(join[0], 0) < join[1]):
            return False
    return True


def is_new(change: ViewChange, proposal: Proposal) -> bool:
    """Whether a change is what these terms ask for. Otherwise it was taken over from an earlier ballot."""
    if change.out != proposal.victims or change.level != proposal.level:
        return False
    forced = bool(proposal.word.forced)
    for who, cut in change.cuts:
        if who in change.out:
            leaves = proposal.leaves and who == proposal.ballot.proposer
            if cut.how is not (How.LEFT if leaves else How.FORCED if forced else How.EVICTED):
                return False
    return proposal.needs_all or not change.cuts


def _is_beyond(change: ViewChange, member: str, has: Vector) -> bool:
    """Whether a member that goes on has more than the change leaves. One admitted beyond a cut does not go on."""
    if member in change.out:
        return False
    cuts = {base_of(who): cut.counter for who, cut in change.cuts}
    join = joined_by(member)
    if join is not None and cuts.get(join[0], join[1]) < join[1]:
        return False
    return any(has.get(who, 0) > cut.counter for who, cut in change.cuts)
