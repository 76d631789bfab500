"""The option-price monitor of Cheriton and Skeen, and what it needs beside an order of delivery.

A feed sends the price of a share; a pricer computes what an option is worth; a monitor shows both. The share moves
while the pricer computes. The new share price and the old option price are concurrent: causal and total orders may
bring them in either order. Side by side they are wrong: an option costs less than x

Cheriton and Skeen, "Understanding the Limitations of Causally and Totally Ordered Communication", 1993, conclude that
the order of delivery does not help. It does not; but the middleware knows what was concurrent, and tells: the monitor
marks an option price that has not seen the latest share.
"""

import logging
from contextlib import AsyncExitStack

import trio

from crdtcast import Delivered, Member, Tag, open_member

NAMES = ("feed", "pricer", "monitor")
STRIKE = 90


class Monitor:
    def __init__(self) -> None:
        self.share: tuple[int, Tag] | None = None
        self.option: tuple[int, Tag] | None = None

    def take(self, event: Delivered) -> None:
        kind, price = event.payload.decode().split()
        shown = int(price), event.tag
        if kind == "share":
            self.share = shown
        else:
            self.option = shown

    def __str__(self) -> str:
        assert self.share is not None and self.option is not None
        (share, share_tag), (option, option_tag) = self.share, self.option
        verdict = "consistent" if share_tag < option_tag else "stale: computed from an older share"
        crossing = ", false crossing" if option < share - STRIKE else ""
        return f"share {share}, option {option} ({verdict}{crossing})"


async def next_delivery(member: Member) -> Delivered:
    async for event in member:
        if isinstance(event, Delivered):
            return event
    raise AssertionError("the member was closed")


async def option_price(pricer: Member) -> bytes:
    _, share = (await next_delivery(pricer)).payload.split()
    return b"option %d" % (int(share) - STRIKE + 2)


async def main() -> None:
    async with AsyncExitStack() as stack:
        members: dict[str, Member] = {}
        for name in NAMES:
            founders = {n: members[n].address if n in members else None for n in NAMES}
            members[name] = await stack.enter_async_context(open_member(name, founders=founders))
        feed, pricer, monitored = members.values()
        monitor = Monitor()
        await feed.ready()
        feed.tcbroadcast(b"share 100")
        price = await option_price(pricer)
        feed.tcbroadcast(b"share 115")  # while the pricer computes, the share moves
        pricer.tcbroadcast(price)
        for _ in range(3):
            monitor.take(await next_delivery(monitored))
        print(monitor)
        pricer.tcbroadcast(await option_price(pricer))
        monitor.take(await next_delivery(monitored))
        print(monitor)


if __name__ == "__main__":
    logging.getLogger("crdtcast").setLevel(logging.ERROR)
    trio.run(main)
