"""Random schedules for a group: who issues what, what is delivered where and when, what becomes
stable, who restarts.

A schedule is a list of small values that Hypothesis shrinks. An action that is not possible when
its turn comes (there is nothing to deliver) does nothing, so every list is a schedule.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hypothesis import strategies as st

from crdtcast.testing.group import Call


@dataclass(frozen=True, slots=True)
class Issue:
    """A member sends these operations as one message."""

    member: int
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Deliver:
    """A member delivers one of the messages that it can deliver."""

    member: int
    choice: int


@dataclass(frozen=True, slots=True)
class Stabilise:
    """A member is told of the first `most` messages that have become stable there."""

    member: int
    most: int


@dataclass(frozen=True, slots=True)
class Restart:
    """A member goes on from a snapshot of itself."""

    member: int


@dataclass(frozen=True, slots=True)
class Synchronise:
    """Everybody delivers all that is on its way: what comes next finds a stable part to act on."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing happens: what shrinking leaves over of an action that did not matter."""


Action: TypeAlias = Wait | Issue | Deliver | Stabilise | Restart | Synchronise


@dataclass(frozen=True, slots=True)
class Schedule:
    """`eager`: everything is reported stable everywhere the moment the definition allows it.
    `compressed`: what a message carries goes through the type's `compress`.
    """

    members: int
    eager: bool
    actions: tuple[Action, ...]
    compressed: bool = False

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """For Hypothesis, which else tells for seconds how each part of a failing schedule was drawn."""
        printer.text(repr(self))


def weighted(*choices: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """One of several strategies, each as often as its weight says (`one_of` drops repetitions)."""
    repeated = [strategy for weight, strategy in choices for _ in range(weight)]
    return st.sampled_from(repeated).flatmap(lambda chosen: chosen)


def schedules(
    operations: st.SearchStrategy[Sequence[Any]], *, members: int = 3, actions: int = 30
) -> st.SearchStrategy[Schedule]:
    """Schedules of up to `actions` actions whose operations, (name, argument, ...), come from a
    strategy.
    """
    member = st.integers(0, members - 1)
    call = operations.map(lambda operation: Call(*operation))
    issue = st.builds(Issue, member, st.lists(call, min_size=1, max_size=3).map(tuple))
    single = st.builds(Issue, member, call.map(lambda one: (one,)))
    deliver = st.builds(Deliver, member, st.integers(0, members - 1))
    stabilise = st.builds(Stabilise, member, st.integers(1, 3))
    restart = st.builds(Restart, member)
    synchronise = st.just(Synchronise())
    # Shrinking goes to the left, to waiting. Every message is delivered twice or more.
    action = weighted(
        (1, st.just(Wait())),
        (6, deliver),
        (4, single),
        (1, stabilise),
        (1, issue),
        (1, restart),
        (1, synchronise),
    )
    # Without a minimum, most lists are too short for a conflict, a removal and a stabilisation.
    many = st.lists(action, min_size=actions // 2, max_size=actions).map(tuple)
    return st.builds(Schedule, st.just(members), st.booleans(), many, st.booleans())
