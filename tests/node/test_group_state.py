"""The form of a group's state on the wire: it comes back as it was, and nothing else gets through."""

from dataclasses import fields, replace
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.causality.messages import Digest, DigestKind, Message
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import Cut, GroupEngine, GroupState, How, MemberInfo
from crdtcast.engine.membership import Early
from crdtcast.engine.views import NO_WANTS, Decided, Record, View, Wants
from crdtcast.exceptions import ConfigurationError, RemoteProtocolError
from crdtcast.wire.state import (
    Happened,
    JoinerEntry,
    pack_entry,
    pack_state,
    unpack_entry,
    unpack_state,
)
from tests.view_values import (
    DECIDED,
    JUNK,
    RECORD,
    VIEW,
    WANTS,
    A,
    B,
    C,
    at,
    decisions,
    places,
    put,
    records,
    views,
    wants,
)

FULL = GroupState(
    counter=3,
    vector={A: 3, B: 9, C: 4},
    context=(Dot(A, 3), Dot(B, 9)),
    stable={A: 2, B: 8, C: 4},
    unstable=(Message(Dot(A, 3), (Dot(B, 8),), b"payload"), Message(Dot(B, 9), (), b"op", kind=3)),
    members=(MemberInfo(A), MemberInfo(B, witness=True, said_at=5)),
    replaced={"c.0003": B},
    ended={C: Cut(4, How.LEFT)},
    swept={C: Dot(A, 2)},
    early={B: (Early(9, Dot(A, 3), True), Early(8))},
    tombs={"d.0004": Cut(0, How.FORCED)},
    dropped=17,
    view=VIEW,
    record=replace(RECORD, member=B),
    decided=(DECIDED,),
    frozen={A: 3},
    cuts={B: Cut(12, How.EVICTED)},
    agreed=1,
    wants=WANTS,
)
TAG = Tag(Dot(A, 3), (Dot(B, 8),), {A: 2, B: 8})


@pytest.mark.parametrize("state", [GroupState(), FULL, replace(FULL, agreed=7)])
def test_group_state_survives_encoding(state: GroupState) -> None:
    assert unpack_state(msgpack.unpackb(msgpack.packb(pack_state(state)))) == state


def test_joiner_entry_survives_encoding_with_its_tags() -> None:
    entry = JoinerEntry(B, A, FULL, (Happened(TAG, b"payload"), Happened(TAG, None)))
    back = unpack_entry(pack_entry(entry))
    assert back == entry
    assert back.since[0].tag.past == TAG.past
    assert back.since[0].tag.context == TAG.context


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


PACKED = msgpack.unpackb(msgpack.packb(pack_state(FULL)), strict_map_key=False)
OF_VIEWS = range(12, len(PACKED))


@given(views, records | st.none(), st.lists(decisions, max_size=2).map(tuple), wants)
def test_view_records_survive_encoding(
    view: View, record: Record | None, decided: tuple[Decided, ...], wanted: Wants
) -> None:
    state = replace(FULL, view=view, record=record, decided=decided, wants=wanted)
    assert unpack_state(msgpack.unpackb(msgpack.packb(pack_state(state)))) == state


@pytest.mark.parametrize(
    "place", [place for place in places(PACKED) if place and place[0] in OF_VIEWS]
)
def test_junk_in_any_field_of_views_is_refused(place: tuple[Any, ...]) -> None:
    before = at(PACKED, place)
    for junk in JUNK:
        if type(junk) is not bool or type(before) is not bool:
            with pytest.raises(RemoteProtocolError):
                unpack_state(put(PACKED, place, junk))


@given(st.integers(0, len(PACKED) - 1), anything)
def test_state_with_a_wrong_field_is_refused_or_still_valid(at: int, value: object) -> None:
    packed = pack_state(FULL)
    packed[at] = value
    try:
        state = unpack_state(packed)
    except RemoteProtocolError:
        return
    assert unpack_state(msgpack.unpackb(msgpack.packb(pack_state(state)))) == state


WRONG = {
    "a member of whom nothing is known": {
        "members": (MemberInfo(A), MemberInfo(B), MemberInfo("e.1"))
    },
    "a member that has ended": {"ended": {A: Cut(3, How.EVICTED), C: Cut(4, How.LEFT)}},
    "the end of nobody": {"ended": {C: Cut(4, How.LEFT), "e.1": Cut(4, How.LEFT)}},
    "more of one that went than counts": {"cuts": {A: Cut(2, How.EVICTED)}},
    "a sweep of a member": {"swept": {A: Dot(A, 2)}},
    "more stable than delivered": {"stable": {A: 4, B: 8, C: 4}},
    "a context beyond": {"context": (Dot(A, 7),)},
    "a message that is not delivered": {"unstable": (Message(Dot(A, 4), (), b""),)},
    "a gap": {"stable": {A: 0, B: 8, C: 4}},
    "nothing of the joiner": {"members": (MemberInfo(A),)},
}


def test_admission_contains_all_unstable_messages() -> None:
    with pytest.raises(RemoteProtocolError, match="unstable"):
        unpack_entry(pack_entry(JoinerEntry(B, A, replace(FULL, unstable=FULL.unstable[:1]), ())))


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG.keys())
def test_impossible_state_is_refused_before_an_engine_is_made(
    wrong: dict[str, Any],
) -> None:
    state = replace(FULL, **wrong)
    with pytest.raises(RemoteProtocolError, match="invalid admission"):
        unpack_entry(pack_entry(JoinerEntry(B, A, state, ())))
    with pytest.raises(ConfigurationError):
        GroupEngine(B, state)


not_made_up = ("agreed",)
parts = st.sampled_from(
    [f.name for f in fields(GroupState) if f.init and f.name not in not_made_up]
)
ids = st.sampled_from([A, B, C, "e.1", f"e.1+{A}+9"])
few = st.integers(0, 12)
made_up: dict[str, st.SearchStrategy[Any]] = {
    "counter": few,
    "vector": st.dictionaries(ids, few),
    "context": st.lists(st.builds(Dot, ids, few)).map(tuple),
    "stable": st.dictionaries(ids, few),
    "unstable": st.lists(
        st.builds(Message, st.builds(Dot, ids, few), st.just(()), st.just(b""))
    ).map(tuple),
    "members": st.lists(st.builds(MemberInfo, ids, said_at=few)).map(tuple),
    "replaced": st.dictionaries(ids, ids),
    "ended": st.dictionaries(ids, st.builds(Cut, few, st.sampled_from(How))),
    "early": st.dictionaries(ids, st.lists(st.builds(Early, few), max_size=2).map(tuple)),
    "view": st.builds(replace, views, level=st.just(1)),
    "record": st.none(),
    "decided": st.lists(decisions, max_size=2).map(tuple),
    "frozen": st.dictionaries(ids, few),
    "cuts": st.dictionaries(ids, st.builds(Cut, few, st.sampled_from(How))),
    "wants": st.just(NO_WANTS),
    "swept": st.dictionaries(ids, st.builds(Dot, ids, few)),
    "tombs": st.dictionaries(ids, st.builds(Cut, few, st.sampled_from(How))),
    "dropped": few,
}


@given(st.data(), st.sets(parts, min_size=1, max_size=3))
def test_made_up_admission_is_refused_or_gives_a_working_engine(
    data: st.DataObject, wrong: set[str]
) -> None:
    state = replace(FULL, **{part: data.draw(made_up[part]) for part in sorted(wrong)})
    try:
        entry = unpack_entry(pack_entry(JoinerEntry(B, A, state, ())))
    except RemoteProtocolError:
        return
    engine = GroupEngine(B, entry.state)
    for peer in (A, C):
        engine.connected(peer)
    for _ in range(12):
        engine.tick()
        engine.receive(A, Digest(DigestKind.ASK, {A: 3, B: 9}))
        while engine.poll() or engine.poll_stable():
            pass
        engine.take_outbox()


@given(st.binary(max_size=60) | anything.map(msgpack.packb))
def test_any_bytes_are_an_entry_or_refused(packed: bytes) -> None:
    try:
        unpack_entry(packed)
    except RemoteProtocolError:
        return
    raise AssertionError("an entry out of nothing")
