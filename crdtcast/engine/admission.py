"""Whether a contact admits a joiner, and what it gives to the joiner."""

from collections.abc import Collection
from dataclasses import dataclass

from crdtcast.causality.member_id import base_of, name_of, valid_incarnation
from crdtcast.causality.tags import Vector
from crdtcast.engine.level import Span, needed_level
from crdtcast.engine.membership import GroupState, Membership
from crdtcast.engine.operations import MOST_REPLACED
from crdtcast.exceptions import HandshakeError, NotReadyError


@dataclass(frozen=True, slots=True)
class Admission:
    """What a contact gives to a joiner: its id, and the state of the group at that instant."""

    incarnation: str
    state: GroupState


def check_contact(membership: Membership, victims: Collection[str], *, over: bool) -> None:
    """Raises HandshakeError if this member cannot admit joiners: it is about to go, or has no state to give."""
    me = membership.members.get(membership.me)
    if over or me is None or membership.me in victims:
        raise HandshakeError(f"{membership.me} is leaving the group: ask another member")
    if me.witness:
        raise HandshakeError(
            f"{membership.me} is a witness and has no state to transfer: ask another member"
        )


def asked_before(membership: Membership, base: str) -> str | None:
    """The member admitted under this base, or None. Raises HandshakeError if it has ended or `base` is invalid."""
    if not valid_incarnation(base) or base_of(base) != base:
        raise HandshakeError(f"{base!r} is not a valid base of an incarnation id")
    known = membership.incarnation(base)
    has_ended = known is not None and known not in membership.members
    if has_ended or base in {*membership.replaced, *map(base_of, membership.tombs)}:
        raise HandshakeError(f"{base} has ended in this group: join under a fresh id")
    return known


def check_reader(who: str, reads: Span, in_force: int, agreed: int) -> None:
    """Raises HandshakeError if a joiner's program does not read what this member uses, or has agreed to read."""
    if (needed := needed_level(reads, in_force, agreed)) is not None:
        raise HandshakeError(
            f"the group has format level {needed}, and the program of {name_of(who) or who} reads "
            f"level {reads}: start a program there that reads level {needed}"
        )


def check_joiner(membership: Membership, base: str, replaced: Collection[str]) -> None:
    """Raises HandshakeError if a joiner would replace what it must not, or take the name of a member that it does not
    replace. Also if others could not read the join, since they would blame this member.
    """
    wrong = [each for each in replaced if not valid_incarnation(each)]
    if wrong or len(replaced) > MOST_REPLACED:
        what = (
            f"{wrong[0]!r:.80}, which is not an incarnation id"
            if wrong
            else f"{len(replaced):,} incarnations"
        )
        raise HandshakeError(
            f"{base} cannot replace {what}: name at most {MOST_REPLACED:,} members by their ids"
        )
    if base in replaced or base_of(membership.me) in replaced:
        raise HandshakeError(f"{base} cannot replace itself, nor the member that admits it")
    for member in membership.members:
        if (
            name_of(member) == name_of(base)
            and base_of(member) not in replaced
            and not membership.is_replaced(member)
        ):
            raise HandshakeError(
                f"the group already has a member called {name_of(base)} ({member}): use another "
                f"name, or join as its replacement (replace=True; --replaces {name_of(base)})"
            )


def check_copy(membership: Membership, copied: Vector, source: str | None) -> None:
    """Check that a copy of the application's state with the vector `copied`, from member `source`, can be completed.

    Raises HandshakeError if it may hold what was cut off, NotReadyError if this member has not delivered all of it yet.
    """
    for origin, counter in copied.items():
        known = membership.vector.get(origin)
        forgotten = known is None and membership.is_past(origin)
        if forgotten:
            # This member has delivered all of it. The copy has no more if its source is still a member: the source has
            # delivered the sweep, and would have ended with that.
            cut = membership.cut_of(origin)
            void = counter > cut if cut is not None else source not in membership.members
        else:
            ended = membership.cut(origin)
            void = ended is not None and counter > ended.counter
        if counter and void:
            raise HandshakeError(
                f"the copy may hold messages of {origin} that were cut off: copy again from a "
                "member"
            )
        if not forgotten and counter > (known or 0):
            raise NotReadyError(
                f"{membership.me} has not yet delivered all that the joining member has a copy of"
            )
