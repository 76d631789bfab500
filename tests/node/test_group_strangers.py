"""Whatever a process says on a link that carries groups, and is no member: its link ends, or the group
goes on as if nothing had been said.
"""

import logging
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crdtcast.causality.messages import Digest, DigestKind, Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import Span
from crdtcast.engine.whispers import WhisperFrame
from crdtcast.testing import simulated
from crdtcast.wire.frames import Frame, Hello, KeepAlive, Named, Refusal, Welcome, encode
from crdtcast.wire.group_frames import (
    Admit,
    Apart,
    Copy,
    Ended,
    Grouped,
    Here,
    Known,
)
from crdtcast.wire.offer_frames import Ask, Fetch, Offer, Part, Unable
from tests.effort import examples
from tests.node.fixed import incarnation
from tests.node.group_support import members_are, world

NUMBERS = st.sampled_from([1, 1, 1, 1, 0, 2])
SPANS = st.sampled_from([Span(1, 1), Span(1, 3), Span(2, 2)])
COUNTERS = st.integers(0, 3) | st.sampled_from([2**31, 2**63, 2**64 - 1])


def frames(me: str, founding: str) -> st.SearchStrategy[Frame]:
    """What may be said to that member: mostly frames that are in order, with anything in them."""
    ids = st.sampled_from([incarnation("b"), f"{incarnation('b')}+{me}+1", incarnation("c")])
    dots = st.builds(Dot, ids, st.integers(1, 3))
    inner = st.one_of(
        st.builds(Message, dots, st.lists(dots, max_size=2).map(tuple), st.binary(max_size=9)),
        st.builds(
            Message,
            dots,
            st.lists(dots, max_size=2).map(tuple),
            st.binary(max_size=9),
            st.integers(0, 9),
        ),
        st.builds(
            Digest, st.sampled_from(DigestKind), st.dictionaries(ids | st.just(me), COUNTERS)
        ),
        st.builds(Ended, ids | st.just(me), st.none() | COUNTERS),
        st.builds(
            WhisperFrame,
            COUNTERS.filter(bool),
            st.text(min_size=1, max_size=5),
            st.integers(1, 3_600_000),
            st.binary(max_size=9),
        ),
        st.builds(Copy, COUNTERS, SPANS),
        st.builds(
            Admit,
            COUNTERS,
            st.just(incarnation("b")) | ids | st.just(me),
            st.lists(ids | st.sampled_from([me, "a", "b", "c", "z"]), max_size=1).map(tuple),
            st.booleans(),
            SPANS,
        ),
        st.builds(Offer, COUNTERS, COUNTERS),
        st.builds(Unable, COUNTERS, st.booleans(), st.text()),
        st.builds(Fetch, COUNTERS, COUNTERS),
        st.builds(Part, COUNTERS, COUNTERS, st.binary(max_size=9)),
        st.builds(Ask, COUNTERS, st.binary(max_size=9)),
    )
    return st.one_of(
        st.builds(
            Here,
            NUMBERS,
            st.sampled_from(["g", "h"]),
            st.none() | ids,
            st.sampled_from([founding, "", incarnation("c")]),
        ),
        *(st.builds(Grouped, NUMBERS, inner) for _ in range(5)),
        st.builds(Apart, st.sampled_from(["g", "h"]), st.text(), st.text()),
        st.builds(
            Known,
            st.dictionaries(
                st.sampled_from(["a", "b", "c"]), st.sampled_from(["", "nowhere", "mem:1"])
            ),
        ),
        st.builds(Named, COUNTERS, COUNTERS, st.lists(ids, max_size=2).map(tuple)),
        st.just(KeepAlive()),
        st.just(Refusal("busy", "no")),
    )


@settings(
    max_examples=examples(12),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data(), st.booleans())
def test_linked_stranger_does_not_disturb_the_group(
    caplog: pytest.LogCaptureFixture, data: st.DataObject, hangs_up: bool
) -> None:
    caplog.clear()

    @simulated
    async def meet() -> None:
        async with world("a", "c") as group:
            a, c = group.up.values()
            said: list[Any] = [
                Hello(
                    group="links",
                    name="b",
                    incarnation=incarnation("b"),
                    process=b"p",
                    shared=True,
                ),
                Welcome(0),
                Here(
                    1,
                    "g",
                    data.draw(st.none() | st.just(incarnation("b"))),
                    data.draw(st.just(a.member.channel.group_id) | st.just("")),
                ),
                *data.draw(
                    st.lists(frames(a.member.incarnation, a.member.channel.group_id), max_size=8)
                ),
            ]
            near, far = trio.testing.memory_stream_pair()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(a.node.links().accept, far)
                await near.send_all(b"".join(map(encode, said)))
                await trio.testing.wait_all_tasks_blocked()
                if hangs_up:
                    await near.aclose()
            if "b" in a.member.members:
                a.member.evict("b")  # it was let in, and is gone
            await members_are(a.member, "a", "c")
            tag = a.member.tcbroadcast(b"x")
            await c.ledger.has(b"x")
            await a.member.wait_stable(tag)

    with caplog.at_level(logging.ERROR):
        meet()
    assert "unexpected" not in caplog.text and "Traceback" not in caplog.text
