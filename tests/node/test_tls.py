"""TLS between nodes: only who has a certificate of the group's CA under its own name gets a link."""

import datetime
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
from crdtcast.testing import eventually, simulated
from crdtcast.transport.options import NodeOptions
from crdtcast.transport.tls import Tls
from crdtcast.wire.frames import Hello, Refusal, decode, encode
from tests.effort import examples
from tests.node.certificates import EXPIRED, NOT_YET, Authority
from tests.node.fixed import Member, answering, at, group, incarnation, make

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
        ("expired", "certificate", "its certificate is rejected: it has expired"),
        (
            "not yet",
            "certificate",
            "its certificate is rejected: it is not valid yet: check the clock",
        ),
        ("another CA", "certificate", "the group's CA has not signed it"),
        ("none", "certificate", "it showed no certificate"),
        ("another name", "certificate", "the certificate of node 'b' is for 'c'"),
        ("TLS 1.2", "security", "it does not support TLS 1.3"),
        ("plain", "security", "node 'a' requires TLS: set certificate"),
    ],
)
async def test_stranger_is_refused_counted_and_logged_once(
    kind: str, reason: str, words: str, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    valid = {"expired": EXPIRED, "not yet": NOT_YET}.get(kind, (None, None))
    shown: dict[str, Any] = authority.issue("b", valid=valid)
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


@settings(max_examples=examples(30))
@given(st.integers(0, 10**6), st.binary(max_size=40), st.integers(0, 600), st.booleans())
def test_invalid_tls_handshake_ends_only_that_connection(
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
        alone: dict[str, Any] = {
            "names": {"a", "b"},
            "node": {"a": {"logger": logger}},
            "peers": {"b": None},
        }
        async with group("a", **alone, **options) as (_, members):
            a = members["a"]
            near, far = trio.testing.memory_stream_pair()
            async with trio.open_nursery() as connection:
                connection.start_soon(a.node.links().accept, far)
                await near.send_all(said)
                if hangs_up:
                    await near.aclose()
            assert not a.linked()
            assert sum(a.node.refusals().values()) <= 1

    meet()
    assert not unexpected


@simulated
async def test_both_sides_report_a_node_without_tls(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    more = secured(authority, "a")
    async with group("a", "b", more=more) as (network, members):
        await trio.sleep(120)
        assert not members["a"].linked() | members["b"].linked()
        for name, peer in ("ab", "ba"):
            text = members[name].node.status()[peer].error
            assert text is not None and ("requires TLS" in text or "the peer uses TLS" in text)
        said = [r.getMessage() for r in caplog.records if "TLS" in r.getMessage()]
        assert 2 <= len(said) <= 4, said
        assert len(network.dialled) <= 40


@simulated
async def test_peer_without_a_certificate_cannot_end_this_node(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """The dialler's side: an impostor at a peer's address, who answers without or with false TLS."""
    refusal = encode(Refusal("superseded", "you are dead"))
    other = Authority(authority.directory, "other").issue("b")
    false = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    false.load_cert_chain(other["certificate"], other["key"])

    async def plainly(stream: trio.abc.Stream) -> None:
        await stream.send_all(refusal)

    async def falsely(stream: trio.abc.Stream) -> None:
        inside = trio.SSLStream(stream, false, server_side=True)
        with pytest.raises(trio.BrokenResourceError):
            await inside.do_handshake()

    impostors = [plainly, falsely] * 3

    async def impostor(stream: trio.abc.Stream) -> None:
        if impostors:
            await impostors.pop()(stream)

    options = authority.issue("a")
    async with group("a", names={"a", "b"}, slow_retry=1.0, **options) as (network, members):
        async with answering(network, impostor):
            await eventually(lambda: not impostors)
            await trio.sleep(10)
        assert members["a"].node.refusals()["certificate"] == 3
        assert members["a"].node.refusals()["security"] == 3


@simulated
async def test_node_notices_its_own_expired_certificate(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As peers of an older version do, and those whose alert is lost with the connection."""
    monkeypatch.setattr(Tls, "told", lambda self, error: None)
    more = secured(authority, "a", "b")
    async with group("a", "b", more={**more, "b": {**more["b"], "cut": frozenset({"a"})}}) as (
        _,
        members,
    ):
        # As if b's certificate had expired since b was started.
        expired = authority.issue("b", valid=EXPIRED)
        tls = members["b"].node.links()._tls
        assert tls is not None
        tls._client.load_cert_chain(expired["certificate"], expired["key"])
        tls._server.load_cert_chain(expired["certificate"], expired["key"])
        members["a"].node.set_address("b", ("127.0.0.1", 1))  # a dials nobody
        members["b"].node.heal("a")
        await trio.sleep(20)
        assert members["a"].node.refusals()["certificate"]
        error = members["b"].node.status()["a"].error
        assert error is not None
        assert "no peer will accept this node's certificate: it has expired" in error


@simulated
@pytest.mark.parametrize("dials", ["bad", "good"])
@pytest.mark.parametrize(
    ("kind", "here", "there"),
    [
        ("expired", "it has expired: issue a new one", "it has expired: issue a new one"),
        ("not yet", "check the clocks", "check the clocks"),
        ("another name", "issue one with 'b' among", "issue one with 'b' among"),
        ("another CA", "issue one signed by that CA", "use the same CA"),
    ],
)
async def test_both_sides_log_one_remedy_for_a_bad_certificate(
    kind: str,
    here: str,
    there: str,
    dials: str,
    authority: Authority,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """b has such a certificate since it was started; it has the CA of the others. The alert of TLS names the reason."""
    names = ("a", "b", "c")
    more = secured(authority, *names)
    valid = {"expired": EXPIRED, "not yet": NOT_YET}.get(kind, (None, None))
    bad = authority.issue("c" if kind == "another name" else "b", valid=valid)
    if kind == "another CA":
        more["b"] = bad = Authority(authority.directory, "other").issue("b")
        bad["ca"].write_bytes(bad["ca"].read_bytes() + authority.ca.read_bytes())
    more["a"]["peers"] = {"b": ("127.0.0.1", 1) if dials == "bad" else at("b"), "c": None}
    more["b"]["peers"] = {"a": at("a") if dials == "bad" else None, "c": None}
    more["c"]["peers"] = {"a": at("a"), "b": None}
    more["b"]["cut"] = frozenset({"a"})
    node = {name: {"logger": logging.getLogger(f"test.{name}")} for name in names}
    async with group(*names, more=more, node=node) as (_, members):
        tls = members["b"].node.links()._tls
        assert tls is not None
        for context in (tls._client, tls._server):
            context.load_cert_chain(bad["certificate"], bad["key"])
        await eventually(lambda: members["a"].linked() == {"c"})
        members["b"].node.heal("a")
        await trio.sleep(120)
        refusals = members["a"].node.refusals()
        assert refusals["certificate"] >= 2 and set(refusals) == {"certificate"}
        said = {
            name: [r.getMessage() for r in caplog.records if r.levelno == 40 and r.name[-1] == name]
            for name in names
        }
        assert len(said["a"]) == 1 and " refused: " in said["a"][0] and here in said["a"][0], said
        assert len(said["b"]) == 1 and "refused by " in said["b"][0] and there in said["b"][0], said
        assert not said["c"]
        members["a"].send(b"unaffected")
        await eventually(lambda: members["c"].payloads == [b"unaffected"])
        assert members["a"].node.status()["c"].reconnects == 0


@simulated
async def test_expiring_certificate_is_logged_daily_until_renewed(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    a_year = datetime.timedelta(days=365)
    ends = now + datetime.timedelta(days=10, hours=12)
    options = authority.issue("a", valid=(now - a_year, ends))
    async with group("a", more={"a": options}, keepalive_interval=4000.0, digest_interval=4000.0):
        await trio.sleep(60 * 60 * 47)
        said = [r.getMessage() for r in caplog.records if "expires" in r.getMessage()]
        assert len(said) == 2, said
        assert f"the certificate in {options['certificate']} expires in 10 days (" in said[0]
        assert "the node reads it without a restart" in said[0]
        for option, path in authority.issue("a").items():
            options[option].write_bytes(path.read_bytes())
        caplog.clear()
        await trio.sleep(60 * 60 * 24)
        assert not [r for r in caplog.records if "expires" in r.getMessage()]


def test_how_much_before_its_end_a_certificate_is_warned_of(authority: Authority) -> None:
    begins = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def said(lasts: datetime.timedelta, left: datetime.timedelta) -> str | None:
        ends = begins + lasts
        tls = Tls("a", **authority.issue("a", valid=(EXPIRED[0], NOT_YET[0])))
        form = "%b %d %H:%M:%S %Y GMT"
        tls._shown = {"notBefore": begins.strftime(form), "notAfter": ends.strftime(form)}
        return tls.expiry((ends - left).timestamp())

    days = datetime.timedelta(days=1)
    assert said(365 * days, 31 * days) is None
    assert "expires in 29 days" in str(said(365 * days, 29.5 * days))
    assert "expires in 1 day (" in str(said(365 * days, 1.5 * days))
    assert said(days, 0.3 * days) is None  # it is renewed daily
    assert "expires in 0 days" in str(said(days, 0.1 * days))
    assert "the certificate in " in str(said(days, -1 * days)) and "has expired" in str(
        said(days, -1 * days)
    )


def test_the_end_of_the_ca_is_named(authority: Authority) -> None:
    valid = (EXPIRED[0], EXPIRED[1].replace(year=9999))
    tls = Tls("a", **authority.issue("a", valid=valid))
    soon = EXPIRED[1].replace(year=2999, month=12, day=20)
    assert f"the CA in {authority.ca} expires in 12 days" in str(tls.expiry(soon.timestamp()))
    options = authority.issue("a")
    authority.expire()
    with pytest.raises(ConfigurationError, match="the group's CA has expired: create a new one"):
        Tls("a", **options)


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
        assert "the former certificate stays in use" in said[0]
        assert "is not a member of this group" in said[1], said
        bad = authority.issue("a")
        for option in ("certificate", "key"):  # another trouble is another line
            good = more["a"][option].read_bytes()
            more["a"][option].write_bytes(bad[option].read_bytes())
            bad[option].write_bytes(good)
        authority.ca.write_bytes(whole)
        _, said = await knock(members["a"], stranger, caplog)
        assert len(said) == 1 and "has not signed it" in said[0] and "stays in use" in said[0]
        for option in ("certificate", "key"):
            more["a"][option].write_bytes(bad[option].read_bytes())
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
    locked.chmod(0o600)
    shown = authority.issue("a")
    shown["key"].chmod(0o644)
    for change, words in [
        (shown, "other users can read or change .*this node's key: chmod 600"),
        ({"certificate": authority.directory / "none.pem"}, "none.pem: No such file"),
        ({"key": other["key"]}, "key values mismatch"),
        ({"key": locked}, "readable PEM files that belong together, the key without a password"),
        ({"ca": empty}, "cannot use certificate"),
        ({"ca": foreign["ca"]}, "peers will not accept the certificate in .*has not signed it"),
        (authority.issue("a", valid=EXPIRED), "it has expired: issue a new one"),
        (authority.issue("b"), "it is for 'b', not for node 'a'"),
    ]:
        with pytest.raises(ConfigurationError, match=words):
            Tls("a", **{**good, **change})


def test_incomplete_tls_options_are_refused(authority: Authority) -> None:
    with pytest.raises(ConfigurationError, match="belong together"):
        NodeOptions(name="a", listen=("127.0.0.1", 0), ca=authority.ca)


@simulated
async def test_invalid_own_certificate_ends_run_before_dialling(
    authority: Authority,
) -> None:
    async with group("a") as (network, _):
        node = make("b", {"a", "b"}, **authority.issue("c")).node
        with pytest.raises(ConfigurationError, match="it is for 'c', not for node 'b'"):
            await node.run()
        assert network.dialled == []
