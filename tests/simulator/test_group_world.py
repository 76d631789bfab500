"""Groups that change: replay, shrinking, what is impossible, and runs that were failures once."""

import itertools
import json
import random
from collections import Counter

import pytest

from crdtcast.engine.membership import Standing
from crdtcast.engine.operations import Cut, How
from crdtcast.simulator.campaign import run_group_seed, run_schedule
from crdtcast.simulator.campaigns import CAMPAIGNS
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.group.drain import OperatorSteps
from crdtcast.simulator.group.machine import MachinePhase
from crdtcast.simulator.group.verdict import drain_and_judge
from crdtcast.simulator.group.world import GroupWorld
from crdtcast.simulator.schedule import GroupSchedule
from crdtcast.simulator.shrink import shrink
from tests.effort import seeds
from tests.simulator.hash_seeds import printed

from .group_traces import replay_group
from .traces import Trace, load
from .written import actions, play

EVERYTHING = CAMPAIGNS["everything"]


def world_after(founders, text, witnesses=""):
    world = GroupWorld(tuple(founders), tuple(witnesses))
    for action in actions(text):
        assert world.apply(action), action
    return world


def flow(world, *pairs):
    """Everything in flight between these arrives, in order, and is taken and synced."""
    for a, b in pairs:
        while (a, b) in world.wires.flights:
            world.apply(("net", a, b, 0))
        while world.apply(("poll", b)):
            pass
        world.apply(("sync", b))


def settle(world, names):
    """Rounds in which all between these arrives, and what was parked is sent again."""
    pairs = list(itertools.permutations(names, 2))
    for _ in range(40):
        for name in filter(lambda name: world.machines[name].up, names):
            while world.apply(("reissue", name)):
                pass
            for verb in ("tick", "stable", "sync"):
                world.apply((verb, name))
        flow(world, *pairs)


@pytest.mark.parametrize("seed", seeds(4))
def test_recorded_actions_replay_the_same_run(seed):
    outcome = run_group_seed(seed, EVERYTHING, range(3, 7))
    again = run_schedule(outcome.schedule)
    for counts in (again.counts, outcome.counts):
        del counts["not_ready"]  # of joins that were refused, which are not in the schedule
    assert again.counts == outcome.counts
    assert again.schedule == outcome.schedule


def test_a_failure_is_shrunk_and_survives_a_file(tmp_path):
    campaign = CAMPAIGNS["static"]
    runs = (
        run_group_seed(s, campaign, range(3, 4), engine="tests.simulator.mutants:NoContext")
        for s in range(50)
    )
    outcome = next(outcome for outcome in runs if outcome.kind)
    shrunk = shrink(outcome, run_schedule)
    assert shrunk.kind == outcome.kind
    assert len(shrunk.schedule.actions) < 12 < len(outcome.schedule.actions)
    path = tmp_path / "run.json"
    path.write_text(shrunk.schedule.to_json(shrunk.failure), encoding="utf-8")
    assert json.loads(path.read_text("utf-8"))["engine"] == "tests.simulator.mutants:NoContext"
    again = run_schedule(GroupSchedule.load(path))
    assert (again.kind, again.failure) == (shrunk.kind, shrunk.failure)


def test_impossible_action_changes_nothing():
    world = GroupWorld(("a", "b"))
    before = {name: machine.running.state() for name, machine in world.machines.items()}
    for action in actions(
        "net a b 99 / link a b / join a b / leave z / evict a z / evict a a / revive a / ghost a 0 /"
        " surrender a / poll a / stable a / reissue a / copy a b / replace c a b / join c z"
        " / mute a a / torn z 0"
    ):
        assert not world.apply(action), action
    assert {name: m.running.state() for name, m in world.machines.items()} == before
    drain_and_judge(world)


def test_unknown_action_is_an_error():
    with pytest.raises(Failure, match="unknown action 'dance'"):
        GroupWorld(("a", "b")).apply(("dance", "a"))


class TestJournals:
    def test_nothing_leaves_before_the_sync(self):
        world = world_after("ab", "send a")
        assert not any(
            parcel.content for f in world.wires.flights.values() for parcel in f if _is(parcel)
        )
        world.apply(("sync", "a"))
        assert any(_is(parcel) for parcel in world.wires.flights["a", "b"])

    def test_crash_loses_everything_after_the_last_sync(self):
        world = world_after("ab", "send a / sync a / send a / crash a")
        machine = world.machines["a"]
        assert machine.running.vector[machine.me] == 1
        assert sorted(machine.application.applied) == [b"a:0"]
        drain_and_judge(world)
        assert sorted(world.machines["b"].application.applied) == [b"a:0"]

    def test_a_torn_journal_is_a_new_incarnation_that_sends_again(self):
        world = world_after("abc", "mute a b / mute a c / send a / sync a / torn a 0")
        old = world.machines["a"].me
        drain_and_judge(world)
        machine = world.machines["a"]
        assert machine.me != old
        assert world.counts["reissued"] == 1
        assert sorted(world.machines["b"].application.applied) == [b"a:0"]

    def test_message_lost_by_a_torn_journal_may_be_missing(self):
        world = world_after("abc", "mute a b / mute a c / send a / sync a / torn a 1")
        drain_and_judge(world)
        assert not world.machines["b"].application.applied

    def test_backup_restored_after_settling_resends_nothing(self):
        world = world_after("abc", "mute a b / mute a c / send a / sync a / torn a 0")
        drain_and_judge(world)
        world.settling = False
        assert world.counts["reissued"] == 1
        assert world.apply(("restore", "a", 0))
        drain_and_judge(world)
        assert world.counts["reissued"] == 1
        assert sorted(world.machines["b"].application.applied) == [b"a:0"]

    def test_crash_during_the_resend_repeats_nothing(self):
        world = world_after("abc", "mute a b / mute a c / send a / send a / sync a / torn a 0")
        world.apply(("link", "a", "b"))
        world.apply(("join", "a", "b"))
        for _ in range(20):
            for name in "abc":
                world.apply(("tick", name))
                world.apply(("sync", name))
            flow(world, *(pair for pair in world.wires.busy))
        machine = world.machines["a"]
        assert world.apply(("reissue", "a"))
        assert world.apply(("sync", "a"))
        flow(world, ("a", "b"), ("a", "c"))
        assert world.apply(("reissue", "a"))
        assert world.apply(("crash", "a"))
        assert len(machine.parked.copies) == 1
        drain_and_judge(world)
        assert sorted(world.machines["c"].application.applied) == [b"a:0", b"a:1"]


class TestMembers:
    def test_a_joiner_has_the_application_of_its_contact(self):
        world = world_after("ab", "send a / sync a / join c a / sync a / net a c 0 / send c")
        assert sorted(world.machines["c"].application.applied) == [b"a:0", b"c:1"]
        drain_and_judge(world)
        assert len(world.machines["b"].running.members) == 3

    def test_a_copy_is_completed_from_the_state(self):
        world = world_after("ab", "send a / sync a / copy c a / send a / join c a / sync a")
        letter = next(p.content for p in world.wires.flights["a", "c"])
        assert list(letter.application) == [b"a:1"]
        drain_and_judge(world)
        assert world.counts["bulk_joins"] == 1

    def test_a_leaver_goes_and_may_come_back_under_a_new_id(self):
        world = world_after("abc", "send c / leave c / sync c")
        drain_and_judge(world)
        machine = world.machines["c"]
        assert machine.phase is MachinePhase.LEFT
        old = machine.me
        assert world.apply(("join", "c", "a"))
        drain_and_judge(world)
        assert machine.up
        assert machine.me != old

    @pytest.mark.parametrize("seed", [11, 25, 30, 77])
    def test_all_members_leave_at_about_the_same_time(self, seed):
        chance = random.Random(seed)
        names = "abcde"[: chance.choice((2, 3, 4, 5))]
        world = GroupWorld(tuple(names))
        leaves = {name: chance.randrange(30) for name in names}
        for round_ in range(150):
            for name in chance.sample(names, len(names)):
                if round_ < 10 and chance.random() < 0.3:
                    world.apply(("send", name))
                if round_ == leaves[name]:
                    world.apply(("leave", name))
                world.apply(("tick", name))
                world.apply(("sync", name))
            for pair in world.wires.busy:
                for _ in range(chance.randrange(1, 6)):
                    world.apply(("net", *pair, 0))
            for name in names:
                while world.apply(("poll", name)):
                    pass
                world.apply(("sync", name))
        assert {m.phase for m in world.machines.values()} == {MachinePhase.LEFT}

    def test_leaver_admitted_beyond_a_cut_returns_and_resends(
        self,
    ):
        world = world_after(
            "abc",
            "cut c a / cut c b / join d c / sync c / net c d 0 / cut d a / cut d b / cut d c / send d / sync d"
            " / evict b c / sync b",
        )
        settle(world, "ab")
        assert not world.machines["a"].running.victims
        world.apply(("link", "b", "c"))
        world.apply(("link", "a", "c"))
        settle(world, "abc")
        world.apply(("join", "c", "b"))
        settle(world, "abc")
        assert not {**world.machines["a"].running.tombs, **world.machines["a"].running.ended}
        assert world.apply(("leave", "d"))
        drain_and_judge(world)
        assert world.counts["reissued"] == 1
        assert world.machines["d"].up

    def test_evicted_member_returns_and_resends(self):
        world = world_after("abcd", "mute d a / mute d b / mute d c / send d / sync d / evict a d")
        drain_and_judge(world)
        assert world.counts["reissued"] == 1
        assert {len(machine.running.members) for machine in world.living()} == {4}

    def test_dead_minority_is_evicted_and_a_dead_majority_revived(self):
        world = world_after("abc", "die c")
        drain_and_judge(world)
        assert [m.name for m in world.living()] == ["a", "b"]
        world = world_after("abc", "die b / die c")
        drain_and_judge(world)
        assert world.counts["revived"] >= 1

    def test_operator_keeps_one_side_after_mutual_forced_evictions(self):
        world = world_after("ab", "cut a b / force a b / force b a")
        for _ in range(20):
            for name in "ab":
                world.apply(("tick", name))
                world.apply(("sync", name))
        drain_and_judge(world)
        assert world.counts["disputed"] >= 1
        assert {m.running.standing for m in world.living()} == {Standing.MEMBER}
        assert len(world.living()[0].running.members) == 2

    def test_ghost_is_told_of_its_end(self):
        world = world_after("abc", "leave c / sync c")
        drain_and_judge(world)
        assert world.counts["ghosts_told"] == 1

    def test_copy_is_not_a_ghost_before_its_end_is_durable(self):
        world = world_after("bc", "torn c 1 / join c b")
        old, host = world.machines["c"].former[0][0], world.machines["b"]
        for _ in range(60):
            world.apply(("tick", "b"))
        assert old not in host.running.members
        assert not world.apply(("ghost", "c", 0))
        assert world.apply(("crash", "b"))
        assert old in host.running.members
        drain_and_judge(world)
        assert world.counts["ghosts_told"] == 1


def _is(parcel):
    return getattr(parcel.content, "dot", None) is not None


@pytest.mark.parametrize("trace", load("schedule"), ids=str)
def test_schedules_that_break_published_algorithms_pass(trace: Trace):
    world = replay_group(trace)
    assert not world.checker.findings


def failures():
    """Once failures of the engine, or of what was taken for its rules: founders, witnesses, actions."""
    return {
        "a joiner owes a report on who was replaced with it": (
            "abcdef",
            "",
            "torn f 0",
        ),
        "a past names an origin exactly or not at all": (
            "abcde",
            "",
            "tick b / mute b a / sync e / send b / sync b / net b c 2 / poll c / leave c / send e / leave e",
        ),
        "a later letter holds evictions that began after the join": (
            "abc",
            "",
            "torn a 1 / torn c 2 / join a b / join c b / sync b / drop b a 0",
        ),
        "operations of one who was let in beyond a cut": (
            "abc",
            "",
            "evict b a / join e a / sync b / sync a / net a e 0 / send e",
        ),
        "the only living member is a joiner": (
            "abcde",
            "",
            "leave d / leave c / leave a / mute b d / torn e 0 / join e b / sync b / leave b",
        ),
        "a leave carries conclusions": (
            "abcde",
            "",
            "evict d c / sync d / leave a / die d / replace f d e / leave e / leave b",
        ),
        "two leavers ask on": (
            "abcde",
            "",
            "leave c / cut e c / sync c / tick c / tick e / tick e / tick c / net c a 0 / tick c / leave e"
            " / tick e / dup c a 0",
        ),
        "a joiner's letter was lost before its contact was cut off": (
            "abcdef",
            "",
            "crash b / join g a / sync a / evict f a / net a g 0 / join j f / crash e / sync f / torn d 0"
            " / crash c / send g / die f",
        ),
        "the last one standing is a victim": (
            "abcd",
            "",
            "torn d 2 / evict c a / evict c b / sync c / torn c 1",
        ),
        "a copy with what was cut off": (
            "abc",
            "",
            "mute b c / send b / sync b / evict a b / copy i b / join i b / die b",
        ),
        "a report by somebody who is not a member yet": (
            "abcd",
            "",
            "evict a d / join e c / sync c / die c / net c e 0 / crash b",
        ),
        "a member in its own eyes only": (
            "abc",
            "",
            "torn a 2 / join a c / sync c / torn c 1 / join c b",
        ),
        "a member in its own eyes only that an operator makes the group": (
            "abc",
            "",
            "torn a 1 / join a c / sync c / torn c 1 / net c a 0 / evict a b / send a / sync a / die a / crash b"
            " / join d b / sync b / net b d 0 / evict b d",
        ),
        "a leaver that is a victim": ("abc", "c", "leave c / evict b a / leave a"),
        "somebody's sweep is no leave to go": (
            "abcd",
            "",
            "leave b / leave c / send a / join e a / leave a / evict d a",
        ),
        "a past across what was dropped": (
            "abcde",
            "e",
            "leave e / sync e / send b / net e a 0 / net e a 0 / send b / poll a / crash d / send b"
            " / sync b / torn b 1 / evict d a / tick a / tick a / tick a",
        ),
        "one base at two contacts": (
            "abcdef",
            "f",
            "sync c / join g c / drop c e 0 / sync c / crash c / net c e 0 / evict b d / poll e / join g e"
            " / crash e / join g e / join g b",
        ),
        "two of three, one of them by force": ("abc", "", "evict a c / force a b"),
        "what a victim's message rests on no longer": (
            "abcde",
            "",
            "torn d 1 / leave a / send e / send e / evict b e / evict e c / sync e / net e c 2 / net e a 0"
            " / net e c 0 / net e c 0 / drop e a 0 / net e c 0 / leave b / join d c / torn e 2",
        ),
        "a leaver that comes back, and did not know that it was a member": (
            "abcd",
            "d",
            "sync b / evict c a / drop b d 0 / join e b / sync b / drop b d 0 / net b e 0 / sync c / leave a"
            " / drop c e 0 / send e / leave e",
        ),
        "in the place of one that goes on after all": (
            "abcd",
            "d",
            "leave a / evict c d / die b / mute c d / replace e b c / sync c / drop c e 0 / leave c",
        ),
        "a leaver that only another leaver has heard": (
            "abc",
            "",
            "leave a / crash c / send b / leave b / join d c / sync c / leave c / net c d 0 / link b c"
            " / evict d b / tick b",
        ),
        "all have left, and whom they had evicted goes on": (
            "abc",
            "",
            "evict b c / sync b / net b a 0 / net b a 0 / net b a 0 / send a / poll a / leave b / poll a"
            " / leave a / crash c",
        ),
        "a leaver that was let in beyond a cut, told when nobody knows its contact any more": (
            "abc",
            "",
            "evict b c / leave a / join d c / sync c / dup c d 0 / send d / leave d",
        ),
        "the last one with a state loses its journal, and one that it had evicted goes on": (
            "abc",
            "",
            "torn a 1 / die c / send b / evict b c / join a b / replace d c b / tick b / stable b / mute b d"
            " / sync b / dup b a 0 / die a / torn b 0",
        ),
        "a copy of a life whose end was not durable yet": (
            "abc",
            "",
            "torn c 1 / torn a 1 / evict b a / join c b / join a b / tick b / ghost c 0 / crash b",
        ),
        "a leaver that counts on a leaver, and one that goes on and knows it for a victim": (
            "abcd",
            "",
            "leave c / send d / leave d / leave a / mute b c / mute b d / join e b / evict b d / cut d a / sync b"
            " / leave b" + " / tick d" * 20,
        ),
        "a leaver that counts on a victim, and one that goes on and has cut both off": (
            "abcdef",
            "",
            "leave f / send a / evict b a / leave c / send e / sync e / evict b e / leave e / join h a / leave b"
            " / leave d / sync a / net a h 0",
        ),
        "a leaver that has left its operations with members whom an operator gives up": (
            "abcdef",
            "",
            "leave f / send a / evict b a / leave c / send e / sync e / evict b e / leave e / join h a / leave b"
            " / leave d / join j a / sync a / net a h 0",
        ),
        "a leaver told its end by one whom somebody let in who had its leave": (
            "abcd",
            "",
            "join e c / join f c / sync c / net c f 0 / send f / leave d / join g b / evict b c / leave a"
            " / evict f b / die c / leave f",
        ),
        "a leaver that does not know the contact of others": (
            "abcd",
            "",
            "evict b d / sync c / evict a c / join f b / leave b / leave a / join g c / join e d",
        ),
        "whom a victim has let in since": (
            "abcdef",
            "",
            "evict a c / torn d 0 / die b / join g a / sync a / replace j b a / net a g 0 / crash g"
            " / leave a / replace l b c / crash c / join k c / torn e 1 / join m c",
        ),
    }


@pytest.mark.parametrize("name", failures())
def test_schedule_of_a_fixed_failure_passes(name):
    founders, witnesses, text = failures()[name]
    outcome = play(founders, text, witnesses)
    assert outcome.kind is None, outcome.failure


def fingerprint(hash_seed: str) -> str:
    program = (
        "import hashlib, json\n"
        "from crdtcast.simulator.campaign import run_group_seed\n"
        "from crdtcast.simulator.campaigns import CAMPAIGNS\n"
        "for seed in range(4):\n"
        "    o = run_group_seed(seed, CAMPAIGNS['everything'], range(3, 7))\n"
        "    text = o.schedule.to_json() + json.dumps(sorted(o.counts.items()))\n"
        "    print(hashlib.sha256(text.encode()).hexdigest())\n"
    )
    return printed(program, hash_seed)


@pytest.mark.process
def test_runs_do_not_depend_on_the_hash_seed():
    assert fingerprint("1") == fingerprint("4242")


class TestOperators:
    """Two groups at the end are a failure; the steps that an operator took to end up with one are counted."""

    @staticmethod
    def part(world, *others):
        """a and b are without each other, and without these."""
        world.apply(("cut", "a", "b"))
        for mine, other in ("ab", "ba"):
            engine = world.machines[mine].running
            for name in (other, *others):
                engine._membership.end(world.machines[name].me, Cut(0, How.FORCED))

    @pytest.mark.parametrize("after", [1, 2], ids=["run", "ghosts"])
    def test_two_groups_after_the_last_step_are_a_failure(self, monkeypatch, after):
        world = GroupWorld(("a", "b"))
        turns = itertools.count(1)

        def settles_nothing(drain):
            if next(turns) == after:
                self.part(drain.world)

        monkeypatch.setattr("crdtcast.simulator.group.drain.Drain.run", settles_nothing)
        with pytest.raises(Failure, match=r"members of two groups|missing") as caught:
            drain_and_judge(world)
        assert caught.value.kind == "split"

    def test_two_groups_are_a_failure_even_without_data(self, monkeypatch):
        world = GroupWorld(("a", "b", "c", "d"), ("a", "b"))
        world.apply(("die", "c"))
        world.apply(("die", "d"))
        self.part(world, "c", "d")
        monkeypatch.setattr("crdtcast.simulator.group.drain.Drain.run", lambda drain: None)
        with pytest.raises(Failure, match=r"a.* and b.* are members of two groups"):
            drain_and_judge(world)

    def test_the_steps_that_an_operator_takes_in_the_end_are_counted(self):
        for text in ("evict a b", "evict a b / evict b a"):
            assert OperatorSteps.of(play("ab", text).counts).second == 0
        counts = Counter(evict_asked=2, second_forced=1, second_replaced=3)
        assert str(OperatorSteps.of(counts)).endswith("4 second steps (1 forced, 3 replaced)")
        chosen = play("ab", "force a b")
        assert OperatorSteps.of(chosen.counts).second == 0
