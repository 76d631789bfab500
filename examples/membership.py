"""A word count that every member holds, in a group that grows, evicts a member and takes it back.

This program runs three members; each could be a separate process. The words that the cut-off member counts are not
lost: when it comes back it sends again what the others do not have.
"""

import json
import logging
from collections import Counter

import trio

from crdtcast import Member, StateMachine, Tag, open_member
from crdtcast.transport.options import format_address


class WordCount(StateMachine):
    """Additions commute, so neither order nor concurrency matters; that each counts once does."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.changed = trio.lowlevel.ParkingLot()

    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        self.counts[payload.decode()] += 1
        self.changed.unpark_all()

    def get_state(self) -> bytes:
        return json.dumps(self.counts).encode()

    def set_state(self, state: bytes) -> None:
        self.counts = Counter(json.loads(state))
        self.changed.unpark_all()


async def members_of(member: Member, *names: str) -> None:
    while set(member.members) != set(names):
        await member.changed()


async def main() -> None:
    eu, us, asia = WordCount(), WordCount(), WordCount()
    async with open_member("eu", found=True, machine=eu) as a:
        where = format_address(a.address)
        for word in ("to", "be", "or", "not", "to", "be"):
            a.tcbroadcast(word.encode())
        async with (
            open_member("us", join=where, machine=us) as b,
            open_member("asia", join=where, machine=asia) as c,
        ):
            print("us has got a copy:", dict(us.counts))
            for member in (a, b, c):
                await members_of(member, "eu", "us", "asia")
                await member.wait_established()
            # All know each other: two are a majority that can go on without the third.
            for name in ("eu", "us"):
                c.cut(name)
            c.tcbroadcast(b"question")
            a.evict("asia")
            await members_of(a, "eu", "us")
            print("eu and us go on alone:", sorted(a.members))

            for name in ("eu", "us"):
                c.heal(name)
            while "question" not in eu.counts:
                await eu.changed.park()
            await members_of(a, "eu", "us", "asia")
            while asia.counts.total() < eu.counts.total():
                await asia.changed.park()
            assert asia.counts == eu.counts
            print("asia is back, with what it had said meanwhile: question")
            await c.leave()
            await b.leave()
        await a.leave()


if __name__ == "__main__":
    logging.getLogger("crdtcast").setLevel(logging.ERROR)
    trio.run(main)
