"""Questions between gateways: answers in parts, lost frames, peers that do not answer, or say why."""

import logging
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from crdtcast.adapters.redis.group.questions import PART_BYTES, Questions
from crdtcast.exceptions import NotReadyError, RemoteProtocolError
from crdtcast.wire.offer_frames import Ask, Asking, Fetch, Offer, Part, Unable

Drop = Callable[[Asking], bool]
LONG = bytes(range(256)) * 4096


async def talk(
    questions: list[bytes], drop: Drop = lambda frame: False
) -> tuple[list[object], list[Asking]]:
    """What a gets of b for each question, all asked at once, and all frames that were said."""
    said: list[Asking] = []
    found: list[object] = [None] * len(questions)
    async with trio.open_nursery() as nursery:

        async def answer(name: str, question: bytes) -> bytes:
            assert name == "a"
            if question == b"bad":
                raise RemoteProtocolError("what is that")
            return LONG if question == b"long" else question.upper()

        def spawn(work: Callable[[], Awaitable[None]]) -> None:
            nursery.start_soon(work)

        to_a, for_a = trio.open_memory_channel[Asking](1000)
        to_b, for_b = trio.open_memory_channel[Asking](1000)

        def link(frame: Asking, to: trio.MemorySendChannel[Asking]) -> None:
            said.append(frame)
            if not drop(frame):
                to.send_nowait(frame)

        async def deliver(
            frames: trio.MemoryReceiveChannel[Asking], take: Callable[[Asking], None]
        ) -> None:
            async for frame in frames:
                take(frame)

        log = logging.getLogger("questions")
        a = Questions(lambda name, frame: link(frame, to_b), answer, spawn, log)
        b = Questions(lambda name, frame: link(frame, to_a), answer, spawn, log)
        nursery.start_soon(deliver, for_a, lambda frame: a.heard("b", frame))
        nursery.start_soon(deliver, for_b, lambda frame: b.heard("a", frame))

        async def ask(place: int, question: bytes) -> None:
            try:
                found[place] = await a.ask("b", question)
            except NotReadyError as error:
                found[place] = error

        async with trio.open_nursery() as asking:
            for place, question in enumerate(questions):
                asking.start_soon(ask, place, question)
        nursery.cancel_scope.cancel()
    return found, said


def run(
    questions: list[bytes], drop: Drop = lambda frame: False
) -> tuple[list[object], list[Asking]]:
    return trio.run(talk, questions, drop, clock=trio.testing.MockClock(autojump_threshold=0))


def test_each_question_gets_its_own_answer() -> None:
    found, _ = run([b"one", b"two", b"long", b"three"])
    assert found == [b"ONE", b"TWO", LONG, b"THREE"]


def test_long_answer_is_fetched_in_parts_a_few_at_a_time() -> None:
    found, said = run([b"long"])
    assert found == [LONG]
    parts = [frame for frame in said if isinstance(frame, Part)]
    assert len(parts) == -(-len(LONG) // PART_BYTES) > 1
    assert max(len(frame.piece) for frame in parts) == PART_BYTES
    assert [type(frame) for frame in said[:3]] == [Ask, Offer, Fetch]
    open_ = most = 0
    for frame in said:
        open_ += isinstance(frame, Fetch) - isinstance(frame, Part)
        most = max(most, open_)
    assert most == 4 and not open_


@pytest.mark.parametrize("lost", range(12))
def test_lost_part_is_requested_again_and_a_lost_question_fails(lost: int) -> None:
    frames: list[Asking] = []

    def drop(frame: Asking) -> bool:
        frames.append(frame)
        return len(frames) == lost + 1

    found, _ = run([b"long", b"next"], drop)
    failed = [answer for answer in found if isinstance(answer, NotReadyError)]
    assert len(failed) == isinstance(frames[lost], Ask | Offer)
    assert {LONG, b"NEXT"} >= {each for each in found if each not in failed}


@pytest.mark.parametrize("lost", [Ask, Offer, Part])
def test_question_to_a_silent_peer_times_out(lost: type[Asking]) -> None:
    found, _ = run([b"long"], lambda frame: isinstance(frame, lost))
    assert isinstance(found[0], NotReadyError) and "b did not answer" in str(found[0])


def test_refused_question_fails_at_once_with_the_reason() -> None:
    async def main() -> None:
        found, _ = await talk([b"bad"])
        assert isinstance(found[0], NotReadyError) and str(found[0]) == "what is that"
        assert trio.current_time() == began

    async def timed() -> None:
        nonlocal began
        began = trio.current_time()
        await main()

    began = 0.0
    trio.run(timed, clock=trio.testing.MockClock(autojump_threshold=0))


def test_question_over_a_link_that_is_gone_is_not_waited_for() -> None:
    """Nor is what the same peer is asked next, over another link."""
    said: list[tuple[float, Asking]] = []

    async def main() -> list[object]:
        found: list[object] = []

        def say(name: str, frame: Asking) -> None:
            said.append((trio.current_time(), frame))

        async def answer(name: str, question: bytes) -> bytes:
            raise AssertionError("nothing is asked here")

        asker = Questions(say, answer, lambda work: None, logging.getLogger("questions"))

        async def ask(question: bytes) -> None:
            try:
                found.append(await asker.ask("b", question))
            except NotReadyError as error:
                found.append(str(error))

        async with trio.open_nursery() as asking:
            asking.start_soon(ask, b"one")
            await trio.testing.wait_all_tasks_blocked()
            asking.start_soon(ask, b"two")
            await trio.testing.wait_all_tasks_blocked()
            asker.gone("c")  # another peer's
            asker.gone("b")
            await trio.testing.wait_all_tasks_blocked()
            (_, _), (_, again) = said
            assert isinstance(again, Ask)
            asker.heard("b", Unable(again.serial - 1, True, "too late"))
            asker.heard("b", Offer(again.serial - 1, 5))
            asker.heard("b", Offer(again.serial, 3))
            asker.heard("b", Part(again.serial, 0, b"TWO"))
        return found

    found = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=1))
    assert found == ["b did not answer: the link is closed", b"TWO"]
    assert said[0][0] == said[1][0], "time has passed"


def test_offered_answers_are_dropped_with_the_link() -> None:
    """Its next process may have begun to number its requests anew."""
    said: list[Asking] = []

    async def main() -> None:
        async def answer(name: str, question: bytes) -> bytes:
            return b"answer"

        async with trio.open_nursery() as nursery:
            b = Questions(
                lambda name, frame: said.append(frame),
                answer,
                lambda work: nursery.start_soon(work),
                logging.getLogger("questions"),
            )
            b.heard("a", Ask(1, b"question"))
            await trio.testing.wait_all_tasks_blocked()
            assert said == [Offer(1, 6)] and b.knows("a", Fetch(1, 0))
            assert not b.knows("a", Fetch(2, 0)) and not b.knows("c", Fetch(1, 0))
            b.gone("a")
            assert not b.knows("a", Fetch(1, 0))

    trio.run(main)


def test_superseded_questions_are_not_answered() -> None:
    """A peer asks one at a time: one that sends many at once has one of them answered at a time, and the last one."""
    answered: list[bytes] = []
    tasks: list[Callable[[], Awaitable[None]]] = []
    said: list[Asking] = []

    async def main() -> None:
        overtaken = trio.Event()

        async def answer(name: str, question: bytes) -> bytes:
            answered.append(question)
            await overtaken.wait()
            return question

        log = logging.getLogger("questions")
        questions = Questions(lambda name, frame: said.append(frame), answer, tasks.append, log)
        for serial in range(1, 1000):
            questions.heard("a", Ask(serial, b"%d" % serial))
        assert len(tasks) == 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tasks[0])
            await trio.testing.wait_all_tasks_blocked()
            questions.heard("a", Ask(1000, b"last"))
            overtaken.set()
        assert answered == [b"999", b"last"]
        assert said == [Offer(1000, 4)]

    trio.run(main)
