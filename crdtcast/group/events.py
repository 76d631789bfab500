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
    """tcstable: this member can no longer deliver a message concurrent with `tag`'s. Own messages are included."""

    tag: Tag


@dataclass(frozen=True, slots=True)
class Evicted:
    """The group has evicted this member. It joins again by itself, and then sends its messages again that the group
    does not have.
    """

    incarnation: str


@dataclass(frozen=True, slots=True)
class Joined:
    """This member is back, as `incarnation`. Deliveries in between are not reported: only a state machine gets the
    group's state (`StateMachine.set_state`).
    """

    incarnation: str


Event: TypeAlias = Delivered | Stable | Evicted | Joined
