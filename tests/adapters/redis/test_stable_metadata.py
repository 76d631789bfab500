"""What is stable leaves memory and metadata: many messages at once under load, all of them when nothing happens."""

from collections.abc import Iterator

import pytest

from crdtcast.adapters.redis.commit import committer
from crdtcast.adapters.redis.commit.committer import STABLE_EVERY
from crdtcast.adapters.redis.server.embedded import start_server
from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.adapters.redis.store.metadata import CONSTANT_KEYS
from tests.adapters.redis.gateways import RunningGateway, gateway, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway without peers: all that is committed is stable at once."""
    directory = tmp_path_factory.mktemp("stable")
    with (
        start_server(directory / "server", appendfsync="no") as server,
        gateway(directory, server.port, peers={}) as made,
    ):
        yield made


def metadata_of(running: RunningGateway) -> RawClient:
    connection = running.gateway._connection
    assert connection is not None
    client = RawClient(connection.address.port)
    client.call("SELECT", "15")
    return client


def is_quiet(running: RunningGateway, direct: RawClient) -> bool:
    engine = running.gateway.committer.engine
    assert engine is not None
    keys = direct.call("KEYS", "*")
    assert isinstance(keys, list)
    return engine.quiet and not set(keys) - CONSTANT_KEYS


def most_stored(running: RunningGateway, writes: int) -> int:
    """Messages that the server has kept at most, of so many single writes."""
    most = 0
    with running.client() as client, metadata_of(running) as direct:
        for number in range(writes):
            client.call("SADD", "s", str(number))
            stored = direct.call("HLEN", "store")
            assert isinstance(stored, int)
            most = max(most, stored)
    return most


def test_single_writes_on_end_leave_few_stable_messages(running: RunningGateway) -> None:
    # What has come since the last time: nothing waits for a tick.
    assert 1 < most_stored(running, 10 * STABLE_EVERY) <= STABLE_EVERY + 1


def test_more_than_one_commit_takes_leaves_with_the_next_ones(
    running: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "MAX_STABLE", STABLE_EVERY // 4)
    assert 1 < most_stored(running, 10 * STABLE_EVERY) <= STABLE_EVERY + 1


def test_large_writes_on_end_leave_no_more_than_one(running: RunningGateway) -> None:
    with running.client() as client, metadata_of(running) as direct:
        until(lambda: is_quiet(running, direct))
        for number in range(6):
            client.call("SADD", "large", "x" * (2 << 20) + str(number))
            # None where a tick came before this look.
            assert direct.call("HLEN", "store") in (0, 1)


def test_a_quiet_gateway_has_forgotten_all_that_is_stable(running: RunningGateway) -> None:
    with running.client() as client, metadata_of(running) as direct:
        for number in range(STABLE_EVERY // 2):
            client.call("INCR", f"n:{number}")
        until(lambda: is_quiet(running, direct))
    engine = running.gateway.committer.engine
    assert engine is not None and engine.stable == engine.vector
    assert not len(running.gateway.committer.keyspace.log)
