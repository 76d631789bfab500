"""Three replicas in one process, written to at once, in agreement without a coordinator."""

from contextlib import AsyncExitStack

import trio

from crdtcast import Replica, open_replica
from crdtcast.datatypes import AWSet, ResettableCounter

NAMES = ("eu", "us", "asia")


async def main() -> None:
    async with AsyncExitStack() as stack:
        replicas: dict[str, Replica] = {}
        for name in NAMES:  # on a free port each; dials those that are up, is dialled by the rest
            founders = {n: replicas[n].address if n in replicas else None for n in NAMES}
            replicas[name] = await stack.enter_async_context(open_replica(name, founders=founders))
        # The first write waits until all three are up.
        for name, replica in replicas.items():
            await replica.object("cart:42", AWSet).add(f"milk from {name}")
            await replica.object("visits", ResettableCounter).increment(10)
        for replica in replicas.values():
            await replica.wait_quiet()  # everything known here is delivered everywhere
        for name, replica in replicas.items():
            cart = replica.object("cart:42", AWSet)
            print(name, sorted(cart.value), replica.object("visits", ResettableCounter).value)


trio.run(main)
