"""Repair and asking: what to send again to a peer, and when to ask it for a digest. Decided per digest and per tick.

Any member repairs any other, whatever the origin. Members must not all send the same, nor repair what is only in
flight. So the origin repairs after `hold` ticks (any member does that has no link to the origin), others three ticks
later. A peer that lacks very much of an origin gets nothing of it from this member while it makes progress through
another one. What a fresh link has never carried is repaired at once.
"""

import heapq
from collections.abc import Collection, Iterator
from itertools import repeat
from operator import le

from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Vector
from crdtcast.engine.peer import BACKOFF_MAX, Peer
from crdtcast.engine.store import Store, Stored

BATCH_MESSAGES = 256
BATCH_BYTES = 1 << 20
"""What is sent again at once: a millisecond or two of work, more where memory is cold."""

LEAST_PROGRESS = 64
"""A peer that advances by so many messages, before others would help, counts as repaired by another member."""

BATCHES = 16
"""Batches that go out before the peer has to say again what it has: one a tick, or sooner, see `Core.repair_on`."""


def relay_hold(peer: Peer) -> int:
    """Ticks after which a message counts as lost for members other than its origin."""
    return peer.hold + 3


def note_progress(
    peer: Peer, lacking: Collection[str], delivered: Vector, known: Vector, tick: int
) -> None:
    """A digest of `peer` has come, with the vector `known`, that lacks something of these origins."""
    before, sent = peer.progress, peer.sent
    progress = {}
    for origin in lacking:
        have = known.get(origin, 0)
        had, since = before.get(origin, (have, peer.linked_at))
        much = delivered[origin] - have > BATCH_MESSAGES
        # A few are worth a shorter way than that of a slow link, and so are those that trickle in on one.
        if much and have - max(had, sent.get(origin, 0)) >= LEAST_PROGRESS:
            had, since = have, tick
        progress[origin] = (had, since)
    peer.progress = progress
    peer.told_at = tick


def repairs(
    store: Store,
    me: str,
    linked: Collection[str],
    peer: Peer,
    lacking: Collection[str],
    known: Vector,
    tick: int,
    most: int = BATCH_MESSAGES,
) -> tuple[list[Message], bool]:
    """A bounded batch to send to `peer` now, in delivery order. And whether it is full, so that there may be more.

    linked: the incarnations with a link to this one. known: the vector that the peer has reported.
    lacking: origins of which this member has delivered more than that. most: the limit of messages in the batch.
    Call `note_progress` first. Remembers in `peer` what it returns.
    """
    hold, relay = peer.hold, relay_hold(peer)
    retry: dict[str, int] = {}
    if tick >= peer.resend_at:
        retry, peer.sent_before = peer.sent_before, dict(peer.sent)
        stuck = any(known.get(o, 0) < n and store.get(o, n) for o, n in retry.items())
        peer.backoff = min(2 * peer.backoff, BACKOFF_MAX) if stuck else hold
        peer.resend_at = tick + peer.backoff
    runs: list[Iterator[Stored]] = []
    for origin in lacking:
        run = store.by_origin.get(origin)
        if run is None:
            continue  # stable, so the peer has it by now: the digest is an old one
        have = known.get(origin, 0)
        if origin != me and origin in linked:
            _, since = peer.progress.get(origin, (0, peer.told_at))
            if peer.told_at - since < relay:
                continue
        first, last = max(have + 1, run.first), run.last
        earliest = run.at(first)
        if tick - earliest.born < hold and earliest.sequence > peer.mark:
            continue  # in flight, and so is everything after it
        again = min(last, retry.get(origin, 0))
        if first <= again:
            runs.append(map(run.at, range(first, again + 1)))
        first = max(first, peer.sent.get(origin, 0) + 1)
        if first <= last:
            runs.append(map(run.at, range(first, last + 1)))
    if not runs:
        return [], False
    batch: list[Message] = []
    size = 0
    blocked: set[str] = set()
    for sequence, born, message, _ in runs[0] if len(runs) == 1 else heapq.merge(*runs):
        age = tick - born
        if age < hold and sequence > peer.mark:
            break
        origin, counter = message.dot
        if origin in blocked:
            continue
        if origin != me and origin in linked and age < relay:
            blocked.add(origin)
            continue
        batch.append(message)
        if counter > peer.sent.get(origin, 0):
            peer.sent[origin] = counter
        size += len(message.payload)
        if len(batch) >= most or size >= BATCH_BYTES:
            return batch, True
    return batch, False


def should_ask(store: Store, delivered: Vector, peer: Peer, tick: int) -> bool:
    """Whether the row of `peer` holds back something that it should have acknowledged by now."""
    row = peer.row or {}
    if all(map(le, delivered.values(), map(row.get, delivered, repeat(0)))):
        return False  # it has everything, which is quickly seen
    for origin, run in store.by_origin.items():
        stored = run.get(max(row.get(origin, 0) + 1, run.first))
        if stored is not None and tick - max(stored.born, peer.linked_at) > peer.hold:
            return True
    return False
