"""The shared secret between nodes: who does not know it gets no link, and cannot do harm either."""

import itertools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.exceptions import SupersededError
from crdtcast.testing import eventually, simulated
from crdtcast.wire.auth import Role, proof
from crdtcast.wire.decoder import FrameDecoder
from crdtcast.wire.frames import (
    Frame,
    Hello,
    KeepAlive,
    Proof,
    Refusal,
    Welcome,
    encode,
)
from tests.effort import examples
from tests.node.fixed import Member, answering, group, incarnation

SECRET = b"known to all members of the group"
HELLO = Hello(
    group="default", name="b", incarnation=incarnation("b"), process=b"p", nonce=bytes(32)
)
Dialogue = Callable[["Wire"], Awaitable[None]]


class Wire:
    """The other end of a connection, frame by frame."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.heard = b""
        self._decoder = FrameDecoder()

    async def say(self, *frames: Frame) -> None:
        await self.stream.send_all(b"".join(map(encode, frames)))

    async def hear(self) -> Frame | None:
        while (frame := self._decoder.next_frame()) is None:
            piece = await self.stream.receive_some()
            if not piece:
                return None
            self.heard += piece
            self._decoder.push(piece)
        return frame


async def knock(member: Member, dialogue: Dialogue) -> Frame | None:
    """What a stranger who dials `member` hears last."""
    near, far = trio.testing.memory_stream_pair()
    wire = Wire(near)
    last = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.node.links().accept, far)
        await dialogue(wire)
        while (frame := await wire.hear()) is not None:
            last = frame
        await near.aclose()
    return last


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


@simulated
async def test_a_group_with_a_secret_that_never_goes_over_the_wire() -> None:
    async with group("a", "b", "c", secrets=(SECRET,), digest_interval=0.1) as (_, members):
        for member in members.values():
            member.send(b"hello")
        await eventually(lambda: all(len(m.stable) == 3 for m in members.values()))
        assert not members["a"].node.refusals()
        near, far = trio.testing.memory_stream_pair()
        wire = Wire(near)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(members["a"].node.links().accept, far)
            await wire.say(HELLO)
            accepted = await wire.hear()
            assert isinstance(accepted, Hello)
            await wire.say(Proof(proof(SECRET, Role.DIALLER, HELLO, accepted)))
            answer = await wire.hear()
            assert answer == Proof(proof(SECRET, Role.ACCEPTOR, HELLO, accepted))
            assert SECRET not in wire.heard
            nursery.cancel_scope.cancel()


@simulated
@pytest.mark.parametrize("other", [(), (b"quite another secret of theirs",)])
async def test_nodes_with_different_secrets_do_not_link(
    other: tuple[bytes, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Each side refuses the other, whoever dials; and both logs say what to do, once."""
    for dials_nobody in ("a", "b", None):
        caplog.clear()
        more = {"a": {"secrets": (SECRET,)}, "b": {"secrets": other}}
        if dials_nobody is not None:
            more[dials_nobody]["peers"] = {n: None for n in "ab" if n != dials_nobody}  # type: ignore[assignment]
        async with group("a", "b", more=more) as (network, members):
            await trio.sleep(120)
            assert not members["a"].linked() | members["b"].linked()
            words = "requires a shared secret" if not other else "have different shared secrets"
            said = [line for line in lines(caplog) if words in line]
            assert len(said) == 2, lines(caplog)
            assert len(network.dialled) <= 20, "a tight loop"
            refusals = members["a"].node.refusals() or members["b"].node.refusals()
            assert set(refusals) == {"security" if not other else "secret"}


@simulated
async def test_a_secret_is_replaced_while_the_group_goes_on() -> None:
    """Each member takes both, then proves the new one, then takes no other: at every moment all are linked."""
    new = b"what all members of the group know next"
    steps = [(SECRET,), (SECRET, new), (new, SECRET), (new,)]
    for before, after in itertools.pairwise(steps):
        more = {"a": {"secrets": before}, "b": {"secrets": after}, "c": {"secrets": before}}
        async with group("a", "b", "c", more=more) as (_, members):
            await eventually(lambda: all(len(m.linked()) == 2 for m in members.values()))
            assert not any(member.node.refusals() for member in members.values())


@simulated
async def test_replayed_handshake_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    recorded = b""
    async with group("a", "b", secrets=(SECRET,), more={"a": {"peers": {"b": None}}}) as (
        _,
        members,
    ):
        a = members["a"]
        await eventually(lambda: a.linked() == {"b"})

        async def hears_b(wire: Wire) -> None:
            """b dials, and we listen to what it would say to a."""
            nonlocal recorded
            await wire.say(HELLO)
            accepted = await wire.hear()
            assert isinstance(accepted, Hello)
            mac = proof(SECRET, Role.DIALLER, HELLO, accepted)
            recorded = b"".join(map(encode, (HELLO, Proof(mac), Welcome(0))))
            await wire.stream.send_all(recorded[len(encode(HELLO)) :])

        async def repeats(wire: Wire) -> None:
            await wire.stream.send_all(recorded)

        last = await knock(a, hears_b)
        assert isinstance(last, Refusal) and last.reason == "name-in-use", "the real one is let in"
        assert a.node.refusals() == {"name-in-use": 1}
        caplog.clear()
        for _ in range(5):
            last = await knock(a, repeats)
            assert isinstance(last, Refusal) and last.reason == "secret"
        assert a.node.refusals()["secret"] == 5
        assert len(lines(caplog)) == 1 and "attacker replays" in lines(caplog)[0]
        members["b"].send(b"unaffected")
        await eventually(lambda: a.payloads == [b"unaffected"])
        assert a.node.status()["b"].reconnects == 0


@simulated
async def test_a_proof_that_is_sent_back_to_its_maker_is_refused() -> None:
    """The dialler proves first; a false acceptor has only that to show."""
    refused = []

    async def mirror(stream: trio.abc.Stream) -> None:
        wire = Wire(stream)
        assert isinstance(await wire.hear(), Hello)
        await wire.say(HELLO)
        heard = await wire.hear()
        assert isinstance(heard, Proof)
        await wire.say(heard)
        refused.append(await wire.hear())

    async with group("a", names={"a", "b"}, secrets=(SECRET,)) as (network, members):
        async with answering(network, mirror):
            await eventually(lambda: len(refused) == 2)
        assert {frame.reason for frame in refused if isinstance(frame, Refusal)} == {"secret"}
        assert not members["a"].linked()


@simulated
@pytest.mark.parametrize("secrets", [(SECRET,), ()])
async def test_only_a_proven_peer_can_end_this_node(
    secrets: tuple[bytes, ...],
) -> None:
    said = []

    async def refuses(stream: trio.abc.Stream) -> None:
        await stream.send_all(encode(Refusal("superseded", "you are dead")))
        said.append(stream)

    ended = False
    try:
        options: dict[str, Any] = {"secrets": secrets, "slow_retry": 1.0}
        async with (
            group("a", names={"a", "b"}, **options) as (network, _),
            answering(network, refuses),
        ):
            await eventually(lambda: len(said) == 3, 30)
    except* SupersededError:
        ended = True
    assert ended is not bool(secrets)


@simulated
async def test_a_stranger_cannot_supersede_a_member() -> None:
    """A hello with a later life of b, and no proof: a goes on with the b that it has."""
    async with group("a", "b", secrets=(SECRET,)) as (_, members):
        a = members["a"]
        await eventually(lambda: a.linked() == {"b"})
        later = replace(HELLO, incarnation=incarnation("b", 10**6), fence=99)

        async def claims(wire: Wire) -> None:
            await wire.say(later, Proof(bytes(32)), Welcome(0))

        last = await knock(a, claims)
        assert isinstance(last, Refusal) and last.reason == "secret"
        members["b"].node.links().restart("comes back")
        members["b"].send(b"still b")
        await eventually(lambda: a.payloads == [b"still b"])


NONCES = st.binary(min_size=32, max_size=32)
SAID = st.lists(
    st.one_of(
        st.builds(
            Hello,
            group=st.sampled_from(["default", "other"]),
            name=st.sampled_from(["a", "b", "c"]),
            incarnation=st.sampled_from(["a", "b", "c"]).map(incarnation),
            process=st.just(b"p"),
            fence=st.integers(0, 3),
            version=st.integers(0, 4),
            nonce=st.one_of(st.just(b""), NONCES),
        ).map(encode),
        st.binary(max_size=200).map(lambda mac: encode(Proof(mac[:160]))),
        st.integers(0, 3).map(lambda number: encode(Welcome(number))),
        st.just(encode(KeepAlive())),
        st.just(encode(Refusal("superseded", "no"))),
        st.binary(max_size=30),
    ),
    max_size=6,
)


@settings(max_examples=examples(60))
@given(SAID, st.booleans())
def test_stranger_without_the_secret_gets_no_link(said: list[bytes], hangs_up: bool) -> None:
    @simulated
    async def meet() -> None:
        alone: dict[str, Any] = {
            "names": {"a", "b", "c"},
            "peers": {"b": None},
            "secrets": (SECRET,),
        }
        async with group("a", **alone) as (_, members):
            a = members["a"]
            near, far = trio.testing.memory_stream_pair()
            async with trio.open_nursery() as connection:
                connection.start_soon(a.node.links().accept, far)
                await near.send_all(encode(HELLO) + b"".join(said))
                if hangs_up:
                    await near.aclose()
            assert not a.node.links().up
            assert sum(peer.times_up for peer in a.node.links()._peers.values()) == 0
            assert sum(a.node.refusals().values()) <= 1

    meet()
