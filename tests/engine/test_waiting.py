"""What waits for something that is missing is bounded, for each origin by itself, and named."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import GroupEngine
from crdtcast.engine.delivery import Inbox
from tests.engine.town import Town

MEGABYTE = 2**20


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Small limits, so that they are reached soon."""
    monkeypatch.setattr(Inbox, "most_waiting", 50)
    return 50


def test_far_ahead_dots_are_bounded_and_their_origin_is_named() -> None:
    town = Town("abc")
    a, c = town.engines["a"], town.engines["c"]
    tracemalloc.start()
    for n in range(20_000):
        a.receive(c.me, Message(Dot(c.me, 10**9 + n), (), b"x" * 10))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 10 * MEGABYTE
    counters = a.counters()
    assert counters.pending == Inbox.most_waiting == a.waiting[c.me].messages
    assert counters.crowded_out == 20_000 - Inbox.most_waiting
    assert a.held_back_by() == [c.me]


def test_large_messages_behind_a_gap_are_bounded() -> None:
    town = Town("abc")
    c = town.engines["c"]
    a = GroupEngine(town.id("a"), town.engines["a"].state())
    payload = bytes(MEGABYTE)
    for n in range(400):
        a.receive(c.me, Message(Dot(c.me, 2 * n + 2), (), payload))
    assert a.waiting[c.me].bytes <= Inbox.most_bytes
    assert a.held_bytes == a.waiting[c.me].bytes  # it counts where the limits are
    assert a.held_back_by() == [c.me]


def test_single_oversized_message_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Inbox, "most_bytes", 1000)
    town = Town("ab")
    a, b = town.engines["a"], town.engines["b"]
    a.receive(b.me, Message(Dot(b.me, 2), (), bytes(5000)))
    a.receive(b.me, Message(Dot(b.me, 3), (), b"x"))
    assert a.counters().pending == 1
    a.receive(b.me, Message(Dot(b.me, 1), (), b"x"))
    assert [a.poll() is not None for _ in range(3)] == [True, True, False]
    assert a.waiting == {}


@pytest.mark.usefixtures("few")
def test_flood_of_one_origin_takes_no_room_of_others() -> None:
    town = Town("abc")
    a, b, c = (town.engines[name] for name in "abc")
    for n in range(200):
        a.receive(c.me, Message(Dot(c.me, 10**6 + n), (), b"x"))
    a.receive(b.me, Message(Dot(b.me, 2), (), b"x"))
    assert a.waiting.keys() == {b.me, c.me}
    assert a.held_back_by() == [c.me]


@pytest.mark.usefixtures("few")
def test_messages_of_fake_joiners_count_for_their_sender() -> None:
    """Ids of members whose joins are to come: any number of them."""
    town = Town("abc")
    a, c = town.engines["a"], town.engines["c"]
    for n in range(300):
        guest = f"{new_incarnation('q', n, 0)}+{c.me}+{10**6 + n}"
        a.receive(c.me, Message(Dot(guest, 2), (), b"x"))
    assert a.waiting.keys() == {c.me}
    assert a.counters().pending == 50


@pytest.mark.usefixtures("few")
def test_crowded_out_message_returns_by_repair() -> None:
    town = Town("abc")
    town.cut("a", "c")
    for n in range(300):
        town.send("a", b"a%d" % n)  # b has them all
    town.run(3)
    c = town.engines["c"]
    later = [tag.dot for tag in town.send("a", *(b"more %d" % n for n in range(200)))]
    for message in town.engines["a"].messages(later):
        c.receive(town.id("b"), message)
    assert c.counters().crowded_out == 150
    assert c.held_back_by() == [town.id("a")]
    town.heal()
    town.run(80)
    town.assert_one_group("a", "b", "c")
    assert len(town.log["c"]) == 500


@pytest.mark.usefixtures("few")
def test_ready_but_untaken_message_is_not_crowded_out() -> None:
    town = Town("ab")
    town.send("b", *(b"%d" % n for n in range(300)))
    a, b = town.engines["a"], town.engines["b"]
    for _, message in b.take_outbox():
        a.receive(b.me, message)
    assert a.counters().crowded_out == 0
    assert sum(a.poll() is not None for _ in range(301)) == 300


def test_messages_of_a_victim_wait_within_the_same_bounds(few: int) -> None:
    town = Town("abcd")
    town.run()
    a, d = town.engines["a"], town.engines["d"]
    town.cut("b", "acd")
    a._limits.freeze([d.me])
    for message in [Message(Dot(d.me, n), (), b"x") for n in range(1, 2000) if n != 3]:
        a.receive(d.me, message)
    assert a.poll() is None
    assert a.counters().pending <= few + 3


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(0, 3), st.integers(0, 2)), max_size=60),
    st.sampled_from([3, 100]),
)
def test_waiting_accounts_stay_exact_for_any_arrivals(
    arrivals: list[tuple[int, int, int]], most: int
) -> None:
    """Messages with counters, a dependency, and the origin that they are of; then all that can be taken is."""
    origins = ["a", "b", "q"]
    vector = {"a": 0, "b": 0}
    inbox = Inbox(vector)
    before, Inbox.most_waiting = Inbox.most_waiting, most
    try:
        for counter, depends, which in arrivals:
            context = (Dot("b", depends),) if depends else ()
            message = Message(Dot(origins[which], counter), context, b"x")
            if counter > vector.get(origins[which], 0) and not inbox.follow(message):
                inbox.add(message, "b")
            taken = inbox.take() if counter % 3 == 0 else None
            if taken is not None:
                vector[taken.dot.origin] = taken.dot.counter
                inbox.delivered(taken.dot)
            for origin, line in inbox.lines.items():
                expected = range(vector[origin] + 2, vector[origin] + 2 + len(line))
                assert [message.dot.counter for message in line] == list(expected)
        inbox.purge("a", above=5)
        accounts = inbox.waiting_by_origin().values()
        in_lines = sum(map(len, inbox.lines.values()))
        assert sum(held.messages for held in accounts) == len(inbox._pending) + in_lines
        assert sum(held.bytes for held in accounts) == inbox.bytes
        assert all(held.messages for held in accounts)
    finally:
        Inbox.most_waiting = before
