"""A chat that shows no reply before the message that it answers, whatever way the messages take.

Ann's link to Cem is cut. Cem gets Bob's reply directly, and Ann's question only through Bob. The middleware holds the
reply back until the question arrives. A program without causal order would have shown the reply at once (Lamport,
"Time, Clocks, and the Ordering of Events", 1978).
"""

import logging
from contextlib import AsyncExitStack

import trio

from crdtcast import Delivered, Member, open_member

NAMES = ("ann", "bob", "cem")


class Chat:
    def __init__(self, member: Member) -> None:
        self.member = member
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.member.tcbroadcast(f"{self.member.name}: {text}".encode())
        self.lines.append(f"{self.member.name}: {text}")

    async def until(self, lines: int) -> None:
        """Take what comes until so many lines are on the screen."""
        async for event in self.member:
            if isinstance(event, Delivered):
                self.lines.append(event.payload.decode())
                if len(self.lines) >= lines:
                    return


async def main() -> None:
    async with AsyncExitStack() as stack:
        members: dict[str, Member] = {}
        for name in NAMES:
            founders = {n: members[n].address if n in members else None for n in NAMES}
            members[name] = await stack.enter_async_context(open_member(name, founders=founders))
        for member in members.values():
            await member.ready()
        ann, bob, cem = map(Chat, members.values())
        ann.member.cut("cem")
        ann.say("who brings the cake?")
        await bob.until(1)
        bob.say("I do")
        await cem.until(2)
        cem.say("then I bring tea")
        await bob.until(3)
        ann.member.heal("cem")
        await ann.until(3)
        for chat in (ann, bob, cem):
            print(f"{chat.member.name}'s screen: {' / '.join(chat.lines)}")


if __name__ == "__main__":
    logging.getLogger("crdtcast").setLevel(logging.ERROR)  # a line that is down is no news here
    trio.run(main)
