"""The bounded queue of one peer."""

import random

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from crdtcast.transport.send_queue import OutgoingQueue
from crdtcast.wire.fields import Section
from crdtcast.wire.sections import SECTION_BYTES, LongFrame


def taken(queue: OutgoingQueue, batch: int = 256 * 1024) -> list[bytes]:
    async def take_all() -> list[bytes]:
        batches = []
        while queue.queued_bytes:
            batches.append(await queue.take(batch))
        return batches

    return trio.run(take_all)


def piece_of(section: Section) -> bytes:
    return section.piece


def long_frame(size: int) -> LongFrame:
    """Its sections are nothing but bytes of its body."""
    return LongFrame(random.Random(size).randbytes(size), piece_of)


pieces = st.one_of(
    st.binary(min_size=1, max_size=100), st.integers(1, 4 * SECTION_BYTES).map(long_frame)
)


@given(st.lists(pieces, max_size=8), st.integers(1, 300))
def test_long_frames_go_by_sections_in_order_on_every_queue(
    offered: list[bytes | LongFrame], batch: int
) -> None:
    queues = [OutgoingQueue(10**8) for _ in range(2)]
    whole = b"".join(piece if isinstance(piece, bytes) else bytes(piece._body) for piece in offered)
    for queue in queues:
        assert all(queue.offer(piece) for piece in offered)
        batches = taken(queue, batch)
        assert queue.queued_bytes == 0
        assert b"".join(batches) == whole
        assert all(len(one) <= max(SECTION_BYTES, batch) for one in batches)


def test_rest_of_a_long_frame_stays_queued() -> None:
    queue = OutgoingQueue(3 * SECTION_BYTES)
    assert queue.offer(long_frame(3 * SECTION_BYTES))
    assert not queue.offer(b"more than the limit")
    sizes = []
    while queue.queued_bytes:
        trio.run(queue.take)
        sizes.append(queue.queued_bytes)
    assert sizes == [2 * SECTION_BYTES, SECTION_BYTES, 0]
    assert queue.offer(b"x")


@given(st.lists(st.binary(min_size=1, max_size=100)), st.integers(1, 300))
def test_all_frames_in_order_in_bounded_batches(frames: list[bytes], batch: int) -> None:
    queue = OutgoingQueue(10**6)
    assert all(queue.offer(frame) for frame in frames)
    batches = taken(queue, batch)
    assert b"".join(batches) == b"".join(frames)
    assert all(len(one) <= max(batch, 100) for one in batches)


@given(st.lists(st.binary(min_size=1, max_size=100)), st.integers(1, 300))
def test_queue_stays_within_its_limit_and_sends_what_it_accepted(
    frames: list[bytes], limit: int
) -> None:
    queue = OutgoingQueue(limit)
    accepted = [frame for frame in frames if queue.offer(frame)]
    assert queue.queued_bytes <= max(limit, 100)
    assert b"".join(taken(queue)) == b"".join(accepted)


def test_after_an_overflow_half_must_be_written_first() -> None:
    queue = OutgoingQueue(10)
    frames = [b"1234", b"5678"]
    assert all(queue.offer(frame) for frame in frames)
    assert not queue.offer(b"90ab")
    assert not queue.offer(b"x"), "a frame behind a gap was taken"
    assert taken(queue) == [b"12345678"]
    assert queue.offer(b"x")


def test_a_lone_frame_longer_than_the_limit_passes() -> None:
    assert OutgoingQueue(10).offer(bytes(100))


def test_the_taker_waits_for_the_first_frame() -> None:
    async def main() -> bytes:
        queue = OutgoingQueue(100)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(offer_later, queue)
            return await queue.take()

    async def offer_later(queue: OutgoingQueue) -> None:
        await trio.testing.wait_all_tasks_blocked()
        queue.offer(b"at last")

    assert trio.run(main) == b"at last"
