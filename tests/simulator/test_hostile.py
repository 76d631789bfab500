"""The campaign with a hostile member: what is said, what is judged, what is void, and that it replays."""

import random
import sys

import pytest

from crdtcast.causality.messages import Digest, Ended, Message
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine.group import GroupEngine
from crdtcast.engine.level import Span
from crdtcast.engine.operations import Cut, How, Reads, Settled, Sweep, decode, encode
from crdtcast.engine.view_checks import check_views
from crdtcast.engine.views import Ballot, Views
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.simulator.campaign import run_group_seed, run_schedule
from crdtcast.simulator.campaigns import CAMPAIGNS
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.hostile.engine_size import elements
from crdtcast.simulator.hostile.honest_oracle import HonestChecker
from crdtcast.simulator.hostile.mutation import Lore, Mutation
from crdtcast.simulator.hostile.step_limit import limited
from crdtcast.simulator.hostile.world import HostileWorld
from crdtcast.simulator.oracle import FailureKind
from crdtcast.simulator.schedule import GroupSchedule
from crdtcast.simulator.shrink import shrink
from crdtcast.wire import frames
from tests.effort import seeds

from .mutants import engine_name
from .written import actions

HOSTILE = CAMPAIGNS["hostile"]
A, B, C = (f"{name}.00000000000010000" for name in "abc")


def lies(make, count=300):
    """What `make` makes of so many seeds, at a founder of three that has sent something."""
    engine = GroupEngine.found(C, (A, B, C))
    engine.send(b"x")
    engine.evict(B)
    return [make(Mutation(random.Random(seed), Lore.of(engine))) for seed in range(count)]


def world_after(text, hostile="c", engine_type=GroupEngine):
    world = HostileWorld(("a", "b", "c"), hostile, engine_type)
    for action in actions(text):
        assert world.apply(action), action
    return world


def seed_of(wanted, make=lambda mutation: mutation.frame(A)):
    """The first seed that makes such a lie."""
    return next(n for n, lie in enumerate(lies(make), 0) if n and wanted(lie))


class TestMutation:
    def test_the_same_seed_tells_the_same_lie(self):
        assert lies(lambda m: m.body(m.frame(A))) == lies(lambda m: m.body(m.frame(A)))

    def test_lies_cover_every_kind_of_operation_and_frame(self):
        assert len({type(lie) for lie in lies(Mutation.operation)}) == 4
        told = {type(lie).__name__ for lie in lies(lambda m: m.frame(A))}
        assert told == {"Digest", "Ended", "Message", "Admit", "Copy", "Views"}
        assert {kind for kind, _ in lies(Mutation.payload)} >= {*range(5), 77}

    def test_codec_refuses_damaged_frames_without_other_errors(self):
        refused = 0
        for body in lies(lambda m: m.body(m.frame(A)), 1000):
            try:
                frames.decode(body)
            except RemoteProtocolError:
                refused += 1
        assert 20 < refused < 300

    def test_damaged_operations_are_refused_and_nothing_else_happens(self):
        refused = 0
        for kind, payload in lies(Mutation.payload, 1000):
            try:
                decode(kind, payload)
            except RemoteProtocolError:
                refused += 1
        assert 50 < refused < 500

    def test_lie_replaces_an_operation_by_one_of_its_kind(self):
        reads = Reads(Span(1, 1))
        assert set(lies(lambda m: m.instead_of(reads))) == {reads}
        sweep = Sweep(((B, Cut(1, How.EVICTED)),))
        assert len(set(lies(lambda m: m.instead_of(sweep)))) > 5

    def test_lies_cover_every_field_of_views_and_records(self):
        told = lies(Mutation.views_anew, 2000)
        true = lies(lambda m: m._lore.views, 1)[0]
        for name in Views._fields:
            assert any(getattr(lie, name) != getattr(true, name) for lie in told), name
        records = [r for lie in told for r in lie.records if r.member == C]
        (own,) = (r for r in true.records if r.member == C)
        for name in (
            "serial",
            "epoch",
            "name",
            "sent",
            "promised",
            "promise",
            "accepted",
            "proposal",
        ):
            assert len({repr(getattr(r, name)) for r in records} - {repr(getattr(own, name))}) > 1
        changes = [r.accepted.change for r in records if r.accepted is not None]
        for name in ("cuts", "out", "votes", "level"):
            assert len({getattr(change, name) for change in changes}) > 1

    def test_some_lies_about_views_are_refused_and_some_accepted(self):
        refused = 0
        for lie in (told := lies(Mutation.views_anew, 1000)):
            try:
                check_views(C, lie, {A: 0, B: 0, C: 1}, {})
            except RemoteProtocolError:
                refused += 1
        assert 200 < refused < len(told) - 200


class TestSteps:
    def test_a_loop_that_a_peer_bounds_is_found(self):
        engine = GroupEngine.found(A, (A, B, C))
        before = sys.gettrace()
        said = "ticks runs 1,000 lines, at "
        with pytest.raises(Failure, match=said) as caught, limited("ticks", lines=1000):
            for _ in range(10**9):
                engine.tick()
        assert caught.value.kind == "hang"
        assert sys.gettrace() is before

    def test_loop_that_ends_in_time_is_accepted(self):
        engine = GroupEngine.found(A, (A, B, C))
        with limited("ticks", lines=10_000):
            engine.evict(B)
            engine.tick()

    def test_elements_are_counted_once_and_up_to_a_limit(self):
        engine = GroupEngine.found(A, (A, B, C))
        few = elements(engine)
        engine._strangers.update({f"q{n}": None for n in range(500)})
        assert 500 <= elements(engine) - few <= 1000
        assert elements([list(range(1000)), [], []]) == 1003
        assert elements([[[[1]]]], most=2) == 2


class TestChecker:
    """Of a hostile member's messages it is only judged that honest ones have the same."""

    def checker(self):
        return HonestChecker([A, B])

    def test_message_delivered_by_only_one_honest_member_is_a_loss(self):
        checker = self.checker()
        checker.delivered(A, Dot(C, 1), Tag(Dot(C, 1), (), {}))
        assert FailureKind.LOSS in [finding.kind for finding in checker.finish()]

    def test_duplicate_or_early_delivery_of_a_lie_is_found(self):
        checker = self.checker()
        checker.delivered(A, Dot(C, 1))
        checker.sent(A, Dot(A, 1), Tag(Dot(A, 1), (), {C: 1}))
        checker.delivered(B, Dot(A, 1))
        checker.delivered(A, Dot(C, 1))
        assert [f.kind for f in checker.findings] == [FailureKind.CAUSAL, FailureKind.DUPLICATE]

    def test_stability_of_a_lie_must_be_once_and_after_delivery(self):
        checker = self.checker()
        checker.stable(A, Dot(C, 1))
        checker.delivered(A, Dot(C, 1))
        checker.stable(A, Dot(C, 1))
        checker.stable(A, Dot(C, 1))
        assert [f.kind for f in checker.findings] == [
            FailureKind.STABLE_UNDELIVERED,
            FailureKind.STABLE_TWICE,
        ]


class TestRuns:
    @pytest.mark.parametrize("seed", seeds(4))
    def test_recorded_actions_replay_the_same_run(self, seed, tmp_path):
        outcome = run_group_seed(seed, HOSTILE, range(3, 7))
        path = tmp_path / "run.json"
        path.write_text(outcome.schedule.to_json(), encoding="utf-8")
        again = run_schedule(GroupSchedule.load(path), logs=tmp_path / "logs")
        assert outcome.schedule.hostile in outcome.schedule.members
        for counts in (again.counts, outcome.counts):
            counts["not_ready"] = 0  # of joiners who ask in vain, which is no action of a schedule
        assert (again.counts, again.schedule) == (outcome.counts, outcome.schedule)

    def test_a_failure_is_shrunk_to_the_lie(self):
        engine = engine_name("BlamesNobody")
        runs = (run_group_seed(s, HOSTILE, range(3, 7), engine=engine) for s in range(50))
        outcome = next(outcome for outcome in runs if outcome.kind)
        shrunk = shrink(outcome, run_schedule, runs=100)
        assert shrunk.kind == outcome.kind == "unnamed"
        assert len(shrunk.schedule.actions) < 8

    def test_two_payloads_under_one_dot_and_stolen_names_are_void(self):
        lied = world_after("send c / sync c")
        for receiver in ("a", "b"):
            flight = lied.wires.flights["c", receiver]
            place = next(n for n, each in enumerate(flight) if isinstance(each.content, Message))
            if receiver == "a":
                assert lied.apply(("twist", "c", "a", place, 600))
            assert lied.apply(("net", "c", receiver, place))
        assert lied.void and lied.counts["void"] == 1
        stolen = world_after("frame c a 1500")
        assert stolen.void and stolen.counts["stolen"] == 1

    def test_unexpected_error_fails_even_a_void_run(self):
        class Fragile(GroupEngine):
            def receive(self, sender, message):
                raise KeyError(sender)

        world = world_after("frame c a 3000 / send c / sync c", engine_type=Fragile)
        with pytest.raises(Failure) as caught:
            while ("c", "a") in world.wires.flights:
                world.apply(("net", "c", "a", 0))
        assert caught.value.kind == "KeyError"


class TestWhatIsJudged:
    def test_a_refusal_closes_the_link_and_honest_members_go_on(self):
        far = seed_of(lambda lie: isinstance(lie, Digest) and lie.vector.get(A, 0) > 1)
        world = world_after(f"frame c a {far}")
        while ("c", "a") in world.wires.flights:
            world.apply(("net", "c", "a", 0))
        assert world.counts["refused_frames"] == 1
        assert not world.wires.connected("a", "c")
        assert world.apply(("send", "a"))
        world.judge()
        assert sorted(m.name for m in world.living()) == ["a", "b"]
        assert len(world.machines["b"].application.applied) == 1

    def test_member_told_a_plausible_end_returns(self):
        end = seed_of(lambda lie: lie == Ended(A, None))
        world = world_after(f"send a / sync a / frame c a {end}")
        while ("c", "a") in world.wires.flights:
            world.apply(("net", "c", "a", 0))
        assert world.machines["a"].stopped
        world.judge()
        assert not world.void
        assert {len(m.running.members) for m in world.living()} == {2}

    def test_run_is_void_if_all_believe_they_have_ended(self):
        ends = [
            seed_of(lambda lie, who=who: lie == Ended(who, None), lambda m, who=who: m.frame(who))
            for who in (A, B)
        ]
        world = world_after(f"frame c a {ends[0]} / frame c b {ends[1]}")
        world.judge()
        assert world.void

    def test_impossible_message_of_a_leaver_goes_with_it(self):
        world = world_after("send a / sync a")
        world.liar.running.leave()
        world.apply(("sync", "c"))
        for _ in range(4):
            world.apply(("net", "c", "a", 0))
            world.apply(("poll", "a"))
        nobodys = Message(Dot(f"q.00000000000010000+{B}+999", 7), (), b"nobody's")
        machine = world.machines["a"]
        machine.running.receive(C, nobodys)
        assert machine.running.counters().pending == 1
        world.judge()
        assert machine.running.counters().pending == 0

    def test_settling_for_another_node_is_refused(self):
        world = world_after("send a / sync a / evict b a")
        kind, payload = encode(Settled(A, 0))
        world.liar.running.lie(kind, payload, None)
        world.judge()
        assert world.counts["refused_frames"] >= 1
        assert b"a:0" in world.machines["b"].application.applied

    def test_liar_sends_no_records_of_other_members(self):
        world = world_after("send c / sync c")
        mutation = Mutation(random.Random(1), Lore.of(world.liar.running))
        assert all(record.member != world.liar.me for record in mutation.false_record().records)
        assert mutation.false_decision().decided
        for seed in (1500, 3000):
            assert world_after(f"frame c a {seed}").void

    def test_a_false_ballot_beyond_all_others_stops_nothing(self):
        far = seed_of(
            lambda lie: (
                isinstance(lie, Views)
                and any(r.promised > Ballot(5000, "") and r.proposal for r in lie.records)
            )
        )
        world = world_after(f"frame c a {far} / frame c b {far} / send a / sync a")
        world.judge()
        assert not world.void
        assert sorted(m.name for m in world.living()) == ["a", "b"]

    def test_a_flood_is_crowded_out(self):
        world = world_after("flood c a 1")
        engine = world.machines["a"].running
        assert engine.counters().crowded_out > 0
        assert isinstance(Mutation(random.Random(1), Lore.of(engine)).big(3), Message)
        world.judge()
