"""What a member writes of itself, folded again, is what it was; in random groups that change."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.causality.messages import Delivery
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import PROGRAM, GroupEngine, GroupState, Parked, ParkedOperation, Span
from crdtcast.exceptions import ConfigurationError, UnusableInputError
from crdtcast.journal.noting_store import Changes, NotingStore, noted
from crdtcast.journal.replayed_tags import Tagging
from crdtcast.journal.saved import (
    JournalBatch,
    JournalFolding,
    Life,
    Saved,
    pack_batch,
    pack_saved,
    unpack_batch,
    unpack_saved,
)
from crdtcast.simulator.campaign import run_group_seed
from crdtcast.simulator.campaigns import CAMPAIGNS
from tests.effort import examples, seeds


class Checked(GroupEngine):
    """At each tick what was written since its start, folded, is its state; and tags come out alike."""

    checks = 0
    replayed = 0

    def __init__(self, me: str, state: GroupState, reads: Span = PROGRAM) -> None:
        store = NotingStore()
        super().__init__(me, state, reads, store)
        self.saved = Saved("group", "node", incarnation=me, state=self.state())
        self.changes = Changes(self, store, None, Life())
        self.folding = JournalFolding(unpack_saved(pack_saved(self.saved), "it"))
        self.tags: list[Tag] = []

    def poll(self) -> Delivery | None:
        delivery = super().poll()
        if delivery is not None and not delivery.kind:
            self.tags.append(delivery.tag)
        return delivery

    def send(self, payload: bytes, **after: Any) -> Tag:
        tag = super().send(payload, **after)
        self.tags.append(tag)
        return tag

    def tick(self) -> None:
        super().tick()
        batch = self.changes.take(None, Life())
        self.folding.add(unpack_batch(pack_batch(batch), "it"))
        assert self.folding.result().state == self.state()
        Checked.checks += 1
        told = [
            h.tag
            for h in Tagging(self.saved.state).replay(self.folding.happened)
            if h.payload is not None
        ]
        assert told == self.tags
        if len(told) < 10 or random.Random(Checked.checks).random() < 0.3:
            Checked.replayed += len(told)
            for first in told:
                if first.dot.origin not in self.vector:
                    continue  # of one that is forgotten a past may tell, or not
                for second, original in zip(told, self.tags, strict=True):
                    # (By dots: tags compare by the later one's past.)
                    assert (first < second) == (first < original)


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_folded_journal_equals_the_state(name: str) -> None:
    before = Checked.checks, Checked.replayed
    for seed in seeds(16 if name == "founding" else 4):  # few messages come after a founding
        outcome = run_group_seed(seed, CAMPAIGNS[name], range(3, 6), engine=f"{__name__}:Checked")
        assert outcome.kind is None, (seed, outcome.failure)
    assert Checked.checks > before[0] + 50 and Checked.replayed > before[1]


def test_noting_engine_is_an_engine_like_any_other() -> None:
    state = GroupEngine.found("a.1", ["b.1"]).state()
    plain, (noting, _) = GroupEngine("a.1", state), noted("a.1", state)
    for engine in (noting, plain):
        engine.send(b"x")
        engine.tick()
    assert noting.state() == plain.state()
    assert noting.take_outbox() == plain.take_outbox()


DOT = Dot("a.1", 1)
PARKED = Parked(
    (ParkedOperation(DOT, 0, b"x"), ParkedOperation(Dot("a.1", 2), 0, b"y")),
    {DOT: (Dot("a.2+b.1+1", 1),)},
    ("a.1",),
    frozenset({"a.1"}),
    frozenset({"a.1"}),
    {"a.1": Dot("b.1", 4)},
    frozenset({"a.1"}),
)


def test_parked_operations_are_written_once_and_reissues_singly() -> None:
    engine, store = noted("a.1", GroupEngine.found("a.1", []).state())
    changes = Changes(engine, store, None, Life())
    folding = JournalFolding(Saved("g", "a", incarnation="a.1", state=engine.state()))
    parked: Parked | None = PARKED
    sizes = []
    for step in (
        lambda p: p,
        lambda p: p.reissued(p.operations[1], Dot("a.3+b.1+2", 1)),
        lambda p: p.settled("a.1", Dot("b.1", 9)),
        lambda p: None,
    ):
        parked = step(parked)
        packed = pack_batch(changes.take(parked, Life(asked=("a.5",))))
        sizes.append(len(packed))
        folding.add(unpack_batch(packed, "it"))
        assert folding.result().parked == parked
        assert folding.result().life == Life(asked=("a.5",))
    assert changes.take(None, Life(asked=("a.5",))).is_empty
    assert sizes[1] < sizes[0]


def test_snapshot_is_all_of_a_member() -> None:
    life = Life(True, ("a.7",), {"b": "10.0.0.1:7001"})
    state = GroupEngine.found("a.1", ["b.1"]).state()
    saved = Saved("g", "a", "f.1", "a.1", True, state, b"application", PARKED, life)
    assert unpack_saved(pack_saved(saved), "it") == saved
    assert unpack_batch(pack_batch(JournalBatch()), "it").is_empty


def test_newer_contents_are_refused() -> None:
    packed = pack_saved(Saved("g", "a"))
    newer = packed[:1] + b"\x07" + packed[2:]
    with pytest.raises(ConfigurationError, match=r"has format 7.*start the newer program"):
        unpack_saved(newer, "it")


@settings(max_examples=examples(100))
@given(st.binary(max_size=80), st.integers(0, 200), st.booleans())
def test_any_bytes_are_refused_clearly(piece: bytes, at: int, cut: bool) -> None:
    whole = pack_saved(Saved("g", "a", state=GroupEngine.found("a.1", []).state(), parked=PARKED))
    batch = pack_batch(JournalBatch(((DOT,),), (DOT,), GroupState(), Life(), (PARKED,)))
    for packed, read in ((whole, unpack_saved), (batch, unpack_batch)):
        mangled = packed[:at] + piece + (b"" if cut else packed[at + len(piece) :])
        try:
            read(mangled, "it")
        except (UnusableInputError, ConfigurationError) as error:
            assert "\n" not in str(error)
