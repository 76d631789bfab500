"""Debian's Redis, which has TLS and Sentinel, as the packaged server has not."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.child_processes import end_child, start_child
from crdtcast.ports import free_ports
from tests.adapters.redis.gateways import until


def redis_server() -> Path:
    """Debian's: the packaged server has no TLS and no Sentinel."""
    found = shutil.which("redis-server")
    if found is None:
        assert not os.environ.get("CI"), "CI installs redis-server"
        pytest.skip("no redis-server: apt-get install redis-server")
    return Path(found)


@contextmanager
def primary_and_replica(
    directory: Path, appendfsync: str = "everysec"
) -> Iterator[tuple[EmbeddedServer, EmbeddedServer]]:
    """Two servers, the second one a replica of the first that has caught up: Sentinel learns of it at its first look,
    and looks again after ten seconds only.
    """
    binary = redis_server()
    at_once = ["--repl-diskless-sync-delay", "0"]
    with start_server(
        directory / "one", binary=binary, appendfsync=appendfsync, options=at_once
    ) as one:
        of_one = ["--replicaof", "127.0.0.1", str(one.port)]
        with start_server(
            directory / "two", binary=binary, appendfsync=appendfsync, options=[*at_once, *of_one]
        ) as two:
            with redis.Redis(port=one.port) as client:
                until(lambda: "online" in str(client.info("replication").get("slave0")))
            yield one, two


@contextmanager
def sentinel(directory: Path, primary: int) -> Iterator[int]:
    directory.mkdir()
    (port,) = free_ports(1)
    file = directory / "sentinel.conf"
    file.write_text(
        f"port {port}\nbind 127.0.0.1\ndir {directory}\n"
        f"sentinel monitor shop 127.0.0.1 {primary} 1\n"
        "sentinel down-after-milliseconds shop 500\nsentinel failover-timeout shop 3000\n"
    )
    with open(directory / "log", "wb") as log:
        process = start_child(
            [os.fspath(redis_server()), os.fspath(file), "--sentinel"], stdout=log
        )
    try:
        with redis.Redis(port=port) as client:
            until(lambda: _answers(client))
            until(lambda: client.sentinel_master("shop")["num-slaves"] == 1)
        yield port
    finally:
        end_child(process, 10)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
