"""Makes the index of the deadlines in a database that was taken over, while clients write."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import trio

from crdtcast.adapters.redis.commit.committer import Committer
from crdtcast.adapters.redis.crash_points import crash_point
from crdtcast.adapters.redis.deadlines.adopted import AdoptedIndex

_PROGRESS_SECONDS = 5.0
_AGAIN_SECONDS = 1.0


async def make_index(adopted: AdoptedIndex, committer: Committer, logger: logging.Logger) -> None:
    """Make the index, a step with each commit. Returns when it is whole; to be cancelled if the connection is lost."""
    told_at = trio.current_time()
    logger.info("makes the index of deadlines: %s of about %s keys", adopted.seen, adopted.total)
    said = ""
    while not adopted.is_whole:
        full = committer.refusals.growth
        if full is not None:  # the server would refuse the whole commit, and soon all others
            problem = f"the index of deadlines waits for room: {full}"
        elif isinstance(reply := await _step(adopted, committer), list):
            problem = ""
            adopted.stepped(reply)
            crash_point("adopted-step-done")
        else:  # a right is missing, say
            problem = f"the server cannot make the index of deadlines: {reply}; trying again"
        if problem and problem != said:
            logger.error("%s", problem)
        said = problem
        if problem:
            await trio.sleep(_AGAIN_SECONDS)
        if trio.current_time() - told_at >= _PROGRESS_SECONDS:
            told_at = trio.current_time()
            logger.warning(
                "makes the index of deadlines: %s of about %s keys; the first join waits for it",
                f"{min(adopted.seen, adopted.total):,}",
                f"{adopted.total:,}",
            )
    committer.keyspace.dates.adopts = False
    logger.warning(
        "the index of deadlines is made (%s entries): other gateways can join",
        f"{adopted.made:,}",
    )
    crash_point("adopted-index-made")


async def _step(adopted: AdoptedIndex, committer: Committer) -> object:
    replies: list[object] = []
    done = trio.Event()

    def take(reply: object) -> None:
        replies.append(reply)
        done.set()

    committer.behind_all(_script(adopted, committer), take)
    crash_point("adopted-step-asked")
    await done.wait()
    return replies[0]


def _script(adopted: AdoptedIndex, committer: Committer) -> Sequence[bytes]:
    keyspace = committer.keyspace
    where = keyspace.metadata_db, keyspace.dates.offset_ms
    return adopted.step(*where, keyspace.databases.clients, keyspace.left_out)
