"""A member of a group as a process of its own. It says on its standard output what is durable, stops
sending at the first line of its standard input, and says how much it has sent in all. The next line is
how much all of them have sent: when it has that, and everything is stable, it says what it has.
"""

import json
import sys

import trio

from crdtcast import open_member
from tests.node.group_support import Ledger


async def main(*arguments: str) -> None:
    name, directory, port, contact, most = arguments
    ledger = Ledger()
    where = {"join": f"127.0.0.1:{contact}"} if contact else {"found": True}
    async with open_member(
        name,
        listen=f"127.0.0.1:{port}",
        machine=ledger,
        journal=f"{directory}/{name}",
        event_logs=f"{directory}/logs",
        compact_bytes=3000,
        **where,
    ) as member:
        await member.wait_durable()  # killed before that, it may have to join anew
        print("up", member.incarnation, flush=True)
        stopped = trio.Event()

        async def listen() -> None:
            await trio.to_thread.run_sync(sys.stdin.readline)
            stopped.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            number = 0
            while not stopped.is_set() and number < int(most):
                number += 1
                await member.ready()
                own = sum(payload.startswith(name.encode()) for payload in ledger.entries.values())
                payload = f"{name}{own + 1}"
                member.tcbroadcast(payload.encode())
                await member.wait_durable()
                print("kept", payload, flush=True)
        own = sum(payload.startswith(name.encode()) for payload in ledger.entries.values())
        print("idle", own, flush=True)
        everything = int(await trio.to_thread.run_sync(sys.stdin.readline))
        with trio.fail_after(120):
            while not (
                len(ledger.entries) >= everything
                and member.engine.quiet
                and len(member.members) == 3
                and member.parked is None
            ):
                with trio.move_on_after(0.05):
                    await ledger.news.park()
        print(json.dumps([p.decode() for p in ledger.payloads]), flush=True)
        # The others may still need it.
        await trio.to_thread.run_sync(sys.stdin.readline)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
