"""How a member goes on after a start: a pure decision from what its journal says."""

from crdtcast.exceptions import ConfigurationError, UnusableInputError
from crdtcast.journal.saved import Saved


def asks_first(saved: Saved, damage: str) -> bool:
    """Whether it has left, as the group has decided, and did not hear that enough of the others know: perhaps only its
    own vote has decided it. The same incarnation goes on until it hears that, and joins again then.
    """
    state, me = saved.state, saved.incarnation
    return state.wants.leaves and me in state.cuts and not (saved.life.over or damage)


def is_whole(saved: Saved, damage: str, *, has_machine: bool) -> bool:
    """Whether the same incarnation may go on: it has not ended, does not leave, and nothing of its journal is missing.
    Otherwise it has to join again, as a new one that replaces it.

    damage: see `crdtcast.journal.Recovered`. has_machine: of this start.

    Raises ConfigurationError if the journal is that of another kind of member, UnusableInputError if
    nobody is left to join again with.
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
    # One that was leaving is out, or is to be: whether the others know it yet does not matter to a new one.
    is_out = me in state.ended or me in state.cuts or state.wants.leaves
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
