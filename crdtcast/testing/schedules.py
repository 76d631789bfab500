"""Random schedules for a group: operations, deliveries, stability and restarts.

A schedule is a list of small values that Hypothesis shrinks. An action that is impossible in its turn, such as a
delivery without a message, does nothing. So every list is a schedule.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hypothesis import strategies as st

from crdtcast.testing.model_group import Call


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
    """A member is notified of the first `most` messages that have become stable at it."""

    member: int
    most: int


@dataclass(frozen=True, slots=True)
class Restart:
    """A member continues from a snapshot of itself."""

    member: int


@dataclass(frozen=True, slots=True)
class Synchronise:
    """All members deliver everything on its way, so that later actions find a stable part."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing happens: shrinking replaces an action that does not matter by this."""


Action: TypeAlias = Wait | Issue | Deliver | Stabilise | Restart | Synchronise


@dataclass(frozen=True, slots=True)
class Schedule:
    """The actions of a group.

    eager: everything is reported stable at every member as soon as the definition allows it.
    compressed: messages pass the type's `compress`.
    """

    members: int
    eager: bool
    actions: tuple[Action, ...]
    compressed: bool = False

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Keeps Hypothesis from printing how each part of a failing schedule was drawn, which takes seconds."""
        printer.text(repr(self))


def weighted(*choices: tuple[int, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """One of several strategies, each as often as its weight says (`one_of` drops repetitions)."""
    repeated = [strategy for weight, strategy in choices for _ in range(weight)]
    return st.sampled_from(repeated).flatmap(lambda chosen: chosen)


def schedules(
    operations: st.SearchStrategy[Sequence[Any]], *, members: int = 3, actions: int = 30
) -> st.SearchStrategy[Schedule]:
    """Schedules of up to `actions` actions. operations: a strategy for tuples (name, argument, ...)."""
    member = st.integers(0, members - 1)
    call = operations.map(lambda operation: Call(*operation))
    issue = st.builds(Issue, member, st.lists(call, min_size=1, max_size=3).map(tuple))
    single = st.builds(Issue, member, call.map(lambda one: (one,)))
    deliver = st.builds(Deliver, member, st.integers(0, members - 1))
    stabilise = st.builds(Stabilise, member, st.integers(1, 3))
    restart = st.builds(Restart, member)
    synchronise = st.just(Synchronise())
    # Shrinking moves to the left, to waiting. Deliveries weigh most: each message needs two or more.
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
