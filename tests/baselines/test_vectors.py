"""Vectors with the stability matrix, repaired; and each rule as printed, which fails."""

import random

import pytest

from benchmarks.baselines.delay_queue import DelayQueue
from benchmarks.baselines.matrix import StabilityMatrix
from benchmarks.baselines.vectors import VectorEngine, VectorMessage, VectorNotice
from crdtcast.causality.messages import Delivery, Transmit
from crdtcast.causality.tags import Dot
from crdtcast.exceptions import ConfigurationError, RemoteProtocolError
from tests.effort import seeds

from .contract import (
    assert_correct,
    assert_correct_without_stability,
    assert_fails_only_with,
)
from .defects_vectors import DEFECTS, ReceivedCounter
from .driver import random_run
from .traces import TracedRun, runs

ABC = ("A", "B", "C")


def message(origin: str, *vector: int) -> VectorMessage:
    return VectorMessage(Dot(origin, vector[ABC.index(origin)]), vector, b"")


def test_random_schedules_are_correct() -> None:
    assert_correct(VectorEngine, seeds(400))


def test_without_stability_nothing_is_reported_or_told() -> None:
    assert_correct_without_stability(
        lambda me, members: VectorEngine(me, members, stability=False), seeds(200)
    )


@pytest.mark.parametrize("run", runs("vec-"), ids=str)
def test_traced_run_fails_only_with_its_defect(run: TracedRun) -> None:
    assert_fails_only_with(DEFECTS[run.flag], VectorEngine, run)


def test_received_counter_works_on_fifo_links_without_duplicates() -> None:
    for seed in seeds(100):
        run = random_run(ReceivedCounter, 3, seed, fifo=True, duplicates=False)
        assert not run.findings, f"seed {seed}: {run.findings[0]}"


def test_message_not_yet_taken_is_in_no_tag() -> None:
    engine = VectorEngine("A", ABC)
    engine.receive("B", message("B", 0, 1, 0))
    assert dict(engine.send(b"").past) == {"A": 0, "B": 0, "C": 0}
    taken = engine.poll()
    assert taken is not None and taken.tag.dot == Dot("B", 1)
    tag = engine.send(b"")
    assert dict(tag.past) == {"A": 1, "B": 1, "C": 0} and taken.tag < tag
    assert engine.delivered == {"A": 2, "B": 1, "C": 0}


def test_a_message_waits_for_its_causes_and_comes_once() -> None:
    engine = VectorEngine("A", ABC)
    engine.receive("C", message("C", 0, 1, 1))
    engine.receive("C", message("C", 0, 1, 1))
    assert engine.poll() is None
    engine.receive("B", message("B", 0, 1, 0))
    engine.receive("C", message("C", 0, 1, 1))
    assert [taken.tag.dot for taken in iter_polls(engine)] == [Dot("B", 1), Dot("C", 1)]
    engine.receive("B", message("B", 0, 1, 0))
    assert engine.poll() is None


def iter_polls(engine: VectorEngine) -> list[Delivery]:
    taken = []
    while (delivery := engine.poll()) is not None:
        taken.append(delivery)
    return taken


def test_vector_counts_once_earlier_messages_are_delivered() -> None:
    engine = VectorEngine("A", ("A", "B"))
    engine.send(b"")
    engine.receive("B", VectorNotice((1, 1)))
    assert not engine.has_stable()
    engine.receive("B", VectorMessage(Dot("B", 1), (0, 1), b""))
    assert engine.poll() is not None
    # B's row covers its own message at once: nobody else is there to lack it.
    assert [tag.dot for tag in engine.poll_stable()] == [Dot("A", 1), Dot("B", 1)]


def test_stable_tags_come_in_slices() -> None:
    engine = VectorEngine("A", ("A", "B"))
    for _ in range(5):
        engine.send(b"")
    engine.receive("B", VectorNotice((5, 0)))
    assert [len(engine.poll_stable(2)) for _ in range(4)] == [2, 2, 1, 0]


def test_a_tick_tells_the_vector_only_if_nothing_else_has() -> None:
    engine = VectorEngine("A", ("A", "B"))
    engine.tick()
    assert engine.take_outbox() == []
    engine.receive("B", VectorMessage(Dot("B", 1), (0, 1), b""))
    engine.poll()
    engine.tick()
    engine.tick()
    assert engine.take_outbox() == [Transmit(None, VectorNotice((0, 1)))]
    engine.receive("B", VectorMessage(Dot("B", 2), (0, 2), b""))
    engine.poll()
    engine.send(b"")
    engine.take_outbox()
    engine.tick()
    assert engine.take_outbox() == []


@pytest.mark.parametrize(
    ("sender", "content"),
    [
        ("X", message("B", 0, 1, 0)),
        ("A", message("A", 1, 0, 0)),
        ("B", message("C", 0, 0, 1)),
        ("B", VectorMessage(Dot("B", 1), (0, 1), b"")),
        ("B", VectorMessage(Dot("B", 1), (0, 2, 0), b"")),
        ("B", VectorNotice((0, 1))),
        ("B", "neither"),
    ],
)
def test_invalid_message_is_refused_and_changes_nothing(sender: str, content: object) -> None:
    engine = VectorEngine("A", ABC)
    before = engine.measures()
    with pytest.raises(RemoteProtocolError):
        engine.receive(sender, content)
    assert engine.measures() == before and engine.quiet and engine.poll() is None


@pytest.mark.parametrize("members", [(), ("A",), ("B", "C"), ("A", "A", "B")])
def test_invalid_member_list_is_refused(members: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError):
        VectorEngine("A", members)


def test_vector_positions_do_not_depend_on_the_given_order() -> None:
    one, other = VectorEngine("A", ("B", "A")), VectorEngine("B", ("A", "B"))
    one.send(b"")
    [transmit] = one.take_outbox()
    other.receive("A", transmit.message)
    assert other.poll() is not None


def test_measures_count_what_is_held_and_what_was_done() -> None:
    engine = VectorEngine("A", ABC)
    # delivered and ordered; rows of two others; their minimum, and where it is
    assert engine.measures().metadata_words == 2 * 3 + 2 * 3 + 2 * 3
    engine.receive("B", message("B", 0, 2, 0))
    assert engine.measures().metadata_words == 18 + 4  # a sender and a vector in the queue
    engine.receive("B", message("B", 0, 1, 0))
    assert engine.measures().work["queue_scans"] == 1
    iter_polls(engine)
    assert engine.measures().metadata_words == 18 + 2 * 6  # dot, place, vector
    assert engine.measures().metadata_bytes > 8 * 18
    assert engine.measures().work["edge_visits"] == 0 < engine.measures().work["vector_entries"]


def test_without_stability_there_is_no_matrix() -> None:
    engine = VectorEngine("A", ABC, stability=False)
    engine.send(b"")
    assert engine.measures().metadata_words == 2 * 3


def test_messages_on_the_wire_are_plain_values() -> None:
    assert message("B", 0, 1, 0).wire_fields() == [0, "B", b"", [0, 1, 0]]
    assert VectorNotice((0, 1)).wire_fields() == [1, [0, 1]]


def test_stability_matrix_is_the_column_minimum_of_other_rows() -> None:
    rng = random.Random(5)
    for size in (2, 3, 6):
        own = rng.randrange(size)
        matrix = StabilityMatrix(own, size)
        rows = {position: [0] * size for position in range(size) if position != own}
        for _ in range(300):
            position = rng.choice(list(rows))
            rows[position] = [entry + rng.choice((0, 0, 1, 3)) for entry in rows[position]]
            before = list(matrix.stable)
            rose = matrix.adopt(position, tuple(rows[position]))
            assert matrix.stable == [min(column) for column in zip(*rows.values(), strict=True)]
            assert sorted(rose) == [
                (column, old, new)
                for column, (old, new) in enumerate(zip(before, matrix.stable, strict=True))
                if new > old
            ]


def test_one_queue_pass_releases_a_chain_in_order() -> None:
    def queued(counters: range) -> DelayQueue[VectorMessage]:
        queue: DelayQueue[VectorMessage] = DelayQueue()
        for counter in counters:
            queue.add(1, VectorMessage(Dot("B", counter), (0, counter), b""))
        return queue

    forwards, backwards = queued(range(1, 11)), queued(range(10, 0, -1))
    assert len(forwards.release([0, 0])) == len(backwards.release([0, 0])) == 10
    assert forwards.scans == 10  # one pass
    assert backwards.scans == sum(range(1, 11))  # a pass for each, as published
