"""Groups of replicas over real sockets, partitions between them, and the end of both."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import trio

from crdtcast import Replica, open_replica

NAMES = ("eu", "us", "asia")


@asynccontextmanager
async def replicas(
    more: Mapping[str, Mapping[str, Any]] | None = None, **options: Any
) -> AsyncIterator[list[Replica]]:
    """Three replicas; `more`: options of single ones."""
    async with AsyncExitStack() as stack:
        started: dict[str, Replica] = {}
        for name in NAMES:
            founders = {n: started[n].address if n in started else None for n in NAMES}
            own = {"digest_interval": 0.01, **options, **(more or {}).get(name, {})}
            started[name] = await stack.enter_async_context(
                open_replica(name, founders=founders, **own)
            )
        with trio.fail_after(30):
            for replica in started.values():
                await replica.ready()
            yield list(started.values())


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
