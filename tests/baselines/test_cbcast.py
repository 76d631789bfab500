"""CBCAST, repaired; and each rule as printed, which fails."""

import pytest

from benchmarks.baselines.cbcast import (
    Acknowledgement,
    CbcastEngine,
    CbcastMessage,
    StabilityNotice,
)
from crdtcast.causality.messages import Transmit
from crdtcast.causality.tags import Dot
from crdtcast.exceptions import RemoteProtocolError
from tests.effort import seeds

from .contract import (
    assert_correct,
    assert_correct_without_stability,
    assert_fails_only_with,
)
from .defects_vectors import DEFECTS, DuplicatesQueued
from .driver import random_run
from .traces import TracedRun, runs

ABC = ("A", "B", "C")


def message(origin: str, *vector: int, stable: int = 0) -> CbcastMessage:
    return CbcastMessage(Dot(origin, vector[ABC.index(origin)]), vector, stable, b"")


def reported(engine: CbcastEngine) -> list[Dot]:
    return [tag.dot for tag in engine.poll_stable()]


def test_random_schedules_are_correct() -> None:
    assert_correct(CbcastEngine, seeds(400))


def test_without_stability_nothing_is_reported_or_told() -> None:
    assert_correct_without_stability(
        lambda me, members: CbcastEngine(me, members, stability=False), seeds(200)
    )


@pytest.mark.parametrize("run", runs("cbcast-"), ids=str)
def test_traced_run_fails_only_with_its_defect(run: TracedRun) -> None:
    assert_fails_only_with(DEFECTS[run.flag], CbcastEngine, run)


def test_queue_that_accepts_delivered_duplicates_never_empties() -> None:
    runs_of = [random_run(build, 3, 3) for build in (DuplicatesQueued, CbcastEngine)]
    assert not any(run.findings for run in runs_of)
    assert [run.at_rest for run in runs_of] == [False, True]


def test_every_traced_defect_has_a_file() -> None:
    named = {run.flag for prefix in ("vec-", "two-level-", "cbcast-") for run in runs(prefix)}
    assert named == DEFECTS.keys() - {"duplicates_queued"}


def test_sender_learns_stability_and_notifies_the_others() -> None:
    engine = CbcastEngine("A", ABC)
    engine.send(b"")
    engine.take_outbox()
    engine.receive("B", Acknowledgement(counter=1, sent=0))
    assert not engine.has_stable()
    engine.receive("C", Acknowledgement(counter=1, sent=0))
    assert reported(engine) == [Dot("A", 1)]
    engine.tick()
    engine.tick()
    assert engine.take_outbox() == [Transmit(None, StabilityNotice(1, (1, 0, 0)))]


def test_acknowledgement_waits_for_its_senders_earlier_messages() -> None:
    engine = CbcastEngine("A", ("A", "B"))
    engine.send(b"")
    engine.receive("B", Acknowledgement(counter=1, sent=2))
    for counter in (1, 2):
        assert not engine.has_stable()
        engine.receive("B", CbcastMessage(Dot("B", counter), (0, counter), 0, b""))
        engine.poll()
    assert reported(engine) == [Dot("A", 1)]


def test_notice_waits_for_messages_its_sender_had_delivered() -> None:
    engine = CbcastEngine("A", ABC)
    engine.receive("B", message("B", 0, 1, 0))
    engine.poll()
    engine.receive("B", StabilityNotice(1, (0, 1, 1)))
    assert not engine.has_stable()
    engine.receive(
        "B", StabilityNotice(1, (0, 1, 2))
    )  # only one can wait: the newest that says more
    engine.receive("C", message("C", 0, 0, 1))
    engine.poll()
    assert reported(engine) == [Dot("B", 1)]


def test_the_past_of_a_stable_message_is_stable_too() -> None:
    engine = CbcastEngine("A", ABC)
    engine.receive("C", message("C", 0, 0, 1))
    engine.receive("B", message("B", 0, 1, 1))
    engine.poll()
    engine.poll()
    engine.receive("B", StabilityNotice(1, (0, 1, 1)))
    assert reported(engine) == [Dot("C", 1), Dot("B", 1)]


def test_message_timestamp_acknowledges_and_carries_stability() -> None:
    engine = CbcastEngine("A", ("A", "B"))
    engine.send(b"")
    engine.receive("B", CbcastMessage(Dot("B", 1), (1, 1), 0, b""))
    engine.poll()
    assert reported(engine) == [Dot("A", 1)]
    engine.send(b"")
    engine.take_outbox()
    engine.tick()
    assert engine.take_outbox() == []  # both told already
    engine.receive("B", CbcastMessage(Dot("B", 2), (1, 2), 1, b""))
    engine.poll()
    assert reported(engine) == [Dot("B", 1)]


def test_a_tick_acknowledges_to_each_sender_alone() -> None:
    engine = CbcastEngine("A", ABC)
    engine.receive("C", message("C", 0, 0, 1))
    engine.poll()
    engine.tick()
    assert engine.take_outbox() == [Transmit("C", Acknowledgement(counter=1, sent=0))]


@pytest.mark.parametrize(
    ("sender", "content"),
    [
        ("B", message("C", 0, 0, 1)),
        ("B", CbcastMessage(Dot("B", 1), (0, 1, 0), 2, b"")),
        ("B", Acknowledgement(counter=1, sent=0)),
        ("B", StabilityNotice(1, (0, 1))),
        ("B", StabilityNotice(2, (0, 1, 0))),
        ("B", "neither"),
    ],
)
def test_invalid_message_is_refused_and_changes_nothing(sender: str, content: object) -> None:
    engine = CbcastEngine("A", ABC)
    before = engine.measures()
    with pytest.raises(RemoteProtocolError):
        engine.receive(sender, content)
    assert engine.measures() == before and engine.quiet


def test_measures_count_what_is_held() -> None:
    engine = CbcastEngine("A", ABC)
    # delivered and ordered; told, acknowledged and stable
    assert engine.measures().metadata_words == 2 * 3 + 3 * 3
    engine.send(b"")
    assert engine.measures().metadata_words == 15 + 6  # dot, place, vector
    assert CbcastEngine("A", ABC, stability=False).measures().metadata_words == 2 * 3


def test_messages_on_the_wire_are_plain_values() -> None:
    assert message("B", 0, 1, 0).wire_fields() == [0, "B", b"", 0, [0, 1, 0]]
    assert Acknowledgement(2, 3).wire_fields() == [1, 2, 3]
    assert StabilityNotice(2, (0, 1, 0)).wire_fields() == [2, 2, [0, 1, 0]]
