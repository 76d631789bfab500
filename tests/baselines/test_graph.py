"""Dots, bit strings and phantoms in a fixed group, repaired; and each rule as printed, which fails."""

import pytest

from benchmarks.baselines.dag import CausalDag, Stage
from benchmarks.baselines.graph import GraphEngine, Phantom
from crdtcast.causality.messages import Delivery, Message, Transmit
from crdtcast.causality.tags import Dot
from crdtcast.exceptions import ConfigurationError, RemoteProtocolError
from tests.effort import seeds

from .contract import assert_correct, assert_correct_without_stability, kinds
from .defects_graph import FIXED, BornAcknowledged, PrunedContext
from .driver import random_run, replay_words
from .traces import TracedRun, good_runs, runs

ABC = ("A", "B", "C")


def without_stability(me: str, members: tuple[str, ...]) -> GraphEngine:
    return GraphEngine(me, members, stability=False)


def dot(text: str) -> Dot:
    return Dot(text[0], int(text[1:]))


def message(text: str, *context: str) -> Message:
    return Message(dot(text), tuple(map(dot, context)), b"")


def phantom(text: str, *context: str) -> Phantom:
    return Phantom(dot(text), tuple(map(dot, context)))


def polls(engine: GraphEngine) -> list[Delivery]:
    taken = []
    while (delivery := engine.poll()) is not None:
        taken.append(delivery)
    return taken


def stable(engine: GraphEngine) -> list[str]:
    return ["".join(map(str, tag.dot)) for tag in engine.poll_stable()]


def test_random_schedules_are_correct() -> None:
    assert_correct(GraphEngine, seeds(400))


def test_without_stability_nothing_is_reported_or_told() -> None:
    assert_correct_without_stability(without_stability, seeds(200))


@pytest.mark.parametrize("run", runs("graph-"), ids=str)
def test_traced_run_fails_only_with_its_defect(run: TracedRun) -> None:
    failing = kinds(replay_words(FIXED[run.flag], run.members, run.actions))
    # The oracle of the run that raised an exception stumbled over a message that names itself: here it is lost.
    expected = "loss" if run.kind == "exception" else run.kind
    assert expected in {kind.value for kind in failing}
    assert not replay_words(GraphEngine, run.members, run.actions).findings


@pytest.mark.parametrize("run", good_runs("good-graph-static"), ids=str)
def test_good_trace_passes_on_the_repaired_engine(run: TracedRun) -> None:
    for build in (GraphEngine, without_stability):
        replayed = replay_words(build, run.members, run.actions)
        assert {kind.value for kind in kinds(replayed)} <= (
            {"stall"} if build is without_stability else set()
        )
        assert replayed.deliveries >= 20


def test_the_pruned_context_makes_wrong_tags_without_stability() -> None:
    def build(me: str, members: tuple[str, ...]) -> PrunedContext:
        return PrunedContext(me, members, stability=False)

    words = ["send A", "net A>B msg A1", "cl B", "send B", "net A>C msg A1", "cl C"]
    words += ["net B>C msg B1", "cl C"]
    assert "tag" in {kind.value for kind in kinds(replay_words(build, ABC, words))}
    assert {kind.value for kind in kinds(replay_words(without_stability, ABC, words))} == {"stall"}


def test_bits_that_are_cleared_at_birth_only_harm_two_members() -> None:
    for seed in seeds(60):
        assert not random_run(BornAcknowledged, 3, seed).findings


def test_a_message_waits_for_its_causes_and_comes_once() -> None:
    engine = GraphEngine("A", ABC)
    for _ in range(2):
        engine.receive("C", message("C1", "B1"))
    assert engine.poll() is None
    engine.receive("B", message("B1"))
    engine.receive("C", message("C1", "B1"))
    assert [delivery.tag.dot for delivery in polls(engine)] == [dot("B1"), dot("C1")]
    engine.receive("B", message("B1"))
    assert engine.poll() is None
    assert engine.context == (dot("C1"),)


def test_message_not_yet_taken_is_in_no_tag() -> None:
    engine = GraphEngine("A", ABC)
    engine.receive("B", message("B1"))
    tag = engine.send(b"")
    assert tag.context == () and not any(tag.past.values())
    polls(engine)
    after = engine.send(b"")
    assert set(after.context) == {dot("A1"), dot("B1")} and tag < after


def test_stability_needs_all_members_and_reports_causes_first() -> None:
    engine = GraphEngine("A", ABC)
    engine.send(b"")
    engine.receive("B", message("B1", "A1"))
    engine.receive("C", message("C1", "B1"))
    polls(engine)
    assert stable(engine) == ["A1", "B1"]
    engine.receive("B", phantom("B2", "C1"))
    assert stable(engine) == ["C1"]
    assert engine.quiet and engine.measures().metadata_words == 0


def test_waiting_message_acknowledges_deliveries_of_its_sender() -> None:
    engine = GraphEngine("A", ABC)
    engine.send(b"")
    engine.receive("C", phantom("C1", "A1"))
    engine.receive("B", message("B1", "A1", "C1"))
    assert engine.poll() is None and stable(engine) == ["A1"]


def test_phantom_waits_for_earlier_messages_of_its_sender() -> None:
    engine = GraphEngine("A", ("A", "B"))
    engine.send(b"")
    engine.receive("B", phantom("B2", "A1", "B1"))
    assert not engine.has_stable() and not engine.quiet
    engine.receive("B", message("B1"))
    polls(engine)
    assert stable(engine) == ["B1", "A1"]


def test_phantom_counts_once_its_message_is_delivered() -> None:
    engine = GraphEngine("A", ABC)
    engine.receive("C", phantom("C1", "B1"))
    engine.receive("B", message("B1"))
    polls(engine)
    assert stable(engine) == ["B1"]


def test_phantom_is_sent_only_if_no_message_acknowledged() -> None:
    engine = GraphEngine("A", ("A", "B"))
    engine.tick()
    assert engine.take_outbox() == []
    engine.receive("B", message("B1"))
    polls(engine)
    engine.tick()
    engine.tick()
    assert engine.take_outbox() == [Transmit(None, phantom("A1", "B1"))]
    engine.receive("B", message("B2", "B1"))
    polls(engine)
    engine.send(b"")
    engine.take_outbox()
    engine.tick()
    assert engine.take_outbox() == []


def test_long_chain_is_delivered_and_stabilised_iteratively() -> None:
    engine = GraphEngine("A", ABC)
    length = 20_000
    for counter in range(length, 1, -1):
        engine.receive("B", message(f"B{counter}", f"B{counter - 1}"))
    engine.receive("B", message("B1"))
    assert len(polls(engine)) == length
    engine.receive("C", phantom("C1", f"B{length}"))
    assert sum(len(engine.poll_stable()) for _ in range(length // 1000)) == length
    assert engine.quiet


def test_stable_tags_come_in_slices() -> None:
    engine = GraphEngine("A", ("A", "B"))
    for _ in range(5):
        engine.send(b"")
    engine.receive("B", phantom("B1", "A5"))
    assert [len(engine.poll_stable(2)) for _ in range(4)] == [2, 2, 1, 0]


@pytest.mark.parametrize(
    "content",
    [message("X1"), message("B1", "X1"), phantom("X1"), phantom("B1", "X1"), "neither"],
)
def test_invalid_message_is_refused_and_changes_nothing(content: object) -> None:
    engine = GraphEngine("A", ABC)
    before = engine.measures()
    with pytest.raises(RemoteProtocolError):
        engine.receive("B", content)
    assert engine.measures() == before and engine.quiet and engine.poll() is None


@pytest.mark.parametrize("members", [(), ("B", "C"), ("A", "A", "B")])
def test_invalid_member_list_is_refused(members: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError):
        GraphEngine("A", members)


def test_measures_count_words_and_edge_visits_as_in_the_thesis() -> None:
    engine = GraphEngine("A", ABC)
    engine.receive("C", message("C1", "B1"))
    # Two vertices (dot 2, stage 1, bits 1) and an edge, 2 at both ends.
    assert engine.measures().metadata_words == 2 * 4 + 2 * 2
    assert engine.measures().metadata_bytes > 8 * 12
    assert engine.measures().work["edge_visits"] == 1
    engine.receive("B", message("B1"))
    polls(engine)
    # B1 to its successor, and C1 to its predecessor, as their delivery acknowledges.
    assert engine.measures().work["edge_visits"] == 3


def test_a_bit_string_takes_a_word_for_each_64_members() -> None:
    for members, words in ((64, 4), (65, 5), (128, 5)):
        names = [f"m{number:03}" for number in range(members)]
        engine = GraphEngine(names[0], names)
        engine.send(b"")
        assert engine.measures().metadata_words == words


def test_a_slot_keeps_its_successors_until_its_message_comes() -> None:
    dag = CausalDag()
    bit, delivered = {"A": 1, "B": 2}, {"A": 0, "B": 0}
    later = dag.insert(message("B1", "A1"), delivered, bit)
    assert later.bits == 1 and dag.vertices[dot("A1")].stage is Stage.SLOT
    vertex = dag.insert(message("A1"), delivered, bit)
    assert vertex is dag.vertices[dot("A1")]
    assert dag.deliver(vertex, 1, 3) == [later]


def test_phantoms_on_the_wire_are_plain_values() -> None:
    assert phantom("B2", "A1", "C3").wire_fields() == [1, "B", 2, [["A", 1], ["C", 3]]]
