"""Two replicas with journals: what one had when its process ended is there when it starts again."""

import logging
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from crdtcast import Replica, open_replica
from crdtcast.datatypes import AWSet


async def start(stack: AsyncExitStack, directory: Path) -> tuple[Replica, Replica]:
    """The same calls at each start: a journal that holds a former life is gone on from."""
    eu = await stack.enter_async_context(
        open_replica("eu", found=True, journal=directory / "eu")  # the first one of the group
    )
    us = await stack.enter_async_context(
        open_replica("us", join=eu.address, journal=directory / "us")  # all others join
    )
    return eu, us


async def main(directory: Path) -> None:
    async with AsyncExitStack() as stack:
        _, us = await start(stack, directory)
        await us.object("cart:42", AWSet).add("milk")  # takes effect at once, here
        await us.wait_durable()  # from here on it survives the loss of power
    async with AsyncExitStack() as stack:
        for replica in await start(stack, directory):
            cart = replica.object("cart:42", AWSet)
            while not cart.exists:
                await cart.changed()
            print(replica.name, sorted(cart.value), "among", *sorted(replica.member.members))


logging.disable(logging.WARNING)  # that the other one is not up yet is no news here
with TemporaryDirectory() as place:
    trio.run(main, Path(place))
