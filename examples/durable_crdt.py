"""A data type that survives a crash: one object in a group with a journal.

`crdt` gets all that a type needs: operations with their tags, and when they are stable. The journal keeps both, and
snapshots, and a process that starts again continues from there.
"""

import tempfile
from typing import Any

import msgpack
import trio
from own_crdt import Poll

from crdtcast import Member, StateMachine, Tag, open_member
from crdtcast.datatypes import PureOpCRDT


class Object(StateMachine):
    """One replicated object, of any type, for all members of a group."""

    def __init__(self, crdt: PureOpCRDT[Any]) -> None:
        self.crdt = crdt

    def issue(self, member: Member, name: str, *args: Any) -> Tag:
        payload: Any = msgpack.packb(self.crdt.prepare(name, *args))
        return member.tcbroadcast(payload)

    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        self.crdt.effect(msgpack.unpackb(payload), tag)

    def tcstable(self, tag: Tag) -> None:
        self.crdt.stable(tag)

    def get_state(self) -> bytes:
        return self.crdt.snapshot()

    def set_state(self, state: bytes) -> None:
        crdt = type(self.crdt)
        self.crdt = crdt.restore(state) if state else crdt()


async def main() -> None:
    with tempfile.TemporaryDirectory() as journal:
        poll = Object(Poll())
        async with open_member("eu", found=True, machine=poll, journal=journal) as eu:
            poll.issue(eu, "vote", "ann", "tea")
            poll.issue(eu, "vote", "bob", "coffee")
            await eu.wait_durable()  # from here on a crash takes nothing away
        poll = Object(Poll())
        async with open_member("eu", found=True, machine=poll, journal=journal) as eu:
            poll.issue(eu, "vote", "ann", "coffee")
            print("after a restart:", poll.crdt.value)


if __name__ == "__main__":
    trio.run(main)
