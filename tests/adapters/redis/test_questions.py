"""Questions between gateways: answers in pieces, lost frames, peers that do not answer."""

import logging
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from crdtcast.adapters.redis.questions import Questions
from crdtcast.exceptions import NotReadyError, RemoteProtocolError
from crdtcast.wire_questions import PIECE_BYTES, Answer, Ask, Asking

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

        def link(frame: Asking, to: Callable[[Asking], None]) -> None:
            said.append(frame)
            if not drop(frame):
                nursery.start_soon(deliver, frame, to)

        async def deliver(frame: Asking, to: Callable[[Asking], None]) -> None:
            to(frame)

        log = logging.getLogger("questions")
        a = Questions(
            lambda name, frame: link(frame, lambda f: b.heard("a", f)), answer, spawn, log
        )
        b = Questions(
            lambda name, frame: link(frame, lambda f: a.heard("b", f)), answer, spawn, log
        )

        async def ask(place: int, question: bytes) -> None:
            try:
                found[place] = await a.ask("b", question)
            except NotReadyError as error:
                found[place] = error

        async with trio.open_nursery() as asking:
            for place, question in enumerate(questions):
                asking.start_soon(ask, place, question)
    return found, said


def run(
    questions: list[bytes], drop: Drop = lambda frame: False
) -> tuple[list[object], list[Asking]]:
    return trio.run(talk, questions, drop, clock=trio.testing.MockClock(autojump_threshold=0))


def test_each_question_gets_its_own_answer() -> None:
    found, _ = run([b"one", b"two", b"long", b"three"])
    assert found == [b"ONE", b"TWO", LONG, b"THREE"]


def test_long_answer_comes_in_pieces_one_at_a_time() -> None:
    found, said = run([b"long"])
    assert found == [LONG]
    pieces = [frame for frame in said if isinstance(frame, Answer)]
    assert len(pieces) == -(-len(LONG) // PIECE_BYTES) > 1
    assert max(len(frame.piece) for frame in pieces) == PIECE_BYTES
    assert [type(frame) for frame in said] == [Ask, Answer] * len(pieces)


@pytest.mark.parametrize("lost", range(8))
def test_lost_frame_ends_in_an_error_and_the_next_question_works(lost: int) -> None:
    frames: list[Asking] = []

    def drop(frame: Asking) -> bool:
        frames.append(frame)
        return len(frames) == lost + 1

    found, _ = run([b"long", b"next"], drop)
    failed = [answer for answer in found if isinstance(answer, NotReadyError)]
    assert len(failed) == 1 and {LONG, b"NEXT"} & {each for each in found if each not in failed}


def test_question_that_is_refused_there_is_not_waited_for() -> None:
    async def main() -> None:
        found, _ = await talk([b"bad"])
        assert isinstance(found[0], NotReadyError)
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
            asker.heard("b", Answer(again.serial, 0, 3, b"TWO"))
        return found

    found = trio.run(main, clock=trio.testing.MockClock(autojump_threshold=1))
    assert found == ["the link with b is gone", b"TWO"]
    assert said[0][0] == said[1][0], "time has passed"
