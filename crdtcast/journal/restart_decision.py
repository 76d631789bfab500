"""How a member continues after a start: a pure decision from its journal."""

from dataclasses import replace

from crdtcast.engine import GroupState
from crdtcast.exceptions import ConfigurationError, UnusableInputError
from crdtcast.journal.saved import Saved


def asks_first(saved: Saved, damage: str) -> bool:
    """Whether it has left by the group's decision, but does not know that enough others know that: perhaps only its own
    vote has decided it. The same incarnation goes on until it learns that, and then joins again.
    """
    state, me = saved.state, saved.incarnation
    return state.wants.leaves and me in state.cuts and not (saved.life.over or damage)


def may_have_left(state: GroupState) -> bool:
    """Whether the group may have let it leave, and it does not know that.

    Only its own ballot can do that, and it keeps the record of that ballot until the epoch is over. Without a ballot of
    its own nobody else has heard that it wants to leave. A later ballot in the same epoch hides an earlier one, so any
    counts.
    """
    record = state.record
    return state.wants.leaves and record is not None and record.proposal is not None


def staying(state: GroupState) -> GroupState:
    """The state of a member that takes back its wish to leave, which no other member has heard."""
    return replace(state, wants=replace(state.wants, leaves=False))


def is_whole(saved: Saved, damage: str, *, has_machine: bool) -> bool:
    """Whether the same incarnation may continue: it has not ended, cannot have left, and its journal is complete.
    Otherwise it must join again, as a new incarnation that replaces it.

    damage: see `crdtcast.journal.Recovered`.
    has_machine: whether the member has a state machine at this start.
    Raises ConfigurationError if the journal is of another kind of member, and UnusableInputError if no member is left
    to join again with.
    """
    where = f"the journal of {saved.name!r} in group {saved.group!r}"
    kept = saved.application is not None
    if not (saved.witness or saved.life.over) and kept is not has_machine:
        kind = "a state machine" if kept else "no state machine"
        raise ConfigurationError(
            f"{where} belongs to a member with {kind}: open the member in the same way, or use "
            "another journal for this one"
        )
    state, me = saved.state, saved.incarnation
    # One that may have left is out, or will be. A new incarnation does not depend on whether the others know it yet.
    is_out = me in state.ended or me in state.cuts or may_have_left(state)
    if not (saved.life.over or damage or is_out):
        return True
    if all(member.incarnation == me for member in state.members):
        if is_out and not damage:
            raise UnusableInputError(
                f"{where} belongs to the last member of a group, which has left: remove it to "
                "start a new group"
            )
        raise UnusableInputError(
            f"{where} is incomplete ({damage or 'its incarnation has ended'}), and there is no "
            "other member to send the rest: to continue with what is there, open it once with "
            "FileJournal(path, trusted=True) (--trust-journal)"
        )
    return False
