"""The founding round: all small schedules, and random ones with crashes, lost links and clocks that go back."""

import copy
import random
from collections import Counter, deque
from collections.abc import Iterator

import pytest

from crdtcast.engine.founding import Announcement, Begun, FoundingRound, Late
from crdtcast.engine.level import Span
from crdtcast.exceptions import ConfigurationError
from tests.effort import examples, seeds
from tests.simulator.mutants import FOUNDING_MUTANTS


class Process:
    """One life of a founder: its round, or the group that it is in."""

    def __init__(self, town: "Town", name: str, group: str | None = None) -> None:
        self.town, self.name = town, name
        self.group = group  # what a journal says
        self.round = town.kind(name, town.names, town.fresh(name))

    @property
    def announces(self) -> Announcement | str:
        return self.round.announcement() if self.group is None else self.group


class Town:
    """Founders on links that break, with everything in flight in order; a link's frames are lost with it."""

    def __init__(
        self, names: str, journals: str = "", kind: type[FoundingRound] = FoundingRound
    ) -> None:
        self.kind = kind
        self.names, self.journals = tuple(names), set(journals)
        self.twin = ""
        self.clock = Counter[str]()
        self.saved: dict[str, str] = {}
        self.up: dict[str, Process] = {}
        self.flights: dict[tuple[str, str], deque[Announcement | str]] = {}
        self.told: dict[tuple[str, str], Announcement | str] = {}
        self.members: dict[str, set[str]] = {}
        self.counts = Counter[str]()

    def fresh(self, name: str):
        def make(previous: str | None) -> str:
            time = self.clock[name] + 1
            if previous is not None:
                time = max(time, int(previous.split(".")[1][:4]) + 1)
            self.clock[name] = time
            self.counts["lives"] += 1
            return f"{name}.{time:04}{self.counts['lives']:04}"  # what stands for its random bits is never the same

        return make

    def start(self, key: str, back: int = 0) -> None:
        """key: the founder's name; behind it another letter for a second process of that name."""
        name = key[0]
        self.clock[name] = max(0, self.clock[name] - back)
        self.up[key] = Process(self, name, self.saved.get(name) if key == name else None)

    def crash(self, name: str) -> None:
        del self.up[name]
        for pair in [pair for pair in self.told if name in pair]:
            self.cut(*pair)

    def cut(self, a: str, b: str) -> None:
        for pair in ((a, b), (b, a)):
            if self.flights.pop(pair, None) is not None:
                del self.told[pair]
                if pair[0] in self.up:
                    self.up[pair[0]].round.gone(pair[1][0])

    def link(self, a: str, b: str) -> None:
        for one, other in ((a, b), (b, a)):
            for key in self.up:  # one link with each name
                if key != other and key[0] == other[0] and (one, key) in self.told:
                    self.cut(one, key)
        for pair in ((a, b), (b, a)):
            self.flights[pair] = deque()
            self.told[pair] = ""
        self.tell()

    def tell(self) -> None:
        for (a, b), told in self.told.items():
            says = self.up[a].announces
            if says != told:
                self.told[a, b] = says
                self.flights[a, b].append(says)

    def deliver(self, a: str, b: str) -> None:
        said, process = self.flights[a, b].popleft(), self.up[b]
        if process.group is None:
            try:
                if isinstance(said, str):
                    process.round.heard_of_group(said)
                else:
                    process.round.heard(a[0], said)
            except ConfigurationError:
                assert len([key for key in self.up if key[0] == b[0]]) > 1, "it has its name alone"
                self.counts["refused"] += 1
                self.crash(b)
            else:
                self.look(process)
        self.tell()

    def look(self, process: Process) -> None:
        match process.round.outcome:
            case Begun(me, group, members, _):
                assert me in {member.incarnation for member in members}
                process.group = group
                self.members[group] = {member.incarnation for member in members}
                self.counts["begun"] += 1
            case Late(group):
                process.group = group
                assert process.round.me not in self.members[group], "it would replace itself"
                self.counts["late"] += 1
        if process.group is not None and process.name in self.journals:
            self.saved[process.name] = process.group

    def check(self) -> None:
        """Of two processes of one name, one may begin with a set that the others have left for the other one."""
        alone = [p for p in self.up.values() if p.name != self.twin[:1]]
        groups = {p.group for p in alone if p.group is not None}
        groups |= {g for name, g in self.saved.items() if name not in (*self.up, self.twin[:1])}
        assert len(groups) <= 1, f"two groups have begun: {groups}"

    def key(self) -> object:
        """All that what comes depends on."""
        lives = [
            (p.name, p.group, p.round.announcement(), p.round._heard, sorted(p.round._confirmed))
            for p in self.up.values()
        ]
        spent = self.counts["crashes"], self.counts["cuts"]
        return repr(
            (sorted(lives, key=lambda life: life[0]), self.flights, self.saved, self.clock, spent)
        )

    # Schedules

    def choices(self, crashes: int, backs: bool) -> Iterator[tuple[str, ...]]:
        for name in self.names:
            if name not in self.up:
                yield ("start", name)
                if backs and self.clock[name]:
                    yield ("start-back", name)
            elif self.counts["crashes"] < crashes:
                yield ("crash", name)
        if self.twin and self.twin not in self.up and not self.counts["twins"]:
            yield ("twin", self.twin)
        up = sorted(self.up)
        for i, a in enumerate(up):
            for b in up[i + 1 :]:
                if (a, b) in self.flights:
                    if self.counts["cuts"] < crashes:
                        yield ("cut", a, b)
                elif a[0] != b[0]:
                    yield ("link", a, b)
        for (a, b), flight in self.flights.items():
            if flight:
                yield ("deliver", a, b)

    def do(self, verb: str, *who: str) -> None:
        match verb:
            case "start":
                self.start(*who)
            case "twin":
                self.counts["twins"] += 1
                self.start(*who)
            case "start-back":
                self.start(*who, back=2)
            case "crash":
                self.counts["crashes"] += 1
                self.crash(*who)
            case "cut":
                self.counts["cuts"] += 1
                self.cut(*who)
            case _:
                getattr(self, verb)(*who)
        self.check()

    def settle(self) -> None:
        for key in sorted(self.up):
            if key[0] == self.twin[:1]:
                self.crash(key)  # an operator stops both, and starts one, with nothing
        self.saved.pop(self.twin[:1], None)
        self.twin = ""
        for name in self.names:
            if name not in self.up:
                self.do("start", name)
        for _ in range(200):
            busy = [c for c in self.choices(0, False) if c[0] in ("link", "deliver")]
            if not busy:
                break
            self.do(*busy[0])
        groups = {process.group for process in self.up.values()}
        assert len(groups) == 1 and None not in groups, f"not all are in one group: {groups}"


def run(seed: int, kind: type[FoundingRound] = FoundingRound) -> Town:
    """One random run. Some links are slow, and founders that crash are up again soon."""
    chance = random.Random(seed)
    names = "abcd"[: chance.choice((2, 3, 3, 3, 4))]
    town = Town(names, "".join(n for n in names if chance.random() < 0.3), kind)
    if chance.random() < 0.3:
        town.twin = chance.choice(names) + "~"
    crashes, backs = chance.randrange(1, 6), chance.random() < 0.5
    keys = [*names, *([town.twin] if town.twin else ())]
    pace = {(a, b): chance.choice((0.1, 1, 6)) for a in keys for b in keys}
    weights = {"link": 4, "start": 4, "start-back": 4, "twin": 2, "crash": 0.7, "cut": 0.3}
    for _ in range(chance.randrange(20, 120)):
        options = list(town.choices(crashes, backs))
        if not options:
            break
        likely = [pace[o[1:]] if o[0] == "deliver" else weights[o[0]] for o in options]  # type: ignore[index]
        town.do(*chance.choices(options, likely)[0])
    town.settle()
    return town


def test_no_two_groups_begin_and_all_end_up_in_one() -> None:
    counts = Counter[str]()
    for seed in seeds(400):
        counts += run(seed).counts
    print(dict(counts))
    assert counts["begun"] and counts["late"] and counts["crashes"] and counts["cuts"]


NEEDED = {
    "TakesLowerIds": 25673,
    "KeepsItsId": 19,
    "CountsAnyConfirmation": 19,
    "ForgetsWhatItConfirmed": 0,
    "BeginsUnconfirmed": 260,
}
"""The mutants, and seeds that were searched for: of 60,000 the first one is missed by two lives of one name only."""


@pytest.mark.parametrize("mutant", FOUNDING_MUTANTS)
def test_each_rule_is_needed(mutant: str) -> None:
    run(NEEDED[mutant])
    with pytest.raises(AssertionError):
        run(NEEDED[mutant], FOUNDING_MUTANTS[mutant])


@pytest.mark.parametrize(
    ("names", "journals", "crashes", "backs", "limit"),
    [
        ("ab", "", 2, True, 3_000),
        ("ab", "a", 2, True, 3_000),
        ("abc", "", 1, False, 3_000),
        ("abc", "b", 1, False, 3_000),
    ],
)
def test_every_schedule_of_a_small_scope(
    names: str, journals: str, crashes: int, backs: bool, limit: int
) -> None:
    """Each state once. `check` looks for two groups in each; from a sample of them, all settles."""
    begin = Town(names, journals)
    seen, pending = {begin.key()}, [begin]
    chance = random.Random(0)
    while pending:
        town = pending.pop()
        for choice in town.choices(crashes, backs):
            after = copy.deepcopy(town)
            after.do(*choice)
            if (key := after.key()) not in seen:
                seen.add(key)
                pending.append(after)
                if chance.random() < 0.05:
                    copy.deepcopy(after).settle()
        if len(seen) > examples(limit):
            break
    print(f"{len(seen):,} states, {len(pending):,} of them not looked into")


def pair(first: FoundingRound, second: FoundingRound) -> None:
    """Both tell each other all they have to say, until neither has anything new."""
    told: dict[str, object] = {}
    for _ in range(10):
        for one, other in ((first, second), (second, first)):
            if told.get(one.name) != one.announcement():
                told[one.name] = one.announcement()
                other.heard(one.name, one.announcement())


def rising(name: str, time: int = 0):
    def fresh(previous: str | None) -> str:
        nonlocal time
        time = max(time, 0 if previous is None else int(previous[-4:])) + 1
        return f"{name}.{time:04}"

    return fresh


def test_lists_that_differ_are_an_error_that_prints_both() -> None:
    a = FoundingRound("a", "ab", rising("a"))
    b = FoundingRound("b", "abc", rising("b"))
    with pytest.raises(
        ConfigurationError, match=r"'b' founds the group with a, b, c, and 'a' with a, b:"
    ):
        a.heard("b", b.announcement())
    assert a.outcome is None


def test_missing_founder_is_named_until_it_confirms() -> None:
    a, b = FoundingRound("a", "abc", rising("a")), FoundingRound("b", "abc", rising("b"))
    assert a.missing() == ["b", "c"]
    pair(a, b)
    assert a.missing() == ["b", "c"] and a.outcome is None  # b has not heard c


def test_one_founder_begins_alone() -> None:
    assert isinstance(FoundingRound("a", "a", rising("a")).outcome, Begun)


def test_all_begin_with_the_same_members_levels_and_witnesses() -> None:
    a = FoundingRound("a", "ab", rising("a"), reads=Span(1, 3))
    b = FoundingRound("b", "ab", rising("b"), witness=True, reads=Span(2, 4))
    pair(a, b)
    assert isinstance(a.outcome, Begun) and isinstance(b.outcome, Begun)
    assert a.outcome.group_id == b.outcome.group_id and a.outcome.members == b.outcome.members
    assert a.outcome.level == 2 and [m.witness for m in a.outcome.members] == [False, True]


def test_programs_without_a_level_in_common_do_not_found_a_group() -> None:
    a = FoundingRound("a", "ab", rising("a"), reads=Span(1, 1))
    b = FoundingRound("b", "ab", rising("b"), reads=Span(2, 2))
    with pytest.raises(ConfigurationError, match="no common format level"):
        pair(a, b)


def test_founder_with_a_clock_set_back_still_founds() -> None:
    a, former = FoundingRound("a", "ab", rising("a")), FoundingRound("b", "ab", rising("b", 7))
    a.heard("b", former.announcement())
    b = FoundingRound("b", "ab", rising("b"))
    pair(a, b)
    assert isinstance(b.outcome, Begun) and b.outcome.me == "b.0009"


def test_of_two_processes_of_one_name_one_is_refused() -> None:
    """Each hears of the other's id through a, which has links with both in turn."""
    a = FoundingRound("a", "abc", rising("a"))
    twins = [FoundingRound("b", "abc", rising("b")), FoundingRound("b", "abc", rising("b", 3))]
    refused = []
    for _ in range(20):
        for twin in twins:
            a.heard("b", twin.announcement())
            try:
                twin.heard("a", a.announcement())
            except ConfigurationError as error:
                assert "'a' knows another process called 'b'" in str(error)
                refused.append(twin)
                twins.remove(twin)
    assert len(refused) == 1


def test_late_founder_joins_the_group_that_has_begun() -> None:
    a, b = FoundingRound("a", "ab", rising("a")), FoundingRound("b", "ab", rising("b"))
    pair(a, b)
    assert isinstance(a.outcome, Begun)
    again = FoundingRound("b", "ab", rising("b", 5))
    again.heard_of_group(a.outcome.group_id)
    assert again.outcome == Late(a.outcome.group_id)


def test_confirmed_founder_begins_when_another_has_begun() -> None:
    a, b = FoundingRound("a", "ab", rising("a")), FoundingRound("b", "ab", rising("b"))
    a.heard("b", b.announcement())
    b.heard("a", a.announcement())
    assert isinstance(b.outcome, Begun) and a.outcome is None
    a.gone("b")  # its confirmation is lost
    a.heard_of_group(b.outcome.group_id)
    assert isinstance(a.outcome, Begun) and a.outcome.members == b.outcome.members
