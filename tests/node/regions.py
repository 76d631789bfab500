"""What tests wait for in clusters of replicas."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from crdtcast import Replica, open_replica
from crdtcast.testing import Cluster, eventually, open_cluster


async def members_are(cluster: Cluster[Replica], *names: str) -> None:
    """Return when all of these know that they are the members."""
    await eventually(
        lambda: all(
            sorted(map(str, cluster.up[name].member.members)) == sorted(names)
            and cluster.up[name].member.engine.established
            == cluster.up[name].member.engine.members.keys()
            for name in names
        )
    )


async def evict(cluster: Cluster[Replica], name: str) -> None:
    """By the others, which are a majority; return when it is cut off."""
    others = [each for each in cluster.up if each != name]
    cluster.up[others[0]].member.evict(name)
    await members_are(cluster, *others)


async def voting(cluster: Cluster[Replica]) -> None:
    """Return when all have a vote."""
    for replica in cluster.up.values():
        await replica.member.wait_established()


async def agree(cluster: Cluster[Replica]) -> Any:
    """All are quiet, and worth the same: what that is."""

    def are_equal() -> bool:
        everybody = cluster.up.values()
        return (
            all(replica._is_quiet() for replica in everybody)
            and all(replica.member.members.keys() == cluster.up.keys() for replica in everybody)
            and len({replica.snapshot().digest for replica in everybody}) == 1
        )

    await eventually(are_equal, 600)
    return next(iter(cluster.up.values())).snapshot().values


@asynccontextmanager
async def regions(*names: str, seed: int = 0, **options: Any) -> AsyncIterator[Cluster[Replica]]:
    """Such replicas, all members of one group, and with a vote."""
    async with open_cluster(open_replica, *names, seed=seed, **options) as cluster:
        await members_are(cluster, *names)
        await voting(cluster)
        with trio.fail_after(3600):
            yield cluster
