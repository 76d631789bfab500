"""Three replicas in memory, on the real clock; partitions between them, and the end of both."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from crdtcast import Replica, open_replica
from crdtcast.testing import Cluster, open_cluster

NAMES = ("eu", "us", "asia")
AT = {name: f"10.0.0.{number}:7001" for number, name in enumerate(NAMES, start=1)}


@asynccontextmanager
async def programs(
    more: Mapping[str, Mapping[str, Any]] | None = None, **options: Any
) -> AsyncIterator[Cluster[Replica]]:
    """Three replicas, which can be stopped and started again; `more`: options of single ones."""
    options = {"founders": AT, "digest_interval": 0.01, **options}
    async with open_cluster(open_replica, **options) as cluster:
        for name in NAMES:
            await cluster.start(name, **(more or {}).get(name, {}))
        with trio.fail_after(30):
            for replica in cluster.up.values():
                await replica.ready()
            yield cluster


@asynccontextmanager
async def replicas(
    more: Mapping[str, Mapping[str, Any]] | None = None, **options: Any
) -> AsyncIterator[list[Replica]]:
    """Three replicas without journals; `more`: options of single ones."""
    async with programs(more, journal=None, **options) as cluster:
        yield list(cluster.up.values())


async def settle(group: list[Replica]) -> None:
    """All have delivered all: each is quiet, and so is what the others sent since."""
    for _ in range(2):
        for replica in group:
            await replica.wait_quiet()


async def level(group: list[Replica]) -> None:
    """All have seen what each has seen; nothing need be stable."""
    tokens = [await replica.token() for replica in group]
    for replica in group:
        for token in tokens:
            await replica.at_least(token)


def isolate(replica: Replica, group: list[Replica]) -> None:
    for other in group:
        if other is not replica:
            replica.member.cut(other.name)


def rejoin(replica: Replica, group: list[Replica]) -> None:
    for other in group:
        if other is not replica:
            replica.member.heal(other.name)
