"""Whatever a stranger says on the peer port, and in whatever order: that connection ends, the node
lives, and its engine has taken nothing.
"""

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.causality.messages import Digest, DigestKind, Message
from crdtcast.causality.tags import Dot
from crdtcast.group.running import running
from crdtcast.testing import eventually, simulated
from crdtcast.wire.frames import Hello, KeepAlive, Proof, Refusal, Welcome, encode
from tests.effort import examples
from tests.node.fixed import group, incarnation, make

NAMES = st.sampled_from(["a", "b", "c", "x"])
HELLOS = st.builds(
    Hello,
    group=st.sampled_from(["default", "other"]),
    name=NAMES,
    incarnation=NAMES.map(incarnation),
    process=st.sampled_from([b"p", b"q"]),
    fence=st.integers(0, 3),
    version=st.integers(0, 4),
    oldest=st.integers(0, 4),
    nonce=st.sampled_from([b"", bytes(32)]),
)
# Not a's own: a member that remembers more of a than a does ends a's incarnation, rightly.
ORIGINS = st.sampled_from(["b", "c", "x"]).map(incarnation)
DOTS = st.builds(Dot, ORIGINS, st.integers(1, 5))
FRAMES = st.one_of(
    HELLOS,
    st.builds(Welcome, st.integers(0, 3)),
    st.builds(Proof, st.binary(max_size=40)),
    st.just(KeepAlive()),
    st.just(Refusal("busy", "no")),
    st.builds(Refusal, st.just("nonsense"), st.text()),
    st.builds(Message, DOTS, st.lists(DOTS, max_size=3).map(tuple), st.binary(max_size=20)),
    st.builds(
        Digest,
        st.sampled_from(DigestKind),
        st.dictionaries(ORIGINS, st.integers(0, 5)),
    ),
)
ADMITTED = [
    encode(Hello(group="default", name="b", incarnation=incarnation("b"), process=b"p")),
    encode(Welcome(0)),
]
ANYTHING = st.lists(st.one_of(FRAMES.map(encode), st.binary(max_size=30)), max_size=6)
SAID = st.one_of(ANYTHING, ANYTHING.map(ADMITTED.__add__))


@settings(max_examples=examples(60))
@given(SAID, st.booleans())
def test_a_stranger_ends_alone(said: list[bytes], hangs_up: bool) -> None:
    @simulated
    async def meet() -> None:
        peers = {"b": None, "c": None}
        async with group("a", names={"a", "b", "c"}, peers=peers) as (_, members):
            a = members["a"]
            near, far = trio.testing.memory_stream_pair()
            async with trio.open_nursery() as connection:
                connection.start_soon(a.node.links().accept, far)
                await near.send_all(b"".join(said))
                if hangs_up:
                    await near.aclose()
                # else: silence, until it is taken for dead
            assert not a.node.links().up
            c = make("c", {"a", "b", "c"}, life=99, node={"fence_epoch": 99})
            async with running(c.node):
                await eventually(lambda: "c" in a.linked())

    meet()
