"""Objects on a group: whatever an operator types is done or refused, and never half done."""

from contextlib import suppress
from random import Random
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import AWSet
from crdtcast.exceptions import CrdtcastError, LocalProtocolError
from crdtcast.replica.object_machine import ObjectMachine
from crdtcast.replica.objects import known_types
from crdtcast.service.admin.values import shown

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
operations = st.sampled_from(
    [(name, each) for name, crdt in sorted(known_types().items()) for each in crdt.OPERATIONS]
)


class Alone:
    """A member without others: what is sent is delivered to its shelf."""

    def __init__(self) -> None:
        self.machine = ObjectMachine("a", lambda: 1_700_000_000_000)
        self.machine.speak_for(self)
        self.sent: list[bytes] = []

    incarnation = "a.1"
    parked = None

    def perform(self, name: str, type_name: str, operation: str, args: list[Any]) -> Tag:
        objects = self.machine.objects
        entry = objects.entry(
            (name, type_name), objects.prepare((name, type_name), operation, args)
        )
        return self.machine.send(self.machine.packed([entry]))

    def tcbroadcast(self, payload: bytes) -> Tag:
        tag = Tag(Dot("a.1", len(self.sent) + 1), (), {"a.1": len(self.sent)})
        self.sent.append(payload)
        self.machine.tcdeliver(payload, tag)
        return tag


@given(st.lists(st.tuples(operations, st.lists(json_values, max_size=3)), max_size=6))
def test_any_typed_operation_is_done_or_refused_cleanly(
    typed: list[tuple[tuple[str, str], list[Any]]],
) -> None:
    alone = Alone()
    for (type_name, operation), args in typed:
        sent = len(alone.sent)
        try:
            alone.perform(type_name, type_name, operation, args)
        except CrdtcastError:
            assert len(alone.sent) == sent
        else:
            assert len(alone.sent) == sent + 1
        assert alone.machine.unreadable == 0
    copy = ObjectMachine("b", lambda: 1_700_000_000_000)
    copy.set_state(alone.machine.get_state())
    for line in alone.machine.objects.listing():
        value = copy.objects.crdt((line.name, line.type)).value
        assert value == alone.machine.objects.crdt((line.name, line.type)).value
        shown(value)
    for number in range(len(alone.sent)):
        tag = Tag(Dot("a.1", number + 1), (), {"a.1": number})
        alone.machine.tcstable(tag)
        copy.tcstable(tag)
    assert copy.get_state() == alone.machine.get_state()


@given(
    st.lists(st.tuples(operations, st.lists(json_values, max_size=2)), max_size=12), st.randoms()
)
def test_state_of_packed_objects_equals_that_of_unpacked_ones(
    typed: list[tuple[tuple[str, str], list[Any]]], random: Random
) -> None:
    alone = Alone()
    settled = 0
    for (type_name, operation), args in typed:
        with suppress(CrdtcastError):
            alone.perform(random.choice("xy") + type_name, type_name, operation, args)
        if random.random() < 0.3:
            alone.machine.send(alone.machine.packed([[random.choice("xy") + type_name, None]]))
        if random.random() < 0.3 and settled < len(alone.sent):
            settled += 1
            alone.machine.tcstable(Tag(Dot("a.1", settled), (), {"a.1": settled - 1}))
        objects = msgpack.unpackb(alone.machine.get_state())[1]
        assert msgpack.packb(objects) == msgpack.packb(alone.machine.objects.packed())


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x93\x00\x90\x90", b"\x92\x05\x90", b"\x05"])
def test_foreign_payload_is_skipped_and_counted(payload: bytes) -> None:
    alone = Alone()
    alone.machine.tcdeliver(payload, Tag(Dot("b.1", 1), (), {}))
    assert alone.machine.unreadable == 1
    alone.machine.tcstable(Tag(Dot("b.1", 1), (), {}))


@pytest.mark.parametrize(
    ("payload", "counted"),
    [
        (b"\x92\x00\xdd\x00\x04\x00\x00" + b"\x90" * 2**18, 1),
        (b"\x92\x00\xdd\x00\x04\x00\x00" + b"\x01" * 2**18, 1),
        (msgpack.packb([0, [["x", "register_lww", "assign", [[]] * 2**18, 0]]]), 1),
        (msgpack.packb([0, [["x", "set_aw", "add", "kept"], 7]]), 1),
        (msgpack.packb([0, [["x", "set_aw", "explode"]] * 5000]), 5000),
    ],
)
def test_a_payload_of_millions_of_parts_is_one_line(
    payload: bytes, counted: int, caplog: pytest.LogCaptureFixture
) -> None:
    """16 MiB of one-byte nonsense were 17 million lines, 1.3 GB, and minutes in the loop."""
    alone = Alone()
    for counter in range(1, 4):
        alone.machine.tcdeliver(payload, Tag(Dot("b.1", counter), (), {"b.1": counter - 1}))
    assert alone.machine.unreadable == 3 * counted
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "x" not in {
        info.name for info in alone.machine.objects.listing() if info.type != "set_aw"
    }


def test_machine_outside_a_group_refuses_to_send() -> None:
    shelf = ObjectMachine("a", lambda: 0)
    with pytest.raises(LocalProtocolError, match="is not yet a member of its group"):
        shelf.send(shelf.packed([["x", None]]))


@pytest.mark.parametrize("name", ["\udcff", 5, None])
def test_name_that_cannot_be_encoded_is_refused(name: Any) -> None:
    alone = Alone()
    with pytest.raises(CrdtcastError, match="invalid object name"):
        alone.perform(name, "set_aw", "add", ["x"])
    assert not alone.sent


def test_state_torn_by_a_failing_type_cannot_be_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = Alone()
    alone.perform("cart", "set_aw", "add", ["milk"])

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr(AWSet, "arrival", fail)
        with pytest.raises(ZeroDivisionError):
            alone.perform("cart", "set_aw", "add", ["tea"])
    with pytest.raises(LocalProtocolError, match="fix it, and open the replica again"):
        alone.machine.get_state()
