"""Shrinks a failing schedule: removes stretches, then single actions, while it fails in the same way."""

from collections.abc import Callable

from crdtcast.simulator.run import AnySchedule, Outcome


def shrink(
    outcome: Outcome[AnySchedule],
    replay: Callable[[AnySchedule], Outcome[AnySchedule]],
    *,
    runs: int = 2000,
) -> Outcome[AnySchedule]:
    """A shorter run with the same kind of failure, after at most `runs` replays. A run that did not fail stays."""
    if outcome.kind is None:
        return outcome
    best = outcome
    size = max(len(best.schedule.actions) // 2, 1)
    while size and runs > 0:
        removed = False
        start = 0
        while start < len(best.schedule.actions) and runs > 0:
            actions = best.schedule.actions
            shorter = replay(best.schedule.with_actions(actions[:start] + actions[start + size :]))
            runs -= 1
            if shorter.kind == outcome.kind:
                best = shorter
                removed = True
            else:
                start += size
        if not removed or size > 1:
            size //= 2
    return best
