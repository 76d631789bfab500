"""Two replicas in an asyncio program: operations, a task that waits for a change, and a limit for a wait."""

import asyncio

from crdtcast import aio
from crdtcast.datatypes import AWSet, PNCounter


async def main() -> None:
    async with (
        aio.open_replica("eu", found=True) as eu,
        aio.open_replica("us", join=eu.address) as us,
    ):
        cart = us.object("cart:42", AWSet)

        async def first_item() -> str:
            while not cart.value:
                await cart.changed()
            return ", ".join(map(str, cart.value))

        waiting = asyncio.create_task(first_item())
        await eu.object("cart:42", AWSet).add("milk")
        print("us got", await waiting)

        await asyncio.gather(*(us.object("visits", PNCounter).increment() for _ in range(100)))
        async with asyncio.timeout(10):
            await eu.at_least(await us.token())
        print("eu counts", eu.object("visits", PNCounter).value)


asyncio.run(main())
