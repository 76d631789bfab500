"""A state machine of callbacks: what it gets, in which order, and what its errors do."""

import pytest
import trio
import trio.testing

from crdtcast import LocalProtocolError, Member, StateMachine, Tag, open_member
from tests.node.group_support import founded


class Journal(StateMachine):
    """Notes everything; answers each question once."""

    def __init__(self) -> None:
        self.node: Member | None = None
        self.delivered: list[bytes] = []
        self.tags: list[Tag] = []
        self.stable: list[Tag] = []
        self.progress = trio.lowlevel.ParkingLot()

    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        self.delivered.append(payload)
        self.tags.append(tag)
        if payload == b"break":
            raise RuntimeError("broken by a message")
        if payload.endswith(b"?") and self.node is not None and tag.dot.origin[0] != "b":
            answer = self.node.tcbroadcast(payload[:-1] + b"!")
            assert tag < answer
            assert self.delivered[-1] == payload[:-1] + b"!", "own message not delivered at once"
        self.progress.unpark_all()

    def tcstable(self, tag: Tag) -> None:
        self.stable.append(tag)
        self.progress.unpark_all()


def test_every_machine_gets_all_messages_in_causal_order() -> None:
    async def main() -> None:
        first, second = Journal(), Journal()
        async with founded("a", "b", processes={"a": first, "b": second}) as (a, b):
            second.node = b
            question = a.tcbroadcast(b"how?")
            assert first.delivered == [b"how?"]
            while len(first.stable) < 2 or len(second.stable) < 2:
                await (first if len(first.stable) < 2 else second).progress.park()
            for journal in (first, second):
                assert journal.delivered == [b"how?", b"how!"]
                assert journal.stable == journal.tags
                assert journal.tags[0] == question < journal.tags[1]

    trio.run(main)


def test_machine_error_ends_the_node_and_is_raised_unchanged() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="broken by a message"):
            async with founded("a", "b", processes={"b": Journal()}) as (a, _):
                a.tcbroadcast(b"break")
                await trio.sleep_forever()

    trio.run(main)


def test_events_have_a_single_consumer() -> None:
    async def main() -> None:
        async with open_member("a", found=True, machine=Journal()) as a:
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(LocalProtocolError, match="without one to iterate over it"):
                await anext(a)
            with pytest.raises(LocalProtocolError, match="receives its events"):
                await a.run(Journal())
            with pytest.raises(LocalProtocolError, match="receives its events"):
                a.next_event()
        async with open_member("a", found=True) as a:
            assert a.next_event() is None

    trio.run(main)


def test_machine_started_later_gets_the_waiting_messages() -> None:
    async def main() -> None:
        journal = Journal()
        async with founded("a", "b") as (a, b), trio.open_nursery() as nursery:
            a.tcbroadcast(b"one")
            nursery.start_soon(b.run, journal)
            while not journal.delivered:
                await journal.progress.park()
            await a.wait_stable(a.tcbroadcast(b"two", after=[]))
            assert journal.delivered == [b"one", b"two"]
            nursery.cancel_scope.cancel()

    trio.run(main)
