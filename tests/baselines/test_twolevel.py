"""Two-level tagging, repaired; and the pitfalls of it, which the checker finds."""

import pytest

from benchmarks.baselines.twolevel import TwoLevelEngine, TwoLevelMessage
from benchmarks.baselines.vectors import VectorEngine
from crdtcast.causality.tags import Dot
from crdtcast.exceptions import RemoteProtocolError
from tests.effort import seeds

from .contract import (
    assert_correct,
    assert_correct_without_stability,
    assert_fails_only_with,
)
from .defects_vectors import DEFECTS
from .driver import group
from .traces import TracedRun, runs


def test_random_schedules_are_correct() -> None:
    assert_correct(TwoLevelEngine, seeds(400))


def test_without_stability_nothing_is_reported_or_told() -> None:
    assert_correct_without_stability(
        lambda me, members: TwoLevelEngine(me, members, stability=False), seeds(200)
    )


@pytest.mark.parametrize("run", runs("two-level-"), ids=str)
def test_traced_run_fails_only_with_its_defect(run: TracedRun) -> None:
    assert_fails_only_with(DEFECTS[run.flag], TwoLevelEngine, run)


def test_middleware_orders_by_messages_not_yet_taken() -> None:
    """The over-ordering of internal tags: B:1 has arrived at A, so A:1 waits for it elsewhere, though concurrent."""
    for build, waits in ((TwoLevelEngine, True), (VectorEngine, False)):
        made = group(build, 3)
        for action in (("send", "B"), ("arrive", "B", "A", 0), ("send", "A")):
            made.apply(action)
        made.apply(("arrive", "A", "C", 0))
        assert made.apply(("poll", "C")) is not waits
        assert not made.drain()


def test_tags_use_the_smaller_vector_of_the_application() -> None:
    engine = TwoLevelEngine("A", ("A", "B"))
    engine.receive("B", TwoLevelMessage(Dot("B", 1), (0, 1), (0, 1), b""))
    tag = engine.send(b"")
    [transmit] = engine.take_outbox()
    assert transmit.message == TwoLevelMessage(Dot("A", 1), (1, 1), (1, 0), b"")
    taken = engine.poll()
    assert taken is not None and taken.tag.concurrent(tag)


def test_both_vectors_travel_and_are_held() -> None:
    message = TwoLevelMessage(Dot("B", 2), (3, 2), (1, 2), b"x")
    assert message.wire_fields() == [0, "B", b"x", [3, 2], [1, 2]]
    engine = TwoLevelEngine("A", ("A", "B"), stability=False)
    engine.receive("B", message)
    assert engine.measures().metadata_words == 2 * 2 + 1 + 2 * 2


def test_an_application_vector_that_does_not_fit_is_refused() -> None:
    engine = TwoLevelEngine("A", ("A", "B"))
    for vector in ((0, 1, 0), (0, 2)):
        with pytest.raises(RemoteProtocolError):
            engine.receive("B", TwoLevelMessage(Dot("B", 1), (0, 1), vector, b""))
    assert engine.quiet
