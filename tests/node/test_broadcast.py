"""The lower level: tcbroadcast, tcdeliver, tcstable."""

import pytest
import trio

from crdtcast import BroadcastNode, Delivered, LocalProtocolError, Stable, Tag, open_node


async def first(node: BroadcastNode, kind: type[Delivered] | type[Stable]) -> Delivered | Stable:
    async for event in node:
        if isinstance(event, kind):
            return event
    raise AssertionError("the events ended")


def test_tags_speak_of_what_the_program_had_taken() -> None:
    async def main() -> None:
        async with (
            open_node("a", peers={"b": None}, digest_interval=0.01) as a,
            open_node("b", peers={"a": a.address}, digest_interval=0.01) as b,
        ):
            with trio.fail_after(30):
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


def test_own_messages_become_stable_too_once_the_others_have_taken_them() -> None:
    async def drain(node: BroadcastNode) -> None:
        async for _ in node:
            pass

    async def main() -> None:
        async with (
            open_node("a", peers={"b": None}, digest_interval=0.01) as a,
            open_node("b", peers={"a": a.address}, digest_interval=0.01) as b,
            trio.open_nursery() as nursery,
        ):
            sent = [a.tcbroadcast(bytes([n])) for n in range(10)]
            nursery.start_soon(drain, b)
            with trio.fail_after(30):
                for tag in sent:
                    assert await first(a, Stable) == Stable(tag)
            assert a.engine.quiet
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_a_payload_that_fits_no_frame_is_refused_before_it_is_tagged() -> None:
    async def main() -> None:
        async with open_node("a", peers={}) as a:
            with pytest.raises(LocalProtocolError, match="fit into a frame"):
                a.tcbroadcast(bytes(17 * 2**20))
            assert a.tcbroadcast(b"").dot.counter == 1

    trio.run(main)
