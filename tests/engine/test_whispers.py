"""Whispers: the latest of each member and topic counts, until it expires; all tables are limited."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.engine.whispers import (
    MAX_BYTES,
    MAX_TOPIC,
    MAX_TOPICS,
    MAX_WHISPER,
    Listener,
    Whisper,
    WhisperFrame,
    Whispers,
)
from crdtcast.exceptions import LocalProtocolError
from tests.effort import examples


def pair() -> tuple[Whispers, Whispers]:
    a, b = Whispers(), Whispers()
    a.linked("b")
    b.linked("a")
    return a, b


def told(listener: Listener) -> Iterator[tuple[str, bytes]]:
    while (whisper := listener.next()) is not None:
        yield whisper.topic, whisper.payload


def carry(a: Whispers, b: Whispers, now: float = 0) -> int:
    frames = a.take("b", now, 10 * MAX_BYTES)
    for frame in frames:
        b.receive("a", frame, now)
    return len(frames)


def test_a_slow_link_carries_only_the_latest_of_each_topic() -> None:
    a, b = pair()
    ear = b.listen(())
    for number in range(1000):
        a.say(f"topic-{number % 3}", b"%d" % number, 30, 0)
    assert a.waits_for("b") and carry(a, b) == 3
    assert not a.waits_for("b")
    assert dict(told(ear)) == {"topic-0": b"999", "topic-1": b"997", "topic-2": b"998"}
    assert a.dropped["b"] == 0


def test_a_busy_topic_does_not_hold_up_the_others() -> None:
    a, _ = pair()
    a.say("quiet", b"x", 30, 0)
    a.say("busy", bytes(1000), 30, 0)
    a.say("quiet", b"y", 30, 0)
    assert [frame.topic for frame in a.take("b", 0, 1)] == ["quiet"]
    a.say("busy", bytes(1000), 30, 0)
    assert [frame.topic for frame in a.take("b", 0, 1)] == ["busy"]
    assert a.take("b", 0) == []


def test_whispers_expire_at_the_receiver_and_at_the_sender() -> None:
    a, b = pair()
    ear = b.listen(())
    a.say("cursor", b"here", 10, now=100)
    carry(a, b, now=104)  # it had waited for the link: six seconds are left
    b.expire(109.9)
    assert [*told(ear)] == [("cursor", b"here")]
    b.expire(110.1)
    assert [*told(ear)] == [("cursor", b"")]
    a.unlinked("b")
    a.linked("b")
    assert all(frame.payload == b"" for frame in a.take("b", now=111))
    a.expire(111)
    assert a.said("cursor") == b""


@pytest.mark.parametrize("payload", [b"short", b""])
def test_whisper_that_expired_unsent_ends_the_longer_one(payload: bytes) -> None:
    a, b = pair()
    ear = b.listen(())
    a.say("cursor", b"long", 3600, now=0)
    carry(a, b)
    a.say("cursor", payload, 1, now=1)
    carry(a, b, now=3)  # the link was slow
    assert [*told(ear)] == [] and b.latest("a", "cursor") == b""


def test_what_expires_while_a_link_is_slow_does_not_pile_up() -> None:
    a, b = pair()
    for number in range(3 * MAX_TOPICS):
        a.say(str(number), b"x", 0.001, now=number)
    assert a.dropped["b"] == 2 * MAX_TOPICS and carry(a, b, 3 * MAX_TOPICS) == MAX_TOPICS


def test_whisper_said_again_lives_on_without_telling() -> None:
    a, b = pair()
    ear = b.listen(())
    for now in range(0, 100, 5):
        a.say("cursor", b"here", 10, now)
        carry(a, b, now)
        b.expire(now)
    assert [*told(ear)] == [("cursor", b"here")]
    b.expire(105)
    assert [*told(ear)] == [("cursor", b"")]


def test_taken_back_or_unlinked_whispers_are_told_as_over() -> None:
    a, b = pair()
    ear = b.listen(["cursor", "name"])
    for topic in ("cursor", "name", "other"):
        a.say(topic, b"x", 30, 0)
    carry(a, b)
    assert [*told(ear)] == [("cursor", b"x"), ("name", b"x")]
    a.say("name", b"", 30, 0)
    carry(a, b)
    assert [*told(ear)] == [("name", b"")]
    b.unlinked("a")
    assert [*told(ear)] == [("cursor", b"")]
    b.linked("a")
    a.unlinked("b")
    a.linked("b")  # the new link gets all that is in force
    carry(a, b)
    assert [*told(ear)] == [("cursor", b"x")]
    assert b.latest("a", "name") == b""


def test_late_listener_hears_what_is_in_force() -> None:
    a, b = pair()
    a.say("x", b"1", 30, 0)
    a.say("y", b"2", 30, 0)
    carry(a, b)
    assert [*told(b.listen(()))] == [("x", b"1"), ("y", b"2")]
    ear = b.listen(["y"])
    assert ear.has_news and ear.next() == Whisper("a", "y", b"2") and not ear.has_news


def test_what_comes_and_goes_unnoticed_is_not_told() -> None:
    a, b = pair()
    ear = b.listen(())
    a.say("x", b"1", 30, 0)
    carry(a, b)
    a.say("x", b"", 30, 0)
    carry(a, b)
    assert not ear.has_news and [*told(ear)] == []


def test_a_member_has_a_limited_number_of_topics_and_bytes() -> None:
    a, b = pair()
    ear = b.listen(())
    for number in range(3 * MAX_TOPICS):
        a.say(f"{number}", b"x", 30, 0)
    assert a.dropped["b"] == 2 * MAX_TOPICS
    assert carry(a, b) == MAX_TOPICS
    for number in range(3 * MAX_BYTES // MAX_WHISPER):
        a.say(f"long {number}", bytes(MAX_WHISPER), 30, 0)
    frames = a.take("b", 0, 10 * MAX_BYTES)
    assert sum(len(frame.payload) for frame in frames) <= MAX_BYTES
    assert len([*told(ear)]) == MAX_TOPICS


@pytest.mark.parametrize("size", [1, MAX_WHISPER])
def test_a_member_without_limits_displaces_only_its_own(size: int) -> None:
    b = Whispers()
    b.linked("a")
    b.linked("c")
    ear = b.listen(())
    b.receive("c", WhisperFrame(1, "mine", 30_000, b"x"), 0)
    for number in range(1, 4 * MAX_TOPICS):
        b.receive("a", WhisperFrame(number, f"{number}", 30_000, bytes(size)), 0)
        if number % 3 == 0:
            ear.next()
    held = [key for key in b.all_heard() if key[0] == "a"]
    assert 0 < len(held) <= min(MAX_TOPICS, MAX_BYTES // size)
    assert b.dropped["a"] == 4 * MAX_TOPICS - 1 - len(held)
    assert b.latest("c", "mine") == b"x"
    assert len([*told(ear)]) <= 2 * MAX_TOPICS + 1


@pytest.mark.parametrize(
    ("topic", "payload", "seconds", "why"),
    [
        ("", b"x", 30, "cannot whisper on topic ''"),
        ("x" * (MAX_TOPIC + 1), b"x", 30, "cannot whisper on topic"),
        ("\ud800", b"x", 30, "cannot whisper on topic"),
        (5, b"x", 30, "cannot whisper on topic 5"),
        ("x", bytes(MAX_WHISPER + 1), 30, "cannot whisper 65,537 bytes"),
        ("x", "text", 30, "cannot whisper str"),
        ("x", b"x", 0, "cannot last 0 seconds"),
        ("x", b"x", 3601, "cannot last 3601 seconds"),
        ("x", b"x", float("nan"), "cannot last nan seconds"),
    ],
)
def test_whisper_beyond_the_limits_is_refused(
    topic: Any, payload: Any, seconds: Any, why: str
) -> None:
    a, _ = pair()
    with pytest.raises(LocalProtocolError, match=why):
        a.say(topic, payload, seconds, 0)
    assert not a.waits_for("b")


steps = st.one_of(
    st.tuples(st.just("say"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("take")),
    st.tuples(st.sampled_from(["arrive", "double", "lose"]), st.integers(0, 5)),
    st.tuples(st.just("wait"), st.integers(1, 12)),
    st.tuples(st.just("relink")),
    st.tuples(st.just("listen"), st.integers(1, 3)),
)


@settings(max_examples=examples(400))
@given(st.lists(steps, max_size=60))
def test_any_network_ends_with_the_latest_or_nothing(run: list[Any]) -> None:
    a, b = pair()
    ear = b.listen(())
    flight: list[WhisperFrame] = []
    now, count = 0.0, 0
    known: dict[str, int] = {}

    def listen(most: int = 1000) -> None:
        while most and (whisper := ear.next()) is not None:
            most -= 1
            before = known.pop(whisper.topic, 0)
            if whisper.payload:
                known[whisper.topic] = int(whisper.payload)
                assert known[whisper.topic] > before
            else:
                assert before, "told as over, and was never told"

    def say(topic: int, payload: bytes) -> None:
        a.say(f"{topic}", payload, 10, now)

    for verb, *values in run:
        match verb:
            case "say":
                count += 1
                say(values[0], b"%d" % count if values[1] else b"")
            case "take":
                flight += a.take("b", now)
            case "arrive" | "double" | "lose" if values[0] < len(flight):
                frame = flight[values[0]]
                if verb != "double":
                    del flight[values[0]]
                if verb != "lose":
                    b.receive("a", frame, now)
            case "wait":
                now += values[0]
                a.expire(now)
                b.expire(now)
            case "relink":
                listen()
                b.unlinked("a")
                a.unlinked("b")
                listen()
                assert known == {}
                a.linked("b")
                b.linked("a")
                flight.clear()
            case "listen":
                listen(values[0])
    # All is said once more on a network without faults.
    flight += a.take("b", now)
    for topic in range(2):
        say(topic, b"%d" % (count + 1 + topic))
    for frame in [*flight, *a.take("b", now)]:
        b.receive("a", frame, now)
    listen()
    heard = {topic: int(b.latest(peer, topic)) for peer, topic in b.all_heard()}
    assert heard == known
    assert (heard["0"], heard["1"]) == (count + 1, count + 2)
    b.expire(now + 11)
    listen()
    assert known == {}
