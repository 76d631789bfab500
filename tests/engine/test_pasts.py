"""Pasts kept as bits, and as vectors where bits would reach too far: both say what happened before."""

import sys
from collections import Counter

import pytest

from benchmarks.baselines.runs import run_seed
from crdtcast.causality.tags import dominates
from crdtcast.engine import causal_past
from crdtcast.engine.core import Core
from crdtcast.simulator.faults import Faults
from tests.effort import seeds

from .group import Group, take

ALL = Faults.named(("loss", "duplicate", "reorder", "partition", "restart"))


@pytest.mark.parametrize(("far", "segment"), [(0, 16), (1, 2), (3, 1), (8, 3)])
def test_pasts_match_the_oracle_for_every_bit_limit(monkeypatch, far, segment):
    """In short runs the bits never reach far; so let them end early."""
    monkeypatch.setattr(causal_past, "FAR", far)
    monkeypatch.setattr(causal_past, "SEGMENT", segment)
    for seed in seeds(40):
        outcome = run_seed(seed, 4, ALL)
        assert outcome.kind is None, (seed, outcome.failure)


@pytest.mark.parametrize(
    ("far", "segment"), [(0, 16), (3, 1), (causal_past.FAR, causal_past.SEGMENT)]
)
def test_only_a_message_after_all_delivered_is_marked_so(monkeypatch, far, segment):
    monkeypatch.setattr(causal_past, "FAR", far)
    monkeypatch.setattr(causal_past, "SEGMENT", segment)
    said = Counter()
    deliver = Core._deliver

    def checked(core, message):
        before = dict(core.vector)
        delivery = deliver(core, message)
        said[delivery.sees_all, dominates(delivery.tag.past, before)] += 1
        return delivery

    monkeypatch.setattr(Core, "_deliver", checked)
    for seed in seeds(20):
        assert run_seed(seed, 4, ALL).kind is None, seed
    assert not said[True, False]
    assert said[True, True] and said[False, False]


@pytest.mark.parametrize("size", [10, causal_past.FAR // 2 + 50])
def test_two_halves_that_were_cut_off_from_each_other(size):
    group = Group("abcd")
    group.pump()
    for pair in ("ac", "ad", "bc", "bd"):
        group.cut(*pair)
    sent = {}
    for n in range(2 * size):
        for name in ("ab"[n % 2], "cd"[n % 2]):
            tag = group[name].send(b"")
            sent[tag.dot] = dict(group[name].vector)
        for half in ("ab", "cd"):
            group.pump(*half)
            for name in half:
                take(group[name])
    for pair in ("ac", "ad", "bc", "bd"):
        group.link(*pair)
    for _ in range(2 * size):
        group.pump()
        deliveries = [d for name in "abcd" for d in take(group[name])]
        if not deliveries:
            break
        for delivery in deliveries:
            truth = {**sent[delivery.tag.dot]}
            truth[delivery.tag.dot.origin] -= 1
            assert {o: n for o, n in delivery.tag.past.items() if n} == {
                o: n for o, n in truth.items() if n
            }
        group.tick()
    after = group["a"].send(b"")
    assert all(after.past[dot.origin] >= dot.counter for dot in sent)
    group.settle()


def test_unused_causal_past_stays_small():
    group = Group("abcdefgh")
    for _ in range(50):
        for name in "abcdefgh":
            group[name].send(b"")
        group.pump()
        for name in "abcdefgh":
            take(group[name])
    tag = group["a"].send(b"")
    assert sys.getsizeof(tag.past) < 120
    assert tag.past[tag.dot.origin] == 50
    assert len(tag.past) == 8
    assert tag.past.get("nobody") == 0
    assert dict(tag.past) == tag.past
    assert repr(tag.past) == repr(dict(tag.past))
