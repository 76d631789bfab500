"""Servers and groups of gateways that scenarios use one after the other: to start a group takes longer than
most of them.
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from crdtcast.adapters.redis.cluster import LocalCluster, OpenCluster
from crdtcast.adapters.redis.server.embedded import EmbeddedServer, start_server
from crdtcast.adapters.redis.server.raw_client import RawClient
from crdtcast.conformance.scenario import Scenario


class Stage:
    """What one scenario at a time is played on. `stop` ends all processes."""

    def __init__(self, directory: Path, appendfsync: str) -> None:
        self.directory = directory
        self.appendfsync = appendfsync
        self.servers: list[EmbeddedServer] = []
        self._kept: LocalCluster | None = None
        self._started = 0

    @contextmanager
    def group(self, scenario: Scenario) -> Iterator[LocalCluster]:
        """Gateways for `scenario`, with the links cut.

        They are kept for the next scenario if this one leaves the group as it was; the block has then to remove its
        data. After an exception the gateways are stopped.
        """
        cluster, self._kept = self._kept, None
        if cluster is not None and not fits(cluster, scenario):
            end(cluster)
            cluster = None
        if cluster is None:
            cluster = self._start(scenario)
        try:
            yield cluster
        except BaseException:
            end(cluster)
            raise
        if scenario.leaves_the_group:
            self._kept = cluster
        else:
            end(cluster)

    def stop(self) -> None:
        """Stop the gateways and the servers."""
        if self._kept is not None:
            end(self._kept)
        for server in self.servers:
            server.stop()

    def _start(self, scenario: Scenario) -> LocalCluster:
        names = (*scenario.replicas, *dict.fromkeys(scenario.joining))
        taken = dict(zip(names, self._take(len(names)), strict=True))
        self._started += 1
        directory = self.directory / f"group-{self._started}"
        cluster = kind_of(scenario)(
            directory, scenario.replicas, group="conformance", cut=True, servers=taken
        )
        try:
            return cluster.__enter__()
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise

    def _take(self, count: int) -> Sequence[EmbeddedServer]:
        """The first `count` servers, running and empty."""
        while len(self.servers) < count:
            directory = self.directory / f"server-{len(self.servers)}"
            self.servers.append(start_server(directory, appendfsync=self.appendfsync))
        for server in self.servers[:count]:
            if server.process.poll() is not None:
                server.restart()
            empty(server)
        return self.servers[:count]


def in_order(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """The scenarios in an order in which groups are seldom started, otherwise as they come."""
    return sorted(
        scenarios,
        key=lambda each: (
            not each.leaves_the_group,
            each.changes_members,
            each.replicas,
            not each.asks_gateways,
        ),
    )


def kind_of(scenario: Scenario) -> type[LocalCluster]:
    return OpenCluster if scenario.changes_members else LocalCluster


def fits(cluster: LocalCluster, scenario: Scenario) -> bool:
    """Whether the scenario can be played by these gateways, which have played others."""
    if scenario.asks_gateways or not scenario.leaves_the_group:
        return False
    return type(cluster) is kind_of(scenario) and cluster.names == scenario.replicas


def end(cluster: LocalCluster) -> None:
    """Stop the gateways and delete their files."""
    cluster.stop()
    shutil.rmtree(cluster.directory, ignore_errors=True)


def empty(server: EmbeddedServer) -> None:
    """Delete all data of a server, and of the gateway in it."""
    with RawClient(server.port) as client:
        client.call("FLUSHALL")
