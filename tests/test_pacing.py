"""The pacer, driven by hand: what shortens and what lengthens the period between two ticks."""

from crdtcast.engine.digest_pacing import LONGEST, RESTING, SHORTEST, USUAL, Pacer


class Run:
    """A pacer whose ticks come in time, or `late` by so many seconds."""

    def __init__(self, fixed: float | None = None) -> None:
        self.now = 100.0
        self.pacer = Pacer(fixed, self.now)

    def ticks(
        self,
        count: int,
        *,
        rate: float = 0.0,
        peers: int = 2,
        quiet: bool = False,
        late: float = 0.0,
    ) -> float:
        """The period after `count` ticks, with `rate` messages a second between them."""
        for _ in range(count):
            before = self.now
            self.now = self.pacer.due + late
            messages = round(rate * (self.now - before))
            self.pacer.ticked(self.now, messages=messages, peers=peers, quiet=quiet)
        return self.pacer.period

    def round_trips(self, seconds: float, count: int = 20) -> None:
        for number in range(1, count + 1):
            assert self.pacer.may_follow(number)
            self.pacer.sent(number, ["b", "c"], self.now)
            self.pacer.acknowledged("b", number, self.now + seconds / 2)
            assert self.pacer.following
            self.pacer.acknowledged("c", number, self.now + seconds)


def test_fixed_period_never_changes() -> None:
    run = Run(0.2)
    for quiet in (True, False):
        assert run.ticks(50, rate=1000, quiet=quiet, late=0.1) == 0.2
        assert not run.pacer.stir(run.now)
        assert run.pacer.due == run.now + 0.2


def test_many_messages_shorten_the_period_and_few_do_not() -> None:
    assert Run().ticks(50, rate=10_000) == SHORTEST
    assert Run().ticks(50, rate=20) == USUAL
    moderate = Run().ticks(50, rate=400)
    assert SHORTEST < moderate < USUAL


def test_large_groups_tick_less_often() -> None:
    assert Run().ticks(50, rate=10_000, peers=127) > USUAL
    assert Run().ticks(50, rate=10_000, peers=15) < USUAL


def test_period_is_half_of_a_long_round_trip() -> None:
    run = Run()
    run.round_trips(0.3)
    assert abs(run.ticks(20, rate=10_000) - 0.15) < 0.001


def test_the_slowest_peer_counts_and_one_that_has_gone_does_not() -> None:
    run = Run()
    pacer = run.pacer
    pacer.sent(1, ["b", "c"], run.now)
    pacer.acknowledged("b", 0, run.now + 1)  # a digest from before
    pacer.acknowledged("b", 1, run.now + 1)
    pacer.acknowledged("b", 2, run.now + 9)
    assert pacer.round_trip == 0
    pacer.acknowledged("c", 1, run.now + 2)
    assert pacer.round_trip == 2
    assert not pacer.may_follow(1)
    pacer.sent(2, ["b", "c"], run.now)
    pacer.gone("b")
    pacer.gone("c")
    assert pacer.round_trip == 2
    assert pacer.may_follow(3)


def test_unacknowledged_message_is_no_longer_timed() -> None:
    run = Run()
    run.pacer.sent(1, ["b"], run.now)
    run.ticks(20)
    assert run.pacer.following
    run.ticks(100)
    assert not run.pacer.following
    assert run.pacer.round_trip == 0


def test_a_process_that_is_late_ticks_less_often_and_recovers() -> None:
    run = Run()
    assert run.ticks(30, rate=10_000, late=0.05) > 0.15
    assert run.ticks(60, rate=10_000) == SHORTEST


def test_idle_group_hardly_ticks_and_wakes_quickly() -> None:
    run = Run()
    run.ticks(10, rate=100)
    run.ticks(3, quiet=True)
    assert run.pacer.resting
    assert run.pacer.due == run.now + RESTING
    later = run.now + 0.5
    assert run.pacer.stir(later)
    assert run.pacer.due == later + SHORTEST
    assert not run.pacer.stir(later), "what comes after the first waits for the same tick"


def test_single_message_does_not_shorten_the_period() -> None:
    run = Run()
    run.ticks(3, quiet=True)
    period, last = run.pacer.period, run.now
    run.pacer.stir(last + 0.001)
    assert run.pacer.due == last + period


def test_period_grows_while_a_peer_stays_silent() -> None:
    run = Run()
    run.ticks(15)
    assert run.pacer.period == USUAL
    assert run.ticks(10) == LONGEST
    run.pacer.stir(run.now)
    assert run.pacer.due <= run.now + USUAL
