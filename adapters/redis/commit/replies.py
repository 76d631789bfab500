"""The replies to a commit with clients' reads: replies to these are kept as bytes, and only up to a limit.

As Python objects the members of a set take ten times their bytes, and the reads of a transaction have no limit. So
hiredis decodes the replies of a commit only if they are small. Otherwise each reply is cut out of the stream as it
comes, and a reply that exceeds the limit of its client is dropped at once.
"""

from __future__ import annotations

from collections import Counter

import hiredis

from crdtcast.adapters.redis.commit.plan import Asker, Expect, Plan
from crdtcast.adapters.redis.server.connection import NOT_YET, Replies, parsed
from crdtcast.adapters.redis.server.parsing import ReplySplitter
from crdtcast.adapters.redis.server.resp import Raw, ReplyError

SMALL_BYTES = 256 << 10
"""Up to so many bytes of replies to one commit, hiredis decodes them."""


class CommitReplies:
    """A `ReplyReader` for one plan. It may return clients' reads as `Raw` bytes, in the protocol that the plan spoke.

    limit: bytes of replies that a client may leave unread; 0: any number. A sixteenth of it is reserved for small
        replies, mainly errors. A ReplyError replaces the reply to a read that exceeds the rest.
    """

    def __init__(self, plan: Plan, *, in_exec: bool, limit: int) -> None:
        self._limit = limit - limit // 16
        self._as_they_are = plan.as_they_are
        expected = plan.expected
        self._readers: dict[int, Asker] = {
            place: request.client
            for request, place in plan.from_reply
            if expected[place] is Expect.ANY
        }
        self._exec_at = 1 + len(plan.pieces) if in_exec else -1
        self._given = 0
        """Replies of the pipeline that were returned."""
        self._count = -1
        """Number of elements of the reply to EXEC; -1: not known yet."""
        self._elements: Replies = []
        self._sizes: Counter[Asker] = Counter()
        self._splitter = ReplySplitter()
        self._fast: hiredis.Reader | None = None
        if not plan.as_they_are:
            self._fast = hiredis.Reader(notEnoughData=NOT_YET)
        self._seen: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> None:
        fast = self._fast
        if fast is None:
            self._splitter.feed(chunk)
            return
        self._size += len(chunk)
        self._seen.append(chunk)
        if self._size <= SMALL_BYTES:
            fast.feed(chunk)
            return
        self._fast = None
        self._splitter.feed(b"".join(self._seen))
        self._seen.clear()
        for _ in range(self._given):
            self._splitter.next()

    def gets(self) -> object:
        reply = self._slow() if self._fast is None else self._fast.gets()
        if reply is not NOT_YET:
            self._given += 1
        return reply

    def _slow(self) -> object:
        if self._given == self._exec_at:
            if self._count < 0:
                count = self._splitter.enter()
                if count is None:
                    return NOT_YET
                self._count = count
            if self._count >= 0:
                return self._executed()
        return self._next(self._given if self._exec_at < 0 else -1)

    def _executed(self) -> object:
        elements = self._elements
        while len(elements) < self._count:
            element = self._next(len(elements))
            if element is NOT_YET:
                return NOT_YET
            elements.append(element)
        return elements

    def _next(self, place: int) -> object:
        """The next reply. place: of its command in the plan; -1 if it only says QUEUED."""
        client = self._readers.get(place)
        self._splitter.most = self._limit if client is not None else 0
        reply = self._splitter.next()
        if reply is None:
            return NOT_YET
        if client is None:
            return reply if place in self._as_they_are else parsed(reply)
        if client.closed:
            return None
        size = len(reply) + self._splitter.dropped
        if self._sizes[client] + size > self._limit > 0:
            return ReplyError(
                f"ERR crdtcast: dropped this reply of {size} bytes: with the earlier ones of its "
                f"commit it exceeds {self._limit} bytes (15/16 of client_output_limit); the other "
                "commands of its transaction are executed: read in parts, or outside of MULTI"
            )
        self._sizes[client] += size
        return reply


def in_protocol(reply: Raw, protocol: int, *, is_set: bool) -> object:
    """A RESP2 reply, converted for a client of this protocol."""
    if protocol == 3:
        if reply == b"$-1\r\n":
            return None
        if is_set and reply[:1] == b"*":
            return Raw(b"~" + reply[1:])
    return reply
