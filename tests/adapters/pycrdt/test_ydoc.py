"""`YDoc` as a type: convergence, what is refused, deletion, snapshots."""

import contextlib
import itertools
import random
from typing import Any

import pytest
from hypothesis import strategies as st
from pycrdt import Array, Doc, Map, Text

from crdtcast.adapters.pycrdt import MissingUpdatesError, YDoc
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import Assigned, Former, Spliced, Within
from crdtcast.exceptions import InvalidOperationError, RemoteProtocolError, UnusableInputError
from crdtcast.testing import check_crdt
from tests.adapters.pycrdt.editing import EditedDoc, edited, plain
from tests.effort import examples


def typed(*steps: tuple[int, str], client: int = 1) -> list[bytes]:
    """The updates of one author who inserts texts at places."""
    doc: Doc[Any] = Doc(client_id=client)
    text = doc.get("t", type=Text)
    updates: list[bytes] = []
    doc.observe(lambda event: updates.append(event.update))
    for at, inserted in steps:
        text.insert(at, inserted)
    return updates


FOUR = typed((0, "a"), (1, "b"), (0, "c"), (2, "d"))


def tag(origin: str, counter: int, **past: int) -> Tag:
    return Tag(Dot(origin, counter), (), past)


def test_pycrdt_loses_an_update_out_of_order() -> None:
    """If this fails, pycrdt is mended: say so in docs/pycrdt.md."""
    doc: Doc[Any] = Doc()
    for at in (0, 2, 3, 1):
        doc.apply_update(FOUR[at])
    assert str(doc.get("t", type=Text)) != "cadb"


@pytest.mark.parametrize("seed", range(20))
def test_document_lacks_just_the_updates_that_change_it(seed: int) -> None:
    rng = random.Random(seed)
    crdt, updates = YDoc(), [b"\x00\x00"]
    for counter in range(1, 12):
        base = rng.choice([crdt.update_since(), updates[-1]])
        update = edited(base, counter, rng.randrange(100)) if rng.random() < 0.5 else base
        updates.append(rng.choice([update, rng.choice(updates), crdt.update_since(b"\x00")]))
        try:
            operation = crdt.prepare("apply", updates[-1])
        except MissingUpdatesError:
            assert crdt.lacks(updates[-1])
            continue
        before, lacks = crdt.digest(), crdt.lacks(updates[-1])
        crdt.effect(operation, tag("a", counter))
        assert lacks == (crdt.digest() != before)
    assert crdt.lacks(b"no update")


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_out_of_order_updates_are_refused_not_lost(order: tuple[int, ...]) -> None:
    crdt = YDoc()
    applied = 0
    waiting = list(order)
    while waiting:
        at = waiting.pop(0)
        try:
            operation = crdt.prepare("apply", FOUR[at])
        except MissingUpdatesError as error:
            assert error.state_vector == crdt.state_vector()
            waiting.append(at)
        else:
            applied += 1
            crdt.effect(operation, tag("a", applied, a=applied - 1))
    assert crdt.value == {"t": "cadb"}


def test_random_edits_converge_at_five_replicas() -> None:
    check_crdt(
        EditedDoc,
        st.tuples(st.just("edit"), st.integers(0, 999)),
        lambda visible: plain([operation.args[0] for operation in visible]),
        members=5,
        examples=examples(15),
        actions=40,
    )


def applied(*updates: bytes) -> YDoc:
    """A document that got these from one member."""
    crdt = YDoc()
    for n, update in enumerate(updates, start=1):
        crdt.effect(crdt.prepare("apply", update), tag("a", n, a=n - 1))
    return crdt


GARBAGE = {
    "empty": b"",
    "truncated": FOUR[0][:-1],
    "with a byte more": FOUR[0] + b"\0",
    "text": b"no update",
    "not bytes": "no update",
    "values of old programs": bytes.fromhex("010101000201017401013100"),
    "needs itself": bytes.fromhex("01010900840900016100"),
    "nothing deleted": bytes.fromhex("000101010000"),
    "client twice": bytes.fromhex("0201010004010174016101010004010174016100"),
}


@pytest.mark.parametrize("update", GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_refused_and_changes_nothing(update: Any) -> None:
    crdt = applied(*FOUR)
    before = crdt.snapshot()
    with pytest.raises(InvalidOperationError, match=r"ydoc_kept\.apply: "):
        crdt.prepare("apply", update)
    with pytest.raises(RemoteProtocolError, match="ydoc_kept cannot apply"):
        crdt.check_arriving(["apply", update])
    with pytest.raises(RemoteProtocolError, match="ydoc_kept cannot apply"):
        crdt.effect(["apply", update], tag("b", 1, a=4))
    assert crdt.snapshot() == before and crdt.state_vector() == applied(*FOUR).state_vector()


def test_remote_update_that_lacks_something_is_refused() -> None:
    """Also if this replica has it, but its sender did not: all replicas must skip the same operations."""
    crdt = applied(*FOUR)
    with pytest.raises(RemoteProtocolError, match="needs clocks 0 to 0 of client 1"):
        YDoc().effect(["apply", FOUR[1]], tag("b", 1))
    with pytest.raises(RemoteProtocolError, match="needs clocks 1 to 2 of client 1"):
        crdt.effect(["apply", FOUR[3]], tag("b", 1, a=1))
    crdt.effect(["apply", FOUR[3]], tag("b", 1, a=3))


def test_edit_that_cuts_a_character_is_refused() -> None:
    """pycrdt 0.14 would lose a clock of the document, so that it could not be restored."""
    crdt = applied(*typed((0, "a😀b")))
    half = bytes.fromhex("00010101" + "0101")  # deletes clock 1: half of it
    broken: Doc[Any] = Doc()
    broken.apply_update(crdt.update_since())
    broken.apply_update(half)
    again: Doc[Any] = Doc()
    again.apply_update(broken.get_update())
    assert again.get_state() != broken.get_state()  # if this fails, pycrdt is mended
    with pytest.raises(InvalidOperationError, match="cuts a character"):
        crdt.prepare("apply", half)
    crdt.effect(crdt.prepare("apply", bytes.fromhex("00010101" + "0102")), tag("a", 2, a=1))
    assert crdt.value == {"t": "ab"}
    crdt.effect(crdt.prepare("apply", half), tag("a", 3, a=2))  # it is deleted already


def test_types_nested_too_deep_are_refused() -> None:
    """They would end the process when they are deleted, or read."""
    nested = bytes([1, 101, 7, 0, 7, 1, 1, ord("a"), 0])
    for n in range(100):
        nested += bytes([7, 0, 7, n, 0])
    with pytest.raises(InvalidOperationError, match="deeper than 100 levels"):
        YDoc().prepare("apply", nested + b"\0")


def test_types_beside_others_are_as_deep_as_those() -> None:
    """However many there are, and however deep the document is elsewhere."""
    deep = bytes([1, 100, 7, 0, 7, 1, 1, ord("d"), 0])
    for n in range(99):
        deep += bytes([7, 0, 7, n, 0])
    crdt = applied(deep + b"\0")
    doc: Doc[Any] = Doc(client_id=1)
    array = doc.get("a", type=Array)
    updates: list[bytes] = []
    doc.observe(lambda event: updates.append(event.update))
    for _ in range(150):
        array.append(1)
        array.append(Array([]))
    for n, update in enumerate(updates, start=2):
        crdt.effect(crdt.prepare("apply", update), tag("a", n, a=n - 1))
    assert crdt.value["a"] == [1.0, []] * 150
    with pytest.raises(InvalidOperationError, match="deeper than 100 levels"):
        crdt.prepare("apply", bytes([1, 1, 8, 0, 7, 0, 7, 99, 0, 0]))


def test_text_in_an_array_is_not_read() -> None:
    """pycrdt 0.14 does not return from reading it."""
    doc: Doc[Any] = Doc(client_id=7)
    doc.get("a", type=Array).append(Array([1]))
    inner = doc.get_update()
    stray = bytes([1, 1, 9, 0, 4, 0, 7, 0, 2]) + b"ab" + b"\0"
    crdt = applied(inner, stray)
    assert crdt.value == {"a": None}


def test_deletion_removes_what_it_has_seen() -> None:
    one, other = YDoc(), YDoc()
    seen, unseen = FOUR[0], typed((0, "x"), client=2)[0]
    deletion = tag("b", 1, a=1)
    one.effect(["apply", seen], tag("a", 1))
    one.effect(["apply", unseen], tag("c", 1))
    one.forget(deletion)
    other.effect(["apply", seen], tag("a", 1))
    other.stable(tag("a", 1))
    other.forget(deletion)
    other.effect(["apply", unseen], tag("c", 1))
    assert one.value == other.value == {"t": "x"}
    assert one.digest() == other.digest()


def test_deletion_and_the_same_update_twice_converge() -> None:
    """A client that moves to another replica may bring there what the first one has sent already."""
    results = []
    for order in itertools.permutations(["a", "c", "forget"]):
        if order.index("forget") < order.index("a"):
            continue
        crdt = YDoc()
        for step in order:
            if step == "forget":
                crdt.forget(tag("b", 1, a=1))
            else:
                crdt.effect(["apply", FOUR[0]], tag(step, 1))
        results.append(crdt.digest())
    assert len(set(results)) == 1 and len(results) == 3


def test_reader_that_is_too_slow_is_told_so() -> None:
    crdt = YDoc()
    follower = crdt.follow(most_bytes=30)
    crdt.effect(["apply", FOUR[0]], tag("a", 1))
    assert [each.update for each in follower.take()] == [FOUR[0]]
    for n, update in enumerate(FOUR[1:], start=2):
        crdt.effect(["apply", update], tag("a", n, a=n - 1))
    assert follower.is_behind and follower.take() == [] and not follower.is_behind
    crdt.forget(tag("b", 1, a=4))
    (deletion,) = follower.take()
    doc: Doc[Any] = Doc()
    for update in (*FOUR, deletion.update):
        doc.apply_update(update)
    assert str(doc.get("t", type=Text)) == ""


def test_changes_are_told_in_the_terms_of_the_value() -> None:
    crdt = YDoc()
    before = crdt.value
    doc: Doc[Any] = Doc()
    doc.get("t", type=Text).insert(0, "hello")
    doc.get("m", type=Map)["k"] = "v"
    crdt.effect(["apply", doc.get_update()], tag("a", 1))
    assert crdt.differences(before, crdt.value) == (
        Within("m", (Assigned("k", "v"),)),
        Within("t", (Spliced(0, 0, "hello"),)),
    )
    crdt.forget(tag("a", 2, a=1))
    assert crdt.differences({"t": "hello"}, crdt.value) == (Within("t", (Spliced(0, 5, ""),)),)


def test_parts_take_effect_with_the_last_one() -> None:
    (whole,) = typed((0, "x" * 5_000))
    crdt = YDoc()
    parts = crdt.divide(crdt.prepare("apply", whole), 3_000)
    assert len(parts) == 3
    for n, part in enumerate(parts[:2], start=1):
        crdt.effect(part, tag("a.1", n, **{"a.1": n - 1}))
    crdt = YDoc.restore(crdt.snapshot())
    assert crdt.value == {} and crdt.log_size == 0 and not crdt.untouched
    with pytest.raises(RemoteProtocolError, match="part 0 was to come"):
        crdt.effect(parts[2], tag("b.1", 1))
    # The next life of the same member sends what is left of it.
    crdt.effect(parts[2], tag("a.2", 1, **{"a.1": 2}))
    assert crdt.value == {"t": "x" * 5_000}
    for n, part in enumerate(parts[:2], start=2):
        crdt.effect(part, tag("a.2", n, **{"a.1": 2, "a.2": n - 1}))
    crdt.effect(["apply", typed((0, "y"), client=2)[0]], tag("a.2", 4, **{"a.2": 3}))
    with pytest.raises(RemoteProtocolError, match="part 0 was to come"):  # it was given up
        crdt.effect(parts[2], tag("a.2", 5, **{"a.2": 4}))


def test_batch_sends_one_update() -> None:
    crdt = YDoc()
    operations: list[list[Any]] = []
    for update in FOUR:
        operations.append(crdt.prepare("apply", update, after=operations))
    (compressed,) = crdt.compressed(operations)
    crdt.effect(compressed, tag("a", 1))
    assert crdt.value == {"t": "cadb"} and len(crdt) == 4


def test_issued_again_with_what_the_group_has_lost() -> None:
    """What this member had from one that is gone, and wrote on, is there again."""
    home = applied(*FOUR)
    group = applied(FOUR[0])
    former = Former(Dot("b", 3), 0, home, lambda dot, index: None)
    assert YDoc.rebase_blind(["apply", FOUR[0]], group, former) == [["apply", FOUR[0]]]
    ((name, update),) = YDoc.rebase_blind(["apply", FOUR[3]], group, former)
    group.effect([name, update], tag("b", 1, a=1))
    assert group == home
    assert YDoc.rebase_blind(["apply", FOUR[3]], YDoc(), Former.unknown()) == []


def test_maps_are_encoded_in_one_order() -> None:
    doc: Doc[Any] = Doc(client_id=1)
    doc.get("a", type=Array).append({letter: {"x": 1, "y": 2} for letter in "abcdefgh"})
    doc.get("t", type=Text).insert_embed(0, dict.fromkeys("abcdefgh", 1))
    crdt = applied(doc.get_update())
    again = YDoc.restore(crdt.snapshot())
    assert again.snapshot() == crdt.snapshot() and again == crdt


def test_memory_counts_tombstones() -> None:
    doc: Doc[Any] = Doc(client_id=1)
    text = doc.get("t", type=Text)
    crdt = YDoc()
    small = crdt.memory().stable
    for n in range(200):
        text.insert(n // 2, "x")
    crdt.effect(["apply", doc.get_update()], tag("a", 1))
    full = crdt.memory().stable
    crdt.forget(tag("a", 2, a=1))
    assert small < full / 5 and crdt.memory().stable > full / 2


def test_damaged_snapshots_are_refused() -> None:
    good = applied(*FOUR).snapshot()
    rng = random.Random(1)
    for _ in range(examples(300)):
        damaged = bytearray(good)
        damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with contextlib.suppress(UnusableInputError):
            YDoc.restore(bytes(damaged))
