"""Events of a member of a broadcast group, in their order."""

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
    """The group has evicted this member. It joins again by itself, and then sends again those of its messages that the
    group lacks.
    """

    incarnation: str


@dataclass(frozen=True, slots=True)
class Joined:
    """This member is back, as `incarnation`. Deliveries in between are not reported: only a state machine gets the
    group's state (`StateMachine.set_state`).
    """

    incarnation: str


Event: TypeAlias = Delivered | Stable | Evicted | Joined
