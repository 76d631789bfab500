"""Whether the machine was fast enough for what took too long to count."""

import trio
import trio.testing

from crdtcast.chaos.course import ChaosOutcome
from crdtcast.chaos.lateness import TOO_LATE, WORST, Lateness


def test_a_machine_is_too_slow_by_its_share_or_by_one_long_wait() -> None:
    quick, busy, stalled = Lateness(), Lateness(), Lateness()
    for _ in range(100):
        quick.note(0.001, 0.051)
        busy.note(TOO_LATE * 0.06, 0.05)
        stalled.note(0.0, 0.05)
    stalled.note(WORST + 1, WORST + 1)
    assert [each.too_slow for each in (quick, busy, stalled)] == [False, True, True]
    assert 0.01 < quick.share < 0.03


def test_lateness_measures_the_delay_of_its_own_turns() -> None:
    async def main() -> None:
        with trio.move_on_after(10):
            await lateness.measure()

    lateness = Lateness()
    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert max(lateness.share, lateness.worst) < 1e-6


def test_only_lateness_is_excused_and_only_on_a_slow_machine() -> None:
    def judged(late: float, *lines: str, lost: str = "") -> tuple[bool, bool]:
        outcome = ChaosOutcome(acknowledged=1, late=list(lines))
        outcome.lateness.note(late, 100.0)
        outcome.found.lost += [lost] if lost else []
        return outcome.ok, outcome.too_slow

    assert judged(0.0) == judged(90.0) == (True, False)
    assert judged(90.0, "n1 is no member yet") == (False, True)
    assert judged(1.0, "n1 is no member yet") == (False, False)
    assert judged(90.0, "n1 is no member yet", lost="set-x lacks a") == (False, False)
