"""What is stored of an origin, while its oldest messages are forgotten and new ones come."""

from dataclasses import replace

import pytest

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import Engine
from crdtcast.engine.store import TRIM, Store
from crdtcast.exceptions import ConfigurationError

from .group import Group


def message(origin: str, counter: int) -> Message:
    return Message(Dot(origin, counter), (), b"")


def add(store: Store, origin: str, counter: int) -> None:
    stored = store.add(message(origin, counter), Tag(Dot(origin, counter)), 0)
    assert store.get(origin, counter) is stored


@pytest.mark.parametrize("first", [1, 1000])
def test_store_frees_forgotten_messages_and_finds_the_rest(first: int) -> None:
    store = Store()
    end = first + 3 * TRIM
    for counter in range(first, end):
        add(store, "a", counter)
    run = store.by_origin["a"]
    for forgotten in range(first, end - 1):
        assert run.first == forgotten
        stored = store.get("a", forgotten)
        assert stored is not None
        assert stored.message.dot.counter == forgotten
        store.remove([stored])
        assert store.get("a", forgotten) is None
        assert len(run) <= end - forgotten + TRIM
    assert run.at(end - 1).message.dot == Dot("a", end - 1)
    assert run.last == end - 1
    assert [s.message.dot.counter for s in store.in_order()] == [end - 1]
    store.remove([run.at(end - 1)])
    assert not store.by_origin
    assert store.size == store.bytes == 0
    add(store, "a", end)
    assert store.get("a", end - 1) is store.get("a", end + 1) is None


def test_delivery_order_is_trimmed_as_stability_is_reported() -> None:
    store = Store()
    for counter in range(1, 1001):
        for origin in "ab":
            add(store, origin, counter)
    for first in range(1, 1001, 100):
        store.remove([s for s in store.in_order() if s.message.dot.counter < first + 100])
        oldest = store.oldest({})
        assert (oldest.message.dot if oldest else None) == (
            Dot("a", first + 100) if first < 901 else None
        )


def test_a_saved_state_with_a_gap_is_refused() -> None:
    group = Group("ab")
    for _ in range(3):
        group["a"].send(b"")
    state = group["a"].state()
    first, _, third = state.unstable
    with pytest.raises(ConfigurationError, match="lacks a message before"):
        Engine(group["a"].me, "ab", state=replace(state, unstable=(first, third)))
