"""One run of any simulated world: carries out actions and notes them, until something is wrong."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from crdtcast.simulator.failure import Failure
from crdtcast.simulator.schedule import Action, Schedule

AnySchedule = TypeVar("AnySchedule", bound=Schedule)


class Playable(Protocol):
    """A world that is driven by actions."""

    def apply(self, action: Action) -> bool:
        """Carry out one action. Returns False, without any effect, if it is impossible. Raises Failure if something is
        wrong.
        """
        ...

    def totals(self) -> Counter[str]:
        """The counters of the run."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome(Generic[AnySchedule]):
    """A run: its schedule, its counters, and what was wrong (`kind` and text), if anything."""

    schedule: AnySchedule
    counts: Counter[str]
    kind: str | None = None
    failure: str | None = None


def carry_out(
    world: Playable, schedule: AnySchedule, steps: Iterable[Action], judge: Callable[[], object]
) -> Outcome[AnySchedule]:
    """Carry out the steps, then let `judge` settle and check the world. The outcome has only possible actions."""
    taken: list[Action] = []
    try:
        for action in steps:
            taken.append(action)
            if not world.apply(action):
                taken.pop()
        judge()
    except Failure as failure:
        done = schedule.with_actions(taken)
        return Outcome(done, world.totals(), failure.kind, f"{failure.kind}: {failure}")
    return Outcome(schedule.with_actions(taken), world.totals())
