"""The form of a group's state on the wire: it comes back as it was, and nothing else gets through."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.engine import Cut, GroupState, How, Member
from crdtcast.exceptions import RemoteProtocolError
from crdtcast.group_state import Entry, Happened, pack_entry, pack_state, unpack_entry, unpack_state
from crdtcast.messages import Message
from crdtcast.tags import Dot, Tag

A, B, C = "a.0001", "b.0002+a.0001+1", "c.0003+b.0002+7"
FULL = GroupState(
    counter=3,
    vector={A: 3, B: 9},
    context=(Dot(A, 3), Dot(B, 9)),
    stable={A: 2},
    unstable=(Message(Dot(A, 3), (Dot(B, 8),), b"payload"), Message(Dot(B, 9), (), b"op", kind=3)),
    members=(Member(A), Member(B, witness=True)),
    replaced={"c.0003": B},
    ended={C: Cut(4, How.LEFT)},
    evictions={B: {A: 9}},
    forced=frozenset({B}),
    swept={C: Dot(A, 2)},
    tombs={"d.0004": Cut(0, How.FORCED)},
    dropped=17,
)
TAG = Tag(Dot(A, 3), (Dot(B, 8),), {A: 2, B: 8})


@pytest.mark.parametrize("state", [GroupState(), FULL])
def test_a_state_comes_back_as_it_was(state: GroupState) -> None:
    assert unpack_state(msgpack.unpackb(msgpack.packb(pack_state(state)))) == state


def test_an_entry_comes_back_as_it_was_with_the_tags_pasts() -> None:
    entry = Entry(B, A, FULL, (Happened(TAG, b"payload"), Happened(TAG, None)))
    back = unpack_entry(pack_entry(entry))
    assert back == entry
    assert back.since[0].tag.past == TAG.past
    assert back.since[0].tag.context == TAG.context


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.integers(0, 12), anything)
def test_a_state_with_something_else_in_it_is_refused_or_harmless(at: int, value: object) -> None:
    packed = pack_state(FULL)
    packed[at] = value
    try:
        state = unpack_state(packed)
    except RemoteProtocolError:
        return
    assert unpack_state(msgpack.unpackb(msgpack.packb(pack_state(state)))) == state


@given(st.binary(max_size=60) | anything.map(msgpack.packb))
def test_any_bytes_are_an_entry_or_refused(packed: bytes) -> None:
    try:
        unpack_entry(packed)
    except RemoteProtocolError:
        return
    raise AssertionError("an entry out of nothing")
