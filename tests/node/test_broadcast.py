"""The lower level: tcbroadcast, tcdeliver, tcstable."""

import pytest
import trio

from crdtcast import Delivered, LocalProtocolError, Member, Stable, StateMachine, Tag, open_member
from tests.node.group_support import founded


async def first(node: Member, kind: type[Delivered] | type[Stable]) -> Delivered | Stable:
    async for event in node:
        if isinstance(event, kind):
            return event
    raise AssertionError("the events ended")


def test_tags_depend_only_on_taken_messages() -> None:
    async def main() -> None:
        async with founded("a", "b", digest_interval=0.01) as (a, b):
            question = a.tcbroadcast(b"question")
            early = b.tcbroadcast(b"before b has taken the question")
            got = await first(b, Delivered)
            assert isinstance(got, Delivered)
            assert got.payload == b"question"
            answer = b.tcbroadcast(b"answer")
            assert got.tag < answer
            assert early.concurrent(question)
            taken: list[Tag] = []
            async for event in a:
                if isinstance(event, Delivered):
                    taken.append(event.tag)
                if len(taken) == 2:
                    break
            assert [tag.dot for tag in taken] == [early.dot, answer.dot]
            assert question < taken[1] and question.concurrent(taken[0])

    trio.run(main)


def test_own_messages_become_stable_once_others_have_taken_them() -> None:
    async def drain(node: Member) -> None:
        async for _ in node:
            pass

    async def main() -> None:
        async with (
            founded("a", "b", digest_interval=0.01) as (a, b),
            trio.open_nursery() as nursery,
        ):
            sent = [a.tcbroadcast(bytes([n])) for n in range(10)]
            nursery.start_soon(drain, b)
            for tag in sent:
                assert await first(a, Stable) == Stable(tag)
            assert a.engine.quiet
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_oversized_payload_is_refused_before_it_gets_a_tag() -> None:
    async def main() -> None:
        async with open_member("a", found=True) as a:
            with pytest.raises(LocalProtocolError, match="fit into a frame"):
                a.tcbroadcast(bytes(17 * 2**20))
            assert a.tcbroadcast(b"").dot.counter == 1

    trio.run(main)


class Counting(StateMachine):
    def __init__(self) -> None:
        self.delivered = 0

    def tcdeliver(self, payload: bytes, tag: Tag) -> None:
        self.delivered += 1


@pytest.mark.parametrize("has_machine", [True, False])
def test_while_events_wait_other_tasks_have_their_turns(has_machine: bool) -> None:
    """Not for each event, which would cost more than the event itself."""
    process = Counting()
    most = 0

    async def take(node: Member) -> None:
        if has_machine:
            await node.run(process)
        async for event in node:
            process.delivered += isinstance(event, Delivered)

    async def watch() -> None:
        nonlocal most
        before = 0
        while process.delivered < 1000:
            await trio.lowlevel.checkpoint()
            most, before = max(most, process.delivered - before), process.delivered

    async def main() -> None:
        async with founded("a", "b") as (a, b), trio.open_nursery() as nursery:
            for _ in range(1000):
                a.tcbroadcast(b"")
            while b.engine.counters().pending < 1000:  # noqa: ASYNC110
                await trio.sleep(0.01)
            nursery.start_soon(take, b)
            await watch()
            nursery.cancel_scope.cancel()

    trio.run(main)
    assert 32 <= most <= 64, "tasks take their turns in any order"
