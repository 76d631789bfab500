"""What a member of a broadcast group is told, in the order in which it comes about."""

from dataclasses import dataclass
from typing import TypeAlias

from crdtcast.causality.tags import Tag


@dataclass(frozen=True, slots=True)
class Delivered:
    """tcdeliver: another member's payload, in causal order, exactly once."""

    payload: bytes
    tag: Tag


@dataclass(frozen=True, slots=True)
class Stable:
    """tcstable: no message concurrent with `tag`'s can be delivered here any more. Own ones,
    too.
    """

    tag: Tag


@dataclass(frozen=True, slots=True)
class Evicted:
    """The group has gone on without this member, which joins again by itself, and then sends again
    what the group does not have of its messages.
    """

    incarnation: str


@dataclass(frozen=True, slots=True)
class Joined:
    """This member is back, as `incarnation`. What was delivered in between is not reported: only a
    machine gets the group's state (`StateMachine.set_state`).
    """

    incarnation: str


Event: TypeAlias = Delivered | Stable | Evicted | Joined
