"""The life of a member as a table: its phases, the events that move it, and why it cannot send."""

from collections.abc import Mapping
from enum import StrEnum

from crdtcast.exceptions import EndedError, LocalProtocolError, NotReadyError


class MemberPhase(StrEnum):
    """The phases of a member's life.

    OUTSIDE: opened, neither founding nor joining yet.
    FOUNDING: waits for the other founders.
    JOINING: asks to be admitted.
    CATCHING_UP: its state machine receives the state of the group, or that of its own journal.
    MEMBER: can send.
    LEAVING: leaves as its program wants, until the others know.
    WITHDRAWING: was admitted, but its state machine has failed on the group's state: it leaves at once. Unlike in
        LEAVING there is nothing to send again, its journal says that its incarnation is over, and an eviction is
        enough.
    EVICTED: evicted (or had left before it was restarted), and continues until the others know.
    REJOINING: its incarnation is over; asks to be admitted under a new id.
    LEFT: has left for good, and the others know.
    CLOSED: its host is closed, or it has given up leaving.
    """

    OUTSIDE = "outside"
    FOUNDING = "founding"
    JOINING = "joining"
    CATCHING_UP = "catching up"
    MEMBER = "member"
    LEAVING = "leaving"
    WITHDRAWING = "withdrawing"
    EVICTED = "evicted"
    REJOINING = "rejoining"
    LEFT = "left"
    CLOSED = "closed"


class MemberEvent(StrEnum):
    """Events that move a member from phase to phase.

    FOUND, JOIN: begins to wait for founders, or to ask for admission.
    RESUME: its journal holds a former life.
    ADMIT: was admitted.
    BEGIN: is a member from now on.
    FAIL: its state machine fails on the group's state.
    LEAVE: its program wants to leave.
    PUT_OUT: the group has decided its end; others may not know yet.
    OVER: its incarnation has ended, or its journal is incomplete.
    GONE: the others know that it has left, or was evicted meanwhile.
    STOP: is closed.
    """

    FOUND = "founds"
    JOIN = "asks to join"
    RESUME = "resumes"
    ADMIT = "admitted"
    BEGIN = "begins"
    FAIL = "state machine fails"
    LEAVE = "leaves"
    PUT_OUT = "end decided"
    OVER = "incarnation over"
    GONE = "departure known"
    STOP = "closed"


TRANSITIONS: Mapping[tuple[MemberPhase, MemberEvent], MemberPhase] = {
    (MemberPhase.OUTSIDE, MemberEvent.FOUND): MemberPhase.FOUNDING,
    (MemberPhase.OUTSIDE, MemberEvent.JOIN): MemberPhase.JOINING,
    (MemberPhase.OUTSIDE, MemberEvent.RESUME): MemberPhase.CATCHING_UP,
    (MemberPhase.OUTSIDE, MemberEvent.STOP): MemberPhase.CLOSED,
    (MemberPhase.FOUNDING, MemberEvent.BEGIN): MemberPhase.MEMBER,
    # The others have started without it.
    (MemberPhase.FOUNDING, MemberEvent.JOIN): MemberPhase.JOINING,
    (MemberPhase.FOUNDING, MemberEvent.STOP): MemberPhase.CLOSED,
    (MemberPhase.JOINING, MemberEvent.ADMIT): MemberPhase.CATCHING_UP,
    (MemberPhase.JOINING, MemberEvent.STOP): MemberPhase.CLOSED,
    (MemberPhase.CATCHING_UP, MemberEvent.BEGIN): MemberPhase.MEMBER,
    (MemberPhase.CATCHING_UP, MemberEvent.FAIL): MemberPhase.WITHDRAWING,
    # Its journal says that it had left.
    (MemberPhase.CATCHING_UP, MemberEvent.PUT_OUT): MemberPhase.EVICTED,
    # Its journal is incomplete.
    (MemberPhase.CATCHING_UP, MemberEvent.OVER): MemberPhase.REJOINING,
    # Its state machine fails on its own journal.
    (MemberPhase.CATCHING_UP, MemberEvent.STOP): MemberPhase.CLOSED,
    (MemberPhase.MEMBER, MemberEvent.LEAVE): MemberPhase.LEAVING,
    (MemberPhase.MEMBER, MemberEvent.PUT_OUT): MemberPhase.EVICTED,
    (MemberPhase.MEMBER, MemberEvent.OVER): MemberPhase.REJOINING,
    (MemberPhase.MEMBER, MemberEvent.STOP): MemberPhase.CLOSED,
    # It leaves once it is back.
    (MemberPhase.LEAVING, MemberEvent.OVER): MemberPhase.REJOINING,
    (MemberPhase.LEAVING, MemberEvent.GONE): MemberPhase.LEFT,
    (MemberPhase.LEAVING, MemberEvent.STOP): MemberPhase.CLOSED,
    (MemberPhase.WITHDRAWING, MemberEvent.GONE): MemberPhase.LEFT,
    (MemberPhase.WITHDRAWING, MemberEvent.STOP): MemberPhase.CLOSED,
    (MemberPhase.EVICTED, MemberEvent.LEAVE): MemberPhase.LEAVING,
    (MemberPhase.EVICTED, MemberEvent.OVER): MemberPhase.REJOINING,
    (MemberPhase.EVICTED, MemberEvent.STOP): MemberPhase.CLOSED,
    (MemberPhase.REJOINING, MemberEvent.ADMIT): MemberPhase.CATCHING_UP,
    (MemberPhase.REJOINING, MemberEvent.STOP): MemberPhase.CLOSED,
}
ENDED = frozenset({MemberPhase.LEFT, MemberPhase.CLOSED})
"""The final phases."""


_AGAIN = (
    ": open the group again (`open_member`, or `join` of the host) to continue as a new incarnation"
)
_NEVER = EndedError, "{name} was never in group {group!r}: join it first"
_EVICTED = (
    EndedError,
    "cannot send: {me} was evicted from group {group!r} and is joining again: send when `ready` returns",
)
_LEAVES = EndedError, "{me} is leaving group {group!r}, or has left it" + _AGAIN
_REFUSALS = {
    MemberPhase.OUTSIDE: _NEVER,
    MemberPhase.FOUNDING: (NotReadyError, "group {group!r} has not started"),
    MemberPhase.JOINING: (
        NotReadyError,
        "cannot send yet: {name} is joining group {group!r}: send when `ready` returns",
    ),
    MemberPhase.CATCHING_UP: (
        NotReadyError,
        "cannot send yet: {me} is receiving the state of group {group!r}",
    ),
    MemberPhase.LEAVING: _LEAVES,
    MemberPhase.WITHDRAWING: _LEAVES,
    MemberPhase.EVICTED: _EVICTED,
    MemberPhase.REJOINING: _EVICTED,
    MemberPhase.LEFT: _LEAVES,
    MemberPhase.CLOSED: (EndedError, "{me} is no longer a member of group {group!r}" + _AGAIN),
}


def refusal(phase: MemberPhase, *, name: str, group: str, me: str | None) -> LocalProtocolError:
    """The error of a member that cannot send in `phase`, any but MEMBER. me: its incarnation, None if it had none."""
    if me is None and phase in ENDED:
        phase = MemberPhase.OUTSIDE
    kind, text = _REFUSALS[phase]
    return kind(text.format(name=name, group=group, me=me or name))
