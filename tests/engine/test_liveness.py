"""How many ticks a change of the view takes: on links that take no time, and on links of 200 ms at 50 ms a tick.

The figures are upper bounds here, and are printed as measured (`pytest -s`); docs/protocol.md has the same table.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from crdtcast.causality.messages import Transmit
from crdtcast.engine import Standing
from tests.engine.town import Town

SLOW = 4
"""Ticks that a frame takes: 200 ms at 50 ms a tick."""
NEVER = 400
"""Ticks after which nothing more is expected."""


class Country(Town):
    """A town whose frames take `delay` ticks; if `slow` is given, only those to and from these members."""

    def __init__(
        self,
        names: Iterable[str],
        delay: int,
        *,
        slow: Iterable[str] = (),
        witnesses: Iterable[str] = (),
    ) -> None:
        self._delay = delay
        self._slow = set(slow)
        self._now = 0
        self._travelling: list[tuple[int, str, str, object]] = []
        super().__init__(names, witnesses)
        for name in self.engines:
            self.send(name, name.encode())
        self.run()

    def send_off(self, sender: str, effect: Transmit) -> None:
        for name, engine in self.engines.items():
            if name == sender or effect.to not in (None, engine.me):
                continue
            is_slow = not self._slow or self._slow & {sender, name}
            due = self._now + (self._delay if is_slow else 0)
            self._travelling.append((due, sender, name, effect.message))
        self._depart()

    def _depart(self) -> None:
        travelling, self._travelling = self._travelling, []
        for due, sender, name, message in travelling:
            if due > self._now:
                self._travelling.append((due, sender, name, message))
            elif {sender, name} <= self.engines.keys() and self.is_linked(sender, name):
                self.flights[sender, name].append(message)

    def run(self, ticks: int = 40) -> None:
        self.until(lambda: False, ticks)

    def until(self, is_done: Callable[[], bool], most: int = NEVER) -> int:
        """How many ticks it takes; `most` if it does not come to that."""
        self.pump()
        for ticks in range(most):
            if is_done():
                return ticks
            for engine in self.engines.values():
                engine.tick()
            self._now += 1
            self._depart()
            self.pump()
            for name, engine in list(self.engines.items()):
                if engine.standing in (Standing.LEFT, Standing.EVICTED):
                    self.take_down(name)
        return most

    def until_gone(self, *incarnations: str) -> int:
        """Until no member has any of these among its members."""
        return self.until(
            lambda: (
                not any(
                    engine.members.keys() & set(incarnations)
                    for engine in self.engines.values()
                    if engine.me not in incarnations
                )
            )
        )

    def kill(self, names: Iterable[str]) -> list[str]:
        """Their ids."""
        return [engine.me for name in names if (engine := self.take_down(name)) is not None]


def evicted(
    names: str,
    dead: str,
    delay: int,
    *,
    slow: str = "",
    unlinked: str = "",
    witnesses: str = "",
    force: bool = False,
) -> int:
    town = Country(names, delay, slow=slow, witnesses=witnesses)
    if unlinked:
        town.cut(*unlinked)
        town.run()
    gone = town.kill(dead)
    town.engines["a"].evict(*gone, force=force)
    return town.until_gone(*gone)


def evicted_alive(names: str, victim: str, delay: int) -> int:
    town = Country(names, delay)
    me = town.id(victim)
    town.engines["a"].evict(me)
    return town.until_gone(me)


def evicted_when_both_are_named(delay: int) -> int:
    town = Country("abcde", delay)
    d, e = town.kill("de")
    town.engines["a"].evict(d)
    town.run(100)
    assert town.engines["a"].waits_for() == [e]
    town.engines["a"].evict(e)
    return town.until_gone(d, e)


def replaced(delay: int) -> int:
    town = Country("ax", delay)
    (old,) = town.kill("x")
    town.join("y", "a", [old])
    return town.until_gone(old)


def voting(delay: int) -> int:
    town = Country("abc", delay)
    joiner = town.join("d", "a").me
    return town.until(lambda: all(joiner in e.view.voters for e in town.engines.values()))


def left(names: str, leavers: str, delay: int) -> int:
    town = Country(names, delay)
    for name in leavers:
        town.engines[name].leave()
    return town.until(lambda: not town.engines.keys() & set(leavers))


def each_other(names: str, delay: int) -> int:
    """The first and the last one."""
    town = Country(names, delay)
    first, last = names[0], names[-1]
    town.engines[first].evict(town.id(last))
    town.engines[last].evict(town.id(first))
    ticks = town.until(lambda: len(town.engines) < len(names))
    assert len({first, last} & town.engines.keys()) == 1
    town.run()
    town.assert_one_group(*town.engines)
    return ticks


Scenario = Callable[[int], int]

SCENARIOS: dict[str, tuple[Scenario, int, int]] = {
    "evict a dead member of three": (lambda d: evicted("abc", "c", d), 0, 32),
    "evict a dead member of five": (lambda d: evicted("abcde", "e", d), 0, 32),
    "evict a dead member of seven": (lambda d: evicted("abcdefg", "g", d), 0, 32),
    "evict a live member of five": (lambda d: evicted_alive("abcde", "e", d), 0, 32),
    "evict two dead members of five, both named": (lambda d: evicted("abcde", "de", d), 0, 32),
    "the same, the second one named later: from then on": (evicted_when_both_are_named, 0, 16),
    "evict a dead member of five; only the links of one other member have the delay": (
        lambda d: evicted("abcde", "e", d, slow="b"),
        0,
        28,
    ),
    "evict a dead member of five, asked at one that lacks a link: records are relayed": (
        lambda d: evicted("abcde", "e", d, unlinked="ab"),
        7,
        74,
    ),
    "two of three evict each other": (lambda d: each_other("abc", d), 1, 32),
    "both of two evict each other": (lambda d: each_other("ab", d), 1, 36),
    "two regions and a witness: evict the dead region": (
        lambda d: evicted("axw", "x", d, witnesses="w"),
        0,
        32,
    ),
    "two regions: replace the dead one, or it comes back": (replaced, 0, 29),
    "two regions: evict the dead one by force": (
        lambda d: evicted("ax", "x", d, force=True),
        8,
        8,
    ),
    "a joiner in a group of three gets its vote": (voting, 2, 30),
    "one of five leaves": (lambda d: left("abcde", "e", d), 1, 36),
    "all of two leave at once": (lambda d: left("ab", "ab", d), 2, 33),
    "all of three leave at once": (lambda d: left("abc", "abc", d), 2, 61),
    "all of five leave at once": (lambda d: left("abcde", "abcde", d), 2, 125),
}
"""With the most ticks it takes without a delay, and over slow links."""


@pytest.mark.parametrize("what", SCENARIOS)
def test_view_change_ends_within_the_documented_ticks(what: str) -> None:
    scenario, at_once, slowly = SCENARIOS[what]
    ticks, slow_ticks = scenario(0), scenario(SLOW)
    print(f"| {what} | {ticks} | {slow_ticks} |")
    assert ticks <= at_once
    assert slow_ticks <= slowly


def test_dead_one_of_two_is_not_evicted_without_an_operator() -> None:
    town = Country("ax", 0)
    (old,) = town.kill("x")
    town.engines["a"].evict(old)
    assert town.until_gone(old) == NEVER
    assert town.engines["a"].waits_for() == [old]
    assert not town.engines["a"].open_change


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_an_eviction_takes_three_round_trips(delay: int) -> None:
    """To ask, to prepare, to accept; every member sees by itself who has accepted."""
    assert evicted("abcde", "e", delay) == 6 * delay


def test_the_page_tells_these_figures() -> None:
    page = Path(__file__).parents[2] / "docs" / "protocol.md"
    rows = re.findall(r"^\| (.*) \| (\d+) \| (\d+) \|$", page.read_text(), re.MULTILINE)
    told = {what: (int(ticks), int(slow_ticks)) for what, ticks, slow_ticks in rows}
    assert told == {what: (most, slowly) for what, (_, most, slowly) in SCENARIOS.items()}
