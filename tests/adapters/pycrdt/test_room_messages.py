"""The messages of rooms, and what clients say about themselves: read back, or refused."""

import contextlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.adapters.pycrdt.rooms import awareness, messages
from crdtcast.adapters.pycrdt.rooms.awareness import (
    MAX_CLIENTS_OF_ONE,
    Awareness,
    ClientState,
    fitting,
)
from crdtcast.adapters.pycrdt.rooms.channels import reason_to_close
from crdtcast.adapters.pycrdt.rooms.messages import Reader
from crdtcast.exceptions import RemoteProtocolError
from tests.effort import examples

numbers = st.integers(0, messages.MOST)
texts = st.binary(max_size=300)
all_messages = st.one_of(
    st.builds(messages.Step1, texts),
    st.builds(messages.Changes, texts, st.booleans()),
    st.builds(messages.Presence, texts),
    st.just(messages.AskPresence()),
    st.builds(messages.Denied, st.text(st.characters(codec="utf-8"), max_size=50)),
)
states = st.builds(
    ClientState, numbers, numbers, st.sampled_from(["null", "{}", '{"user":{"name":"Änn"}}', "1"])
)


@given(all_messages)
def test_each_message_is_read_back(message: messages.RoomMessage) -> None:
    assert messages.decode(messages.encode(message)) == message


@given(st.lists(states, max_size=5))
def test_states_of_clients_are_read_back(told: list[ClientState]) -> None:
    possible = [each for each in told if each.clock <= awareness.MAX_CLOCK]
    assert awareness.decode(awareness.encode(told)) == possible


def test_number_with_zeros_without_end_is_refused_at_once() -> None:
    read = Reader(b"\x80" * 20)
    with pytest.raises(RemoteProtocolError, match="no client can write"):
        read.number()
    assert Reader(b"\xff" * 7 + b"\x0f").number() == 2**53 - 1


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(raw: bytes) -> None:
    for decode in (messages.decode, awareness.decode):
        with contextlib.suppress(RemoteProtocolError):
            decode(raw)


@pytest.mark.parametrize(
    ("value", "raw"),
    [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (2**32, b"\x80\x80\x80\x80\x10")],
)
def test_numbers_are_those_of_lib0(value: int, raw: bytes) -> None:
    assert messages.number(value) == raw
    assert messages.Reader(raw).number() == value


@given(st.text(max_size=300))
def test_any_reason_fits_into_a_close(text: str) -> None:
    reason = reason_to_close(text)
    assert len(reason.encode()) <= 123
    assert len(text) > 30 or reason == text.encode(errors="replace").decode()


def test_deep_state_of_a_client_is_refused_without_recursion() -> None:
    with pytest.raises(RemoteProtocolError, match="not JSON"):
        awareness.decode(awareness.encode([ClientState(1, 1, "[" * 4000)]))


def test_echo_of_what_is_known_changes_nothing() -> None:
    room = Awareness()
    ann = ClientState(1, 5, '"ann"')
    assert room.announce("a", [ann], 0) == ([1], [])
    assert room.announce("b", [ann], 0) == ([], [])  # y-websocket tells others' states, too
    assert room.left("b") == [] and room.state(1) == ann
    assert room.announce("b", [ClientState(1, 5, "null")], 0) == ([], [])
    assert room.announce("a", [ClientState(1, 5, "null")], 0) == ([1], [])
    assert room.state(1) == (1, 5, "null") and room.known() == [] and room.own == []


def test_client_that_comes_back_is_told_its_clock() -> None:
    room = Awareness()
    room.announce("a", [ClientState(1, 5, '"ann"')], 0)
    assert room.left("a") == [1]
    assert room.announce("b", [ClientState(1, 5, '"ann"')], 0) == ([], [(1, 5, "null")])
    assert room.announce("b", [ClientState(1, 6, '"ann"')], 0) == ([1], [])


def test_clients_of_another_node_go_with_its_whisper() -> None:
    room = Awareness()
    ann, bob = ClientState(1, 5, '"ann"'), ClientState(2, 1, '"bob"')
    assert room.hear("us", [ann, bob]) == [1, 2]
    assert room.hear("us", [ann, bob]) == []
    assert room.hear("us", [bob]) == [1]
    assert room.state(1) == (1, 5, "null")
    # Ann is here now; that another node stops to name her does not matter.
    room.hear("asia", [ClientState(3, 1, '"cy"'), ann._replace(clock=6)])
    room.announce("a", [ann._replace(clock=7)], 0)
    assert room.hear("asia", []) == [1, 3]
    assert room.state(1) == ann._replace(clock=7)
    assert [each.client for each in room.known()] == [1, 2]


def test_one_connection_announces_a_limited_number_of_clients() -> None:
    room = Awareness()
    many = [ClientState(number, 1, "{}") for number in range(1, 100)]
    assert len(room.announce("a", many, 0).changed) == MAX_CLIENTS_OF_ONE
    assert room.announce("b", many[-1:], 0).changed == [99]
    assert [*fitting(room.own, 100)] == [1, 2, 3]


def test_silent_clients_expire() -> None:
    room = Awareness()
    room.announce("a", [ClientState(1, 1, "{}")], 10)
    room.announce("b", [ClientState(2, 1, "{}")], 20)
    assert room.expire(15) == [1] and room.expire(15) == []
    room.announce("b", [ClientState(2, 2, "{}")], 30)
    assert room.expire(25) == []


def test_node_objects_to_a_client_that_its_own_do_not_see() -> None:
    here, there = Awareness(), Awareness()
    ann = ClientState(1, 5, '"ann"')
    there.announce("tab", [ann], 0)
    here.hear("there", there.own)
    assert here.objections() == []
    here.hear("there", [])  # a link that was down, or a tab that dials again
    assert here.hear("there", [ann]) == [1] and here.state(1) == ann
    assert here.objections() == [(1, 5, "null")]
    assert there.hear("here", here.objections()) == []
    assert there.objected() == [("tab", (1, 5, "null"))]
    # It may come again, with what it had, after the objection.
    there.left("tab")
    again = Awareness()
    again.hear("here", here.objections())
    assert again.announce("tab", [ann], 0) == ([1], [(1, 5, "null")])
    assert again.announce("tab", [ann._replace(clock=6)], 0) == ([1], [])
    here.hear("there", again.own)
    assert here.objections() == [] == again.objected()


def test_client_that_is_moving_is_here_until_both_nodes_lose_it() -> None:
    room = Awareness()
    ann = ClientState(1, 5, '"ann"')
    room.hear("eu", [ann])
    room.hear("us", [ann])
    room.hear("eu", [])
    assert room.state(1) == ann and room.objections() == []
    room.hear("eu", [ann._replace(clock=7)])
    room.hear("eu", [])  # that at `us` is older: browsers would ignore it
    assert room.state(1) == (1, 7, "null") and room.objections() == [(1, 7, "null")]


steps = st.one_of(
    st.tuples(st.just("say"), st.integers(0, 2), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("leave"), st.integers(0, 2)),
    st.tuples(st.just("hear"), st.integers(0, 1), st.sets(st.integers(1, 3))),
)


@settings(max_examples=examples(200))
@given(st.lists(steps, max_size=40))
def test_clients_that_are_told_changes_know_all_that_is_known(
    run: list[tuple[object, ...]],
) -> None:
    """A browser that takes what is told of changed clients, as y-protocols does, has what the room has."""
    room = Awareness()
    browser: dict[int, ClientState] = {}
    clocks: Counter[int] = Counter()
    for verb, who, *what in run:
        if verb == "say":
            client, stays = what
            clocks[client] += 1
            said = ClientState(client, clocks[client], "{}" if stays else "null")
            changed = room.announce(f"tab {who}", [said], 0).changed
        elif verb == "leave":
            changed = room.left(f"tab {who}")
        else:
            told = []
            for client in sorted(what[0]):
                clocks[client] += 1
                told.append(ClientState(client, clocks[client], "{}"))
            changed = room.hear(f"node {who}", told)
        for client in changed:
            now, before = room.state(client), browser.get(client)
            assert now is not None
            if (
                before is None
                or before.clock < now.clock
                or (before.clock == now.clock and now.is_gone)
            ):
                browser[client] = now
        present = {each.client for each in browser.values() if not each.is_gone}
        assert present == {each.client for each in room.known() if not each.is_gone}
