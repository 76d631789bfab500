"""Servers as people have them: behind TLS, at a Unix socket, with users and rights, found through Sentinel."""

import contextlib
import logging
import os
import re
import shutil
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import redis
import trio
import trustme
from redis.backoff import NoBackoff
from redis.retry import Retry

from crdtcast.adapters.redis.adoption import index_making
from crdtcast.adapters.redis.commit.durability import DurabilityProbe, Mark
from crdtcast.adapters.redis.deadlines.adopted import AdoptedIndex
from crdtcast.adapters.redis.group.recovery import Durability
from crdtcast.adapters.redis.options import GatewayOptions
from crdtcast.adapters.redis.server.access_rights import _OUTSIDE, _QUEUED
from crdtcast.adapters.redis.server.address import (
    SentinelService,
    ServerAddress,
    parse_server,
)
from crdtcast.adapters.redis.server.embedded import start_server
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.adapters.redis.server.tls_sockets import TlsFiles
from crdtcast.exceptions import ConfigurationError, ServerError
from crdtcast.ports import free_ports
from tests.adapters.redis.gateways import Gateways, RunningGateway, error_of, options, until
from tests.adapters.redis.sentinel_support import primary_and_replica, redis_server, sentinel

pytestmark = pytest.mark.process


@contextmanager
def serving(given: GatewayOptions) -> Iterator[RunningGateway]:
    running = RunningGateway(given)
    try:
        yield running.wait_ready()
    finally:
        running.stop()


def at(directory: Path, server: ServerAddress | SentinelService) -> GatewayOptions:
    return replace(options(directory, 1), server=server)


@dataclass
class Files:
    """A CA and what it has signed, as files."""

    ca: str
    server: tuple[str, str]
    client: tuple[str, str]
    stranger: tuple[str, str]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    directory = tmp_path_factory.mktemp("certificates")

    def written(ca: trustme.CA, name: str) -> tuple[str, str]:
        issued = ca.issue_cert("127.0.0.1", "localhost")
        certificate, key = directory / f"{name}.pem", directory / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(certificate)
        issued.private_key_pem.write_to_path(key)
        key.chmod(0o600)
        return os.fspath(certificate), os.fspath(key)

    ca, other = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(directory / "ca.pem")
    return Files(
        os.fspath(directory / "ca.pem"),
        written(ca, "server"),
        written(ca, "client"),
        written(other, "stranger"),
    )


# The server's side


@contextmanager
def tls_server(directory: Path, files: Files) -> Iterator[int]:
    """Debian's Redis with a TLS port that wants certificates of its clients; yields that port."""
    (port,) = free_ports(1)
    words = ["--tls-port", str(port), "--tls-cert-file", files.server[0]]
    words += ["--tls-key-file", files.server[1], "--tls-ca-cert-file", files.ca]
    with start_server(directory, binary=redis_server(), options=words):
        yield port


def test_a_server_behind_tls_is_used_like_any_other(tmp_path: Path, files: Files) -> None:
    with tls_server(tmp_path / "server", files) as port:
        tls = TlsFiles(*files.client, files.ca)
        server = parse_server(f"rediss://127.0.0.1:{port}", tls)
        with serving(at(tmp_path, server)) as running, running.client() as client:
            members = [f"member-{number:06}" for number in range(50_000)]
            assert client.call("SADD", "big", *members) == len(members)
            assert len(client.call("SMEMBERS", "big")) == len(members)  # type: ignore[arg-type]
            replies = client.pipeline([("INCR", "n")] * 5000 + [("STRLEN", "n")])
            assert replies == [*range(1, 5001), 4]
            until(lambda: b"role:master" in client.call("INFO"))  # type: ignore[operator]


@pytest.mark.parametrize(
    ("tls", "reason"),
    [
        (lambda files: TlsFiles(ca=files.stranger[0]), "certificate verify failed"),
        (lambda files: TlsFiles(ca=files.ca), "may reject the gateway's certificate .none."),
        (
            lambda files: TlsFiles(*files.stranger, files.ca),
            "may reject the gateway's certificate .*stranger",
        ),
    ],
    ids=["foreign server", "no certificate", "foreign certificate"],
)
def test_a_tls_server_that_refuses_is_named_with_the_reason(
    tmp_path: Path,
    files: Files,
    caplog: pytest.LogCaptureFixture,
    tls: "object",
    reason: str,
) -> None:
    with tls_server(tmp_path / "server", files) as port:
        server = parse_server(f"rediss://localhost:{port}", tls(files))  # type: ignore[operator]
        running = RunningGateway(at(tmp_path, server))
        try:
            until(lambda: f"localhost:{port}" in caplog.text)
        finally:
            running.stop()
        assert re.search(reason, caplog.text), caplog.text
        assert "Traceback" not in caplog.text


def test_a_server_at_a_unix_socket_is_used_like_any_other(tmp_path: Path) -> None:
    place = tmp_path / "s"
    with (
        start_server(tmp_path / "server", options=["--unixsocket", os.fspath(place)]),
        serving(at(tmp_path, parse_server(f"unix://{place}"))) as running,
        running.client() as client,
    ):
        assert client.pipeline([("INCR", "n"), ("STRLEN", "n")]) == [1, 1]
        assert str(place) in str(client.call("CRDTCAST", "STATUS"))


def test_missing_unix_socket_is_one_clear_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = RunningGateway(at(tmp_path, parse_server(f"unix://{tmp_path}/nothing")))
    try:
        until(lambda: f"cannot reach the server at {tmp_path}/nothing: No such file" in caplog.text)
    finally:
        running.stop()


# Users and rights


def unknown_at(admin: RawClient, name: str) -> bool:
    return name == "waitaof" and admin.call("COMMAND", "INFO", name) == [None]


LATER = ("waitaof",)


def needed() -> list[str]:
    """The rights that docs/redis.md lists for all servers."""
    names = {str(words[0]).lower() for words in (*_QUEUED, *_OUTSIDE)} - set(LATER)
    return [f"+{name}" for name in sorted(names)]


def given(admin: RawClient) -> list[str]:
    """These, and those that only later servers know."""
    return [*needed(), *(f"+{name}" for name in LATER if not unknown_at(admin, name))]


@pytest.fixture
def with_users(tmp_path: Path) -> Iterator[int]:
    with start_server(tmp_path / "server") as server, RawClient(server.port) as admin:
        rights = ["~*", "&*", "-@all", *given(admin)]
        assert admin.call("ACL", "SETUSER", "gate", "on", ">s3:c/r@t", *rights) == b"OK"
        yield server.port


def test_a_user_with_the_listed_rights_suffices(
    tmp_path: Path, with_users: int, caplog: pytest.LogCaptureFixture
) -> None:
    server = parse_server(f"redis://gate:s3%3Ac%2Fr%40t@127.0.0.1:{with_users}")
    with serving(at(tmp_path, server)) as running, running.client() as client:
        assert client.call("SADD", "s", "a", "b") == 2
        assert client.call("SREM", "s", "a") == 1
        assert client.pipeline([("INCR", "n"), ("GET", "n"), ("DEL", "n")]) == [1, b"1", 1]
        assert isinstance(client.call("CRDTCAST", "VERIFY"), bytes)
        with RawClient(with_users) as admin:
            admin.call("SELECT", "15")
            until(lambda: admin.call("EXISTS", "durable") == 1)  # WAITAOF was asked
    assert "NOPERM" not in caplog.text
    page = (Path(__file__).parents[3] / "docs" / "redis.md").read_text()
    assert " ".join(needed()) in " ".join(page.replace("\\\n", " ").split())


def test_the_listed_rights_suffice_a_whole_group(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Without logs: they may tell of the value that is written past a gateway.
    with Gateways(tmp_path, own_servers="always", logs=False) as town:
        for name in "ab":
            with RawClient(town.server(name).port) as admin:
                user = ["default", "reset", "on", "nopass", "~*", "&*", "-@all"]
                assert admin.call("ACL", "SETUSER", *user, *given(admin)) == b"OK"
                if name == "a":  # to be taken over
                    assert admin.call("SET", "far", "1", "PXAT", "253402300799000") == b"OK"
                    assert admin.call("SETEX", "dated", "1000", "1") == b"OK"
        town.start("a")
        town.call("a", "SADD", "s", "1", "2", "3")
        town.call("a", "INCR", "n")
        town.start("b", "a")
        town.call("b", "SREM", "s", "1")
        town.call("b", "SADD", "n2", "x")
        town.call("a", "DEL", "n")
        town.call("a", "DEL", "s")
        town.wait_equal("a", "b")
        with RawClient(town.server("b").port) as direct:  # past the gateway
            assert direct.call("SADD", "n2", "y") == 1
        assert isinstance(town.call("a", "CRDTCAST", "REPAIR"), bytes)
        until(lambda: sorted(town.call("a", "SMEMBERS", "n2")) == [b"x", b"y"])
        town.call("b", "CRDTCAST", "LEAVE", "PLAIN")
        town.running["b"].wait_ended()
        assert town.running["b"].error is None
    assert "NOPERM" not in caplog.text


def test_a_missing_right_is_one_clear_line(tmp_path: Path, with_users: int) -> None:
    server = parse_server(f"redis://gate:s3%3Ac%2Fr%40t@127.0.0.1:{with_users}")
    with RawClient(with_users) as admin:
        admin.call("SET", "kept", "1")
        alone = ("multi", "exec", "discard", "watch", "waitaof")
        for lacking in ("sadd", "config", "hgetall", "flushdb", *alone, "exec discard", "get exec"):
            if unknown_at(admin, lacking):
                continue
            names = lacking.split()
            assert admin.call("ACL", "SETUSER", "gate", *(f"-{x}" for x in names)) == b"OK"
            error = error_of(RunningGateway(at(tmp_path, server)))
            assert isinstance(error, ConfigurationError)
            (told,) = re.findall("lacks rights that the gateway needs: ([A-Z, ]+)", str(error))
            (hint,) = re.findall("ACL SETUSER gate (.*?) ~", str(error))
            assert sorted(told.lower().split(", ")) == sorted(names)
            assert admin.call("ACL", "SETUSER", "gate", *hint.split()) == b"OK"
            kept = [("DBSIZE",), ("SELECT", "15"), ("DBSIZE",), ("SELECT", "0")]
            assert admin.pipeline(kept) == [1, b"OK", 0, b"OK"], f"without {lacking}"
        admin.call("DEL", "kept")
    with serving(at(tmp_path, server)):
        pass  # what the hints have given back is enough


def test_keys_that_a_user_may_not_touch_are_found_at_start(tmp_path: Path, with_users: int) -> None:
    with RawClient(with_users) as admin:
        assert admin.call("ACL", "SETUSER", "gate", "resetkeys", "~app:*") == b"OK"
    server = parse_server(f"redis://gate:s3%3Ac%2Fr%40t@127.0.0.1:{with_users}")
    error = error_of(RunningGateway(at(tmp_path, server)))
    assert isinstance(error, ConfigurationError) and "~*" in str(error)


# The clients' side


@pytest.mark.parametrize("protocol", [2, 3])
def test_clients_are_served_over_tls(tmp_path: Path, files: Files, protocol: int) -> None:
    with start_server(tmp_path / "server") as server:
        given = replace(options(tmp_path, server.port), tls=TlsFiles(*files.server))
        with serving(given) as running:
            client = redis.Redis(
                port=running.port, ssl=True, ssl_ca_certs=files.ca, protocol=protocol
            )
            with client:
                members = {f"member-{number:06}".encode() for number in range(50_000)}
                assert client.sadd("big", *members) == len(members)
                assert client.smembers("big") == members
                pipe = client.pipeline(transaction=False)
                for _ in range(5000):
                    pipe.incr("n")
                assert pipe.execute() == [*range(1, 5001)]


def test_a_slow_reader_over_tls_gets_every_byte(tmp_path: Path, files: Files) -> None:
    with start_server(tmp_path / "server") as server:
        given = replace(options(tmp_path, server.port), tls=TlsFiles(*files.server))
        with serving(given) as running:
            context = ssl.create_default_context(cafile=files.ca)
            with (
                socket.create_connection(("127.0.0.1", running.port), 30) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
            ):
                text = b"x" * 1000
                secure.sendall(b"*2\r\n$4\r\nECHO\r\n$1000\r\n%b\r\n" % text * 20_000)
                wanted = b"$1000\r\n%b\r\n" % text * 20_000
                received = bytearray()
                while len(received) < len(wanted):
                    received += secure.recv(777)
                assert received == wanted


@pytest.mark.parametrize("shown", ["client", "stranger", None])
def test_clients_without_a_certificate_of_the_ca_are_refused(
    tmp_path: Path, files: Files, shown: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with start_server(tmp_path / "server") as server:
        tls = TlsFiles(*files.server, files.ca)
        with serving(replace(options(tmp_path, server.port), tls=tls)) as running:
            certificate, key = (None, None) if shown is None else getattr(files, shown)
            client = redis.Redis(
                port=running.port,
                ssl=True,
                ssl_ca_certs=files.ca,
                ssl_certfile=certificate,
                ssl_keyfile=key,
                retry=Retry(NoBackoff(), 0),
            )
            with client:
                if shown == "client":
                    assert client.incr("n") == 1
                else:
                    with pytest.raises(redis.ConnectionError):
                        client.incr("n")
                    until(lambda: "refused a client at" in caplog.text)


def test_plain_clients_at_a_tls_port_harm_only_themselves(tmp_path: Path, files: Files) -> None:
    with start_server(tmp_path / "server") as server:
        given = replace(options(tmp_path, server.port), tls=TlsFiles(*files.server))
        with serving(given) as running:
            silent = [socket.create_connection(("127.0.0.1", running.port), 20) for _ in range(50)]
            with socket.create_connection(("127.0.0.1", running.port), 20) as plain:
                plain.sendall(b"PING\r\n")
                with pytest.raises(ConnectionError):
                    while plain.recv(1000):
                        pass
                    raise ConnectionResetError
            with redis.Redis(port=running.port, ssl=True, ssl_ca_certs=files.ca) as client:
                assert client.incr("n") == 1
            for each in silent:
                each.close()


def test_certificates_are_renewed_while_clients_are_served(tmp_path: Path, files: Files) -> None:
    ca = trustme.CA()
    place = [os.fspath(tmp_path / name) for name in ("c.pem", "c.key", "ca.pem")]
    for source, target in zip(files.server, place, strict=False):
        shutil.copy(source, target)
    ca.cert_pem.write_to_path(place[2])
    with start_server(tmp_path / "server") as server:
        given = replace(options(tmp_path, server.port), tls=TlsFiles(place[0], place[1]))
        with (
            serving(given) as running,
            redis.Redis(port=running.port, ssl=True, ssl_ca_certs=files.ca) as client,
        ):
            assert client.incr("n") == 1
            issued = ca.issue_cert("localhost")
            issued.private_key_pem.write_to_path(place[1])
            Path(place[1]).chmod(0o600)
            # Until both are there the former ones are used.
            with redis.Redis(port=running.port, ssl=True, ssl_ca_certs=files.ca) as other:
                assert other.incr("n") == 2
            issued.cert_chain_pems[0].write_to_path(place[0])
            with redis.Redis(port=running.port, ssl=True, ssl_ca_certs=place[2]) as other:
                assert other.incr("n") == 3
            assert client.incr("n") == 4


# Sentinel


def test_primary_named_by_sentinel_is_used_after_a_failover(tmp_path: Path) -> None:
    with (
        primary_and_replica(tmp_path) as (one, two),
        sentinel(tmp_path / "sentinel", one.port) as port,
    ):
        server = parse_server(f"sentinel://127.0.0.1:1,127.0.0.1:{port}/shop")
        with serving(at(tmp_path, server)) as running, running.client() as client:
            assert client.pipeline([("INCR", "n"), ("STRLEN", "n")]) == [1, 1]
            with RawClient(two.port) as replica:
                until(lambda: replica.call("GET", "n") == b"1")
            one.kill()

            def written() -> bool:
                with RawClient(running.port) as again:
                    return not isinstance(again.call("SADD", "s", "after"), ErrorReply)

            until(written)
            with RawClient(two.port) as direct:
                assert direct.call("SMEMBERS", "s") == [b"after"]
                assert direct.call("GET", "n") == b"1"
            assert client.call("STRLEN", "n") == 1, "relayed reads go there, too"


def test_each_sentinel_that_does_not_answer_is_asked_once() -> None:
    asked: list[int] = []

    def hang_up(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()
                asked.append(listener.fileno())

    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        threads = [threading.Thread(target=hang_up, args=[each]) for each in (one, other)]
        for thread in threads:
            thread.start()
        places = ",".join(f"127.0.0.1:{each.getsockname()[1]}" for each in (one, other))
        service = parse_server(f"sentinel://{places}/shop")
        with pytest.raises(ServerError, match="no Sentinel"):
            trio.run(service.locate)
        for each, thread in zip((one, other), threads, strict=True):
            each.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert len(asked) == len(set(asked)) == 2


def test_sentinels_that_know_no_primary_are_one_clear_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (port,) = free_ports(1)
    running = RunningGateway(at(tmp_path, parse_server(f"sentinel://127.0.0.1:{port}/shop")))
    try:
        until(lambda: f"no Sentinel of 127.0.0.1:{port}/shop names a primary" in caplog.text)
    finally:
        running.stop()


# Addresses


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://db", ServerAddress("db", 6379)),
        ("valkey://u:p%40@db:1/0", ServerAddress("db", 1, "u", "p@")),
        ("rediss://:p@db", ServerAddress("db", 6379, None, "p", tls=TlsFiles())),
        ("unix://u:p@/run/x%20y.sock", ServerAddress("", 0, "u", "p", path="/run/x y.sock")),
        (
            "sentinel://u:p@a:1,b/shop?password=q",
            SentinelService(
                (("a", 1), ("b", 26379)), "shop", ServerAddress("", 0, "u", "p"), None, "q"
            ),
        ),
    ],
)
def test_addresses_of_servers_are_understood(url: str, expected: object) -> None:
    assert parse_server(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "redis://",
        "redis://:hidden@",
        "redis://db/3",
        "redis://db:port",
        "http://db",
        "unix://",
        "sentinel://:hidden@a",
        "sentinel://:hidden@/shop",
        "sentinel://a/shop?pasword=hidden",
        "",
    ],
)
def test_invalid_address_error_shows_no_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"write it as|serves all databases") as raised:
        parse_server(url)
    assert "hidden" not in str(raised.value)


def test_database_in_the_server_address_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="serves all databases"):
        parse_server("redis://db/3")


def test_server_that_never_syncs_is_refused(tmp_path: Path) -> None:
    with Gateways(tmp_path, own_servers="everysec", logs=False) as town:
        town.server("a")
        assert town.past("a", "CONFIG", "SET", "appendfsync", "no") == b"OK"
        error = town.refused("a")
        assert isinstance(error, ConfigurationError) and "appendfsync is no" in str(error)
        assert town.past("a", "DBSIZE") == 0
        assert town.past("a", "CONFIG", "SET", "appendfsync", "everysec") == b"OK"
        town.start("a")


def test_server_that_syncs_nothing_for_long_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class NeverSynced:
        """A server that has synced nothing whenever it is asked, and then breaks."""

        def __init__(self, answers: int) -> None:
            self.answers = answers

        async def call(self, commands: list[Any]) -> list[object]:
            self.answers -= 1
            if not self.answers:
                raise ServerError("gone")
            return [b"OK", [0, 0]]

    def nothing(mark: object) -> None:
        raise AssertionError("it is not synced")

    async def note(order: int) -> None:
        raise AssertionError("it is not synced")

    async def main() -> None:
        probe = DurabilityProbe(nothing, note, logging.getLogger("probe"))
        probe.begin(Durability.EVERYSEC)
        probe.committed(Mark(1, {}, 1))
        await probe.run(NeverSynced(6), 15)  # type: ignore[arg-type]

    trio.run(main)
    assert caplog.text.count("has synced nothing for 10 s") == 1


def test_right_that_is_taken_away_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While the index of an adopted database is made, and whatever else asks for it again and again."""

    def told(text: str) -> int:
        return sum(text in record.getMessage() for record in caplog.records)

    with (
        Gateways(tmp_path, own_servers="everysec", logs=False) as town,
        RawClient(town.server("a").port) as admin,
    ):
        keys = [("SETEX", f"k{number}", "1000", "v") for number in range(100)]
        assert set(admin.pipeline(keys)) == {b"OK"}
        assert admin.call("ACL", "SETUSER", "root", "on", "nopass", "~*", "&*", "+@all") == b"OK"
        assert admin.call("AUTH", "root", "any") == b"OK"
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(index_making, "_AGAIN_SECONDS", 0.01)
            taken = "-pexpiretime"  # only the index needs it so far
            patched.setattr(AdoptedIndex, "step", after(admin, taken, AdoptedIndex.step))
            town.start("a")
            until(lambda: told("cannot make the index of deadlines"))
            for _ in range(5):
                assert town.call("a", "INCR", "n")
            assert told("cannot make the index of deadlines") == 1
            assert admin.call("ACL", "SETUSER", "default", "+pexpiretime") == b"OK"
            until(lambda: town.status("a")["adopting"] is None)
        assert admin.call("ACL", "SETUSER", "default", "resetkeys", "~app:*") == b"OK"
        assert isinstance(town.call("a", "SET", "n", "1"), ErrorReply)
        until(lambda: told("refuses to read the gateway's metadata") + told("lacks rights"))
        assert not told("its data was removed directly")


def after(admin: RawClient, taken: str, step: Callable[..., list[bytes]]) -> Callable[..., Any]:
    """The first step of the index, when the gateway's user has lost a right."""
    steps = []

    def step_without(*given: Any) -> list[bytes]:
        if not steps:
            assert admin.call("ACL", "SETUSER", "default", taken) == b"OK"
        steps.append(given)
        return step(*given)

    return step_without
