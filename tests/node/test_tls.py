"""TLS between nodes: only who has a certificate of the group's CA under its own name gets a link."""

import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.exceptions import ConfigurationError
from crdtcast.options import NodeOptions
from crdtcast.tls import Tls
from crdtcast.wire import Hello, Refusal, decode, encode
from tests.node.certificates import Authority
from tests.node.network import (
    Member,
    Network,
    eventually,
    group,
    incarnation,
    live,
    make,
    simulated,
)

Stranger = Callable[[trio.abc.Stream], Awaitable[bytes]]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def secured(authority: Authority, *names: str) -> dict[str, dict[str, Any]]:
    return {name: authority.issue(name) for name in names}


def hello(name: str) -> bytes:
    return encode(Hello(group="default", name=name, incarnation=incarnation(name), process=b"p"))


async def answer(stream: trio.abc.Stream) -> bytes:
    """All that the other end says before it closes; nothing if it just breaks off."""
    said = b""
    try:
        while piece := await stream.receive_some():
            said += piece
    except trio.BrokenResourceError:
        pass
    return said


def client(ca: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(ca)
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


async def over_tls(stream: trio.abc.Stream, context: ssl.SSLContext, said: bytes) -> bytes:
    inside = trio.SSLStream(stream, context, https_compatible=True)
    try:
        await inside.do_handshake()
        await inside.send_all(said)
    except trio.BrokenResourceError:
        return b""
    return await answer(inside)


async def knock(
    member: Member, stranger: Stranger, caplog: pytest.LogCaptureFixture
) -> tuple[list[bytes], list[str]]:
    """A stranger tries five times: what it heard, and what the member wrote into its log."""
    heard = []
    caplog.clear()
    for _ in range(5):
        near, far = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.node.links().accept, far)
            heard.append(await stranger(near))
            await near.aclose()
    return heard, [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


async def still_works(members: dict[str, Member]) -> None:
    members["a"].send(b"unaffected")
    await eventually(lambda: members["b"].payloads[-1:] == [b"unaffected"])
    assert members["a"].node.status()["b"].reconnects == 0


@simulated
async def test_a_group_with_certificates(authority: Authority) -> None:
    names = ("a", "b", "c")
    async with group(*names, more=secured(authority, *names), digest_interval=0.1) as (_, members):
        for member in members.values():
            member.send(bytes(300_000))
        await eventually(lambda: all(len(m.stable) == 3 for m in members.values()))
        old = members["a"].node.links().up["b"]
        members["b"].node.links().restart("test")
        await eventually(lambda: old.closed is not None)
        assert old.closed == "the peer closed the connection"
        assert not members["a"].node.refusals()


async def _plain(stream: trio.abc.Stream) -> bytes:
    await stream.send_all(hello("b"))
    return await answer(stream)


@simulated
@pytest.mark.parametrize(
    ("kind", "reason", "words"),
    [
        ("expired", "certificate", "its certificate is not accepted: it has expired"),
        ("another CA", "certificate", "the group's CA has not signed it"),
        ("none", "certificate", "it has shown no certificate"),
        ("another name", "certificate", "node 'b' has shown the certificate of 'c'"),
        ("TLS 1.2", "security", "it has no TLS 1.3"),
        ("plain", "security", "node 'a' demands TLS: give all members of the group certificate"),
    ],
)
async def test_a_stranger_is_refused_counted_logged_once_and_others_unaffected(
    kind: str, reason: str, words: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    shown: dict[str, Any] = authority.issue("b", expired=kind == "expired")
    if kind == "another CA":
        shown = Authority(authority.directory, "other").issue("b")
    elif kind == "another name":
        shown = authority.issue("c")
    elif kind == "none":
        shown = {}
    context = client(**{**shown, "ca": authority.ca})
    if kind == "TLS 1.2":
        context.maximum_version = ssl.TLSVersion.TLSv1_2

    async def stranger(stream: trio.abc.Stream) -> bytes:
        return await (_plain(stream) if kind == "plain" else over_tls(stream, context, hello("b")))

    async with group("a", "b", more=secured(authority, "a", "b")) as (_, members):
        await eventually(lambda: members["a"].linked() == {"b"})
        heard, said = await knock(members["a"], stranger, caplog)
        assert members["a"].node.refusals() == {reason: 5}
        assert len(said) == 1 and words in said[0], said
        if kind in ("another name", "plain"):
            refusal = decode(heard[0][4:])
            assert isinstance(refusal, Refusal) and words in refusal.text
        await still_works(members)


@pytest.fixture(scope="module")
def greeting(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], bytes]:
    """A node's options, and the first thing that a good client says to it."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    end = client(**authority.issue("b")).wrap_bio(back, there)
    with pytest.raises(ssl.SSLWantReadError):
        end.do_handshake()
    return authority.issue("a"), there.read()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.binary(max_size=40), st.integers(0, 600), st.booleans())
def test_whatever_is_said_instead_of_a_tls_handshake_ends_that_connection_only(
    greeting: tuple[dict[str, Any], bytes], at: int, change: bytes, cut: int, hangs_up: bool
) -> None:
    """A greeting with some bytes changed, and an end where it should go on."""
    options, first = greeting
    at %= len(first)
    said = (first[:at] + change + first[at + len(change) :])[: cut or None]
    unexpected: list[logging.LogRecord] = []
    logger = logging.Logger("test")
    logger.addFilter(lambda record: unexpected.append(record) if record.exc_info else True)  # type: ignore[func-returns-value]

    @simulated
    async def meet() -> None:
        async with trio.open_nursery() as nursery:
            arguments = {"peers": {"b": None}, "node": {"logger": logger}, **options}
            a = make(Network(nursery), "a", {"a", "b"}, **arguments)
            await nursery.start(live, a)
            near, far = trio.testing.memory_stream_pair()
            async with trio.open_nursery() as connection:
                connection.start_soon(a.node.links().accept, far)
                await near.send_all(said)
                if hangs_up:
                    await near.aclose()
            assert not a.linked()
            assert sum(a.node.refusals().values()) <= 1
            nursery.cancel_scope.cancel()

    meet()
    assert not unexpected


@simulated
async def test_a_node_without_tls_is_told_by_both_sides(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    more = secured(authority, "a")
    async with group("a", "b", more=more) as (network, members):
        await trio.sleep(120)
        assert not members["a"].linked() | members["b"].linked()
        for name, peer in ("ab", "ba"):
            text = members[name].node.status()[peer].error
            assert text is not None and ("demands TLS" in text or "it speaks TLS" in text)
        said = [r.getMessage() for r in caplog.records if "TLS" in r.getMessage()]
        assert 2 <= len(said) <= 4, said
        assert len(network.dialled) <= 40


@simulated
async def test_who_shows_nothing_is_not_believed_that_this_node_has_ended(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """The dialler's side: an impostor at a peer's address, who answers without or with false TLS."""
    refusal = encode(Refusal("superseded", "you are dead"))
    other = Authority(authority.directory, "other").issue("b")
    false = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    false.load_cert_chain(other["certificate"], other["key"])

    async with trio.open_nursery() as nursery:

        async def plainly(stream: trio.abc.Stream) -> None:
            await stream.send_all(refusal)

        async def falsely(stream: trio.abc.Stream) -> None:
            inside = trio.SSLStream(stream, false, server_side=True)
            with pytest.raises(trio.BrokenResourceError):
                await inside.do_handshake()

        impostors = [plainly, falsely] * 3

        async def connect(host: str, port: int) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            near, far = trio.testing.memory_stream_pair()
            if impostors:
                nursery.start_soon(impostors.pop(), far)
            return near

        options = NodeOptions(
            name="a",
            listen=("127.0.0.1", 0),
            peers={"b": ("mem", 1)},
            slow_retry=1.0,
            **authority.issue("a"),
        )
        member = Member(options, {"a", "b"}, connect=connect)
        await nursery.start(live, member)
        await eventually(lambda: not impostors)
        await trio.sleep(10)
        assert member.node.refusals()["certificate"] == 3
        assert member.node.refusals()["security"] == 3
        nursery.cancel_scope.cancel()


@simulated
async def test_an_expired_certificate_is_noticed_by_its_own_node_when_peers_close(
    authority: Authority,
) -> None:
    more = secured(authority, "a", "b")
    async with group("a", "b", more={**more, "b": {**more["b"], "cut": frozenset({"a"})}}) as (
        _,
        members,
    ):
        # As if b's certificate had expired since b was started.
        expired = authority.issue("b", expired=True)
        tls = members["b"].node.links()._tls
        assert tls is not None
        tls._client.load_cert_chain(expired["certificate"], expired["key"])
        tls._server.load_cert_chain(expired["certificate"], expired["key"])
        members["a"].node.set_address("b", ("mem", 1))  # a dials nobody
        members["b"].node.heal("a")
        await trio.sleep(20)
        assert members["a"].node.refusals()["certificate"]
        error = members["b"].node.status()["a"].error
        assert error is not None
        assert "nobody will accept this node's certificate: it has expired" in error


@simulated
async def test_a_renewed_certificate_counts_without_a_restart(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    former = client(**authority.issue("c"))
    former.verify_mode = ssl.CERT_NONE

    async def stranger(stream: trio.abc.Stream) -> bytes:
        return await over_tls(stream, former, hello("c"))

    more = secured(authority, "a", "b")
    async with group("a", "b", more=more, digest_interval=0.1) as (_, members):
        await eventually(lambda: members["a"].linked() == {"b"})
        renewed = Authority(authority.directory, "renewed")
        for name, options in more.items():
            for option, path in renewed.issue(name).items():
                options[option].write_bytes(path.read_bytes())
                os.utime(options[option], ns=(1, 1))
        whole = authority.ca.read_bytes()
        authority.ca.write_bytes(whole[:100])
        _, said = await knock(members["a"], stranger, caplog)
        assert len(said) == 2
        assert "until then the former certificate is used" in said[0]
        assert "is no member of this group" in said[1], said
        authority.ca.write_bytes(whole)
        _, said = await knock(members["a"], stranger, caplog)
        assert len(said) == 1 and "the group's CA has not signed it" in said[0]
        members["b"].node.links().restart("test")
        await eventually(lambda: members["a"].linked() == {"b"})
        members["a"].send(b"under the new CA")
        await eventually(lambda: len(members["b"].stable) == 1)


def test_files_that_cannot_be_used_are_refused_at_once(authority: Authority) -> None:
    good, other = authority.issue("a"), authority.issue("a")
    foreign = Authority(authority.directory, "other").issue("a")
    empty = authority.directory / "empty.pem"
    empty.write_bytes(b"")
    locked = authority.directory / "locked.key"
    locked.write_bytes(
        b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGj\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    for change, words in [
        ({"certificate": authority.directory / "none.pem"}, "none.pem: No such file"),
        ({"key": other["key"]}, "key values mismatch"),
        ({"key": locked}, "readable PEM files that belong together, the key without a password"),
        ({"ca": empty}, "cannot use certificate"),
        ({"ca": foreign["ca"]}, "peers will not accept the certificate in .*has not signed it"),
        (authority.issue("a", expired=True), "it has expired; issue a new one"),
        (authority.issue("b"), "it is for 'b', not for node 'a'"),
    ]:
        with pytest.raises(ConfigurationError, match=words):
            Tls("a", **{**good, **change})


def test_half_of_the_options_is_refused(authority: Authority) -> None:
    with pytest.raises(ConfigurationError, match="belong together"):
        NodeOptions(name="a", listen=("127.0.0.1", 0), ca=authority.ca)


@simulated
async def test_a_certificate_that_is_no_good_ends_run_before_anybody_is_dialled(
    authority: Authority,
) -> None:
    async with group("a") as (network, _):
        node = make(network, "b", {"a", "b"}, **authority.issue("c")).node
        with pytest.raises(ConfigurationError, match="it is for 'c', not for node 'b'"):
            await node.run()
        assert network.dialled == []
