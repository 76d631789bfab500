"""Local clusters: when regions hold the same, and what a gateway that does not start says."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.cluster import CommandRefusedError, LocalCluster, holds_same
from crdtcast.adapters.redis.server.embedded import EmbeddedServer
from crdtcast.adapters.redis.server.raw_client import ErrorReply, RawClient
from crdtcast.exceptions import ServerError
from tests.node.certificates import Authority


def state(vector: dict[str, int], **others: Any) -> dict[str, Any]:
    return {"vector": vector, "committing": False, "quiet": True} | others


@pytest.mark.parametrize(
    ("states", "same", "quiet"),
    [
        ([state({"a.1": 2}), state({"a.1": 2})], True, True),
        ([state({"a.1": 2}), state({"a.1": 2, "b.1": 0})], True, True),
        ([state({"a.1": 2}), state({"a.1": 2}, quiet=False)], True, False),
        ([state({"a.1": 2}), state({"a.1": 2}, committing=True)], False, False),
        ([state({"a.1": 2}), state({"a.1": 1})], False, False),
        ([state({}), state({}), state({"a.1": 1})], False, False),
        ([state({}), {"committing": False}], False, False),
    ],
)
def test_regions_are_equal_only_if_contents_agree(
    states: list[dict[str, Any]], same: bool, quiet: bool
) -> None:
    assert holds_same(states, quiet=False) is same
    assert holds_same(states, quiet=True) is quiet


@pytest.mark.process
def test_failed_gateway_start_says_why_and_stops_the_cluster(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path, ["a"], group="g", arguments=["--metadata-db", "zero"])
    with pytest.raises(ServerError, match=r"gateway a ended with code 2.*zero"):
        cluster.__enter__()
    assert not any(region.gateway.running for region in cluster)
    assert all(region.server.process.poll() is not None for region in cluster)


@pytest.mark.process
def test_a_killed_gateway_is_reported_and_can_be_started_again(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, ["a"], group="g") as cluster:
        region = cluster["a"]
        with pytest.raises(CommandRefusedError, match="NONSENSE"):
            region.command("NONSENSE")
        assert region.gateway.process is not None
        region.gateway.process.kill()
        region.gateway.process.wait()
        (line,) = cluster.obituaries()
        assert "gateway a ended with code -9" in line
        with pytest.raises(ServerError):
            region.status()
        region.gateway.forget_process()
        region.gateway.launch()
        region.gateway.wait_ready()
        assert region.status()["name"] == "a"


@pytest.mark.process
def test_raw_client_returns_replies_undecoded(server: EmbeddedServer) -> None:
    with RawClient(server.port) as client:
        assert client.call("SADD", "s", b"\xff") == 1
        assert client.pipeline([("SMEMBERS", "s"), ("GET", "none"), ("GET", "s"), ("PING",)]) == [
            [b"\xff"],
            None,
            ErrorReply("WRONGTYPE Operation against a key holding the wrong kind of value"),
            b"PONG",
        ]
        server.kill()
        with pytest.raises(ServerError, match="no reply to 'PING'"):
            client.call("PING")
        with pytest.raises(ServerError, match="no server answers"):
            RawClient(server.port)


@pytest.mark.process
def test_gateways_with_certificates_and_a_secret(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text("known to these two gateways")
    secret.chmod(0o600)
    shown = authority.issue("a", "b")  # one certificate for both, since they get the same arguments
    arguments = [f"--{option}={path}" for option, path in shown.items()]
    arguments.append(f"--secret-file={secret}")
    with LocalCluster(tmp_path, ["a", "b"], group="g", arguments=arguments) as cluster:
        clients = [RawClient(region.gateway.port) for region in cluster]
        with closing(clients[0]), closing(clients[1]):
            clients[0].call("SADD", "cart", "milk")
            cluster.wait_equal(["a", "b"], quiet=False, timeout=30)
            assert clients[1].call("SMEMBERS", "cart") == [b"milk"]
