"""A shopping cart on two devices, one of them in a tunnel; and an order that is placed as a whole.

What the tunnel's device adds survives a removal that had not seen it (add wins). Checking out takes
the cart away and makes the order in one message: nobody ever sees one without the other.
"""

import logging
from contextlib import AsyncExitStack

import trio

from crdtcast import open_replica
from crdtcast.datatypes import AWSet, ResettableCounter


async def main() -> None:
    async with AsyncExitStack() as stack:
        phone = await stack.enter_async_context(
            open_replica("phone", founders={"phone": None, "laptop": None})
        )
        laptop = await stack.enter_async_context(
            open_replica("laptop", founders={"phone": phone.address, "laptop": None})
        )
        at_phone, at_laptop = phone.object("cart", AWSet), laptop.object("cart", AWSet)
        await at_laptop.add_all(["bread", "milk"])
        await phone.at_least(await laptop.token())  # the phone shows what the laptop wrote
        print("phone sees:", sorted(at_phone.value))

        phone.member.cut("laptop")  # into the tunnel
        await at_phone.add("milk")  # again: "we do need milk"
        await at_phone.add("tea")
        await at_laptop.remove("milk")
        await at_laptop.remove("bread")
        print("apart:", sorted(at_phone.value), "and", sorted(at_laptop.value))

        phone.member.heal("laptop")
        for replica, other in ((phone, laptop), (laptop, phone)):
            await replica.at_least(await other.token())
        print("together:", sorted(at_phone.value), "and", sorted(at_laptop.value))

        with laptop.batch() as batch:
            batch.object("order:1", AWSet).add_all(at_laptop.value)
            batch.object("orders", ResettableCounter).increment()
            batch.delete("cart")
        while not phone.object("order:1", AWSet).exists:
            await phone.object("order:1", AWSet).changed()
        order = sorted(phone.object("order:1", AWSet).value)
        print("phone has:", [info.name for info in phone.objects()], order)


if __name__ == "__main__":
    logging.getLogger("crdtcast").setLevel(logging.ERROR)  # a line that is down is no news here
    trio.run(main)
