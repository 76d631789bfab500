"""Members that join and leave the graph-based group, repaired; and each rule as printed, which fails."""

import pytest

from benchmarks.baselines.graph_dynamic import (
    DynamicGraphEngine,
    GraphOperation,
    GraphSnapshot,
    GraphStanding,
    JoinRefused,
    JoinRequest,
)
from crdtcast.causality.messages import Message, Transmit
from crdtcast.causality.tags import Dot
from crdtcast.exceptions import ConfigurationError, LocalProtocolError, RemoteProtocolError
from tests.effort import Seeds, seeds

from .churn import FOUNDERS, Churn, random_churn, replay
from .defects_graph import DYNAMIC
from .traces import TracedRun, good_runs, runs

RUNS = [*runs("join-"), *runs("leave-")]

OTHER_INTERLEAVING = {
    "join-bits-wholesale-FIFO-stable-order",
    "join-bits-wholesale-FIFO-join-inactive",
    "join-early-send-FIFO-exception",
    "join-early-send-exception",
    "join-early-send-unsafe-stable",
    "join-empty-ctxt-tag",
    "join-fwd-pruned-pred-stable-order",
    "join-inactive-contact-unsafe-stable",
    "join-shift-2pos-stall",
    "join-twice-two-contacts-stall",
    "leave-join-after-loss",
}
"""Their schedules rest on a middleware that runs ahead of its application: other runs show the same defects here."""


def assert_correct(tried: Seeds, *, fifo: bool = False) -> None:
    joined = left = 0
    for seed in tried:
        founders = 1 + seed % 4
        run = random_churn(DynamicGraphEngine, founders, seed, fifo=fifo, steps=60 + seed % 3 * 60)
        assert not run.failures, f"seed {seed}, {founders} founders: {run.failures[0]}"
        joined += run.joined
        left += run.left
    assert joined > len(tried) and left > len(tried) // 2


def test_random_joins_and_leaves_are_correct() -> None:
    assert_correct(seeds(250))


def test_random_joins_and_leaves_on_fifo_links_are_correct() -> None:
    assert_correct(seeds(100, first=1000), fifo=True)


def test_a_group_that_does_not_change_is_correct() -> None:
    for seed in seeds(60):
        run = random_churn(DynamicGraphEngine, 2 + seed % 3, seed, changes=())
        assert not run.failures, f"seed {seed}: {run.failures[0]}"


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_traced_run_fails_only_with_its_defect(run: TracedRun) -> None:
    assert not replay(DynamicGraphEngine, run.members, run.actions).failures
    if str(run) not in OTHER_INTERLEAVING:
        of_file = {other.kind for other in RUNS if other.name == run.name}
        assert replay(DYNAMIC[run.name], run.members, run.actions).kinds & of_file


def test_every_defect_has_a_failing_trace() -> None:
    shown = {DYNAMIC[run.name] for run in RUNS if str(run) not in OTHER_INTERLEAVING}
    assert shown == set(DYNAMIC.values())


@pytest.mark.parametrize("run", good_runs("good-graph-dynamic"), ids=str)
def test_good_trace_passes_on_the_repaired_engine(run: TracedRun) -> None:
    replayed = replay(DynamicGraphEngine, run.members, run.actions)
    assert not replayed.failures
    assert replayed.joined >= 1


def drained(*words: str, founders: int = 2) -> Churn:
    return replay(DynamicGraphEngine, FOUNDERS[:founders], words)


def test_joiner_takes_the_state_and_sends_after_a_stable_join() -> None:
    group = Churn(
        lambda me, members: DynamicGraphEngine(me, members, application=lambda: b"state"), "AB"
    )
    for word in ("send A", "join N A", "net N>A joinreq", "cl A", "net A>N joinInit"):
        assert group.do(word)
    joiner = group.engines["N"]
    assert joiner.application_state == b"state"
    assert joiner.standing is GraphStanding.JOINING and joiner.entry == Dot("A", 2)
    assert dict(joiner.delivered) == {"A": 2, "B": 0, "N": 0}
    with pytest.raises(LocalProtocolError, match="joining"):
        joiner.send(b"")
    assert group.drain() == []
    assert joiner.standing is GraphStanding.ACTIVE and joiner.members == ("A", "B", "N")
    tag = joiner.send(b"")
    assert dict(tag.past) == {"A": 2, "B": 0, "N": 0}


def test_leaver_stops_once_all_have_acknowledged_its_leave() -> None:
    group = Churn(DynamicGraphEngine, "ABC")
    group.do("send B")
    group.do("leave A")
    leaver = group.engines["A"]
    assert leaver.standing is GraphStanding.LEAVING
    with pytest.raises(LocalProtocolError, match="leaving"):
        leaver.send(b"")
    for word in ("net A>B leave A1", "cl B"):
        group.do(word)
    assert group.engines["B"].members == ("B", "C")
    assert leaver.standing is GraphStanding.LEAVING
    assert group.drain() == []
    assert leaver.standing is GraphStanding.LEFT


def test_a_leaving_contact_names_another_one() -> None:
    group = drained("leave A", "join N A")
    assert group.engines["N"].standing is GraphStanding.ACTIVE
    assert group.engines["N"].members == ("B", "N")


def test_join_request_moves_on_when_its_contact_leaves() -> None:
    group = drained("join N A", "net N>A joinreq", "leave A")
    assert group.failures == []
    assert group.engines["N"].members == ("B", "N")


def test_contact_outside_the_group_refuses_and_joiner_asks_again() -> None:
    engine = DynamicGraphEngine("N", ("A", "B"))
    engine.receive("O", JoinRequest("O"))
    assert engine.take_outbox() == [Transmit("O", JoinRefused(()))]
    engine.join("O")
    engine.receive("O", JoinRefused(()))
    assert engine.standing is GraphStanding.OUTSIDE
    engine.join("A")
    engine.receive("O", JoinRefused(()))  # a late copy
    assert engine.standing is GraphStanding.ASKING
    with pytest.raises(LocalProtocolError, match="asking"):
        engine.join("B")


def test_copies_of_request_and_snapshot_change_nothing() -> None:
    group = Churn(DynamicGraphEngine, "AB")
    for word in ("join N A", "dup N>A joinreq", "dup N>A joinreq", "cl A", "dup N>A joinreq"):
        group.do(word)
    assert not group.do("cl A")
    for word in ("dup A>N joinInit", "send A", "net A>N msg A2", "cl N", "net A>N joinInit"):
        assert group.do(word), word
    assert group.engines["N"].delivered["A"] == 2
    assert group.drain() == []


def test_messages_before_the_snapshot_are_kept_by_a_joiner() -> None:
    group = Churn(DynamicGraphEngine, "AB")
    words = ("join N A", "net N>A joinreq", "cl A", "send A", "net A>N msg A2", "net A>N joinInit")
    for word in words:
        assert group.do(word), word
    assert group.do("cl N")
    assert group.engines["N"].delivered["A"] == 2


def test_concurrent_joins_by_two_contacts_give_one_group() -> None:
    group = drained("join N A", "join O B", "send A", "send B")
    assert group.failures == []
    assert {engine.members for engine in group.engines.values()} == {("A", "B", "N", "O")}


def test_last_member_left_accepts_a_joiner() -> None:
    group = drained("leave A", "leave C", founders=3)
    assert group.failures == [] and group.left == 2
    assert group.do("join N B") and group.drain() == []
    assert group.engines["N"].members == ("B", "N")
    assert group.engines["B"].measures().metadata_words == 0


def test_engine_outside_the_group_cannot_send_or_leave() -> None:
    engine = DynamicGraphEngine("N", ("A", "B"))
    for refused in (lambda: engine.send(b""), engine.leave):
        with pytest.raises(LocalProtocolError, match="outside"):
            refused()
    assert engine.poll() is None and engine.take_outbox() == []


def test_messages_of_non_members_are_refused_and_change_nothing() -> None:
    engine = DynamicGraphEngine("A", ("A", "B"))
    before = engine.measures()
    for content in (
        Message(Dot("N", 1), (), b""),
        Message(Dot("B", 1), (Dot("N", 1),), b""),
        "neither",
    ):
        with pytest.raises(RemoteProtocolError):
            engine.receive("B", content)
    assert engine.measures() == before and engine.quiet


def test_stability_cannot_be_switched_off() -> None:
    with pytest.raises(ConfigurationError, match="stability"):
        DynamicGraphEngine("A", ("A", "B"), stability=False)


def test_bit_strings_follow_the_order_of_the_ids() -> None:
    group = drained("send A", "join 0 A", "send B", "leave A")
    assert group.failures == []
    assert group.engines["B"].members == group.engines["0"].members == ("0", "B")


def test_messages_on_the_wire_are_plain_values() -> None:
    assert JoinRequest("N").wire_fields() == [2, "N"]
    assert JoinRefused(("A",)).wire_fields() == [3, ["A"]]
    join = Message(Dot("A", 1), (), b"N", GraphOperation.JOIN)
    snapshot = GraphSnapshot(
        Dot("A", 1), ("A", "N"), {"A": 1, "N": 0}, (Dot("A", 1),), ((join, 256),), b"x"
    )
    assert snapshot.wire_fields() == [
        4,
        ["A", 1],
        ["A", "N"],
        [["A", 1], ["N", 0]],
        [["A", 1]],
        [["A", 1, [], b"N", 1, b"\x00\x01"]],
        b"x",
    ]
