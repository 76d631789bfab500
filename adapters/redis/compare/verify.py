"""CRDTCAST VERIFY: a digest of every key, written to the event log, and their sum.

Keys are read in slices after commits, so each digest belongs to the vector at its instant. Two replicas with equal
vectors must answer with equal digests. Sums over slots are added up page by page: a large value is read in pages, and
again if it was written meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from crdtcast.adapters.redis.adoption.census import is_replicated
from crdtcast.adapters.redis.commit.committer import Committer
from crdtcast.adapters.redis.compare.digests import digest_of, key_sum, presence_hash
from crdtcast.adapters.redis.deadlines.index import MARGIN_MS, unpinned
from crdtcast.adapters.redis.ops.recorder import Recorder
from crdtcast.adapters.redis.server.own_reads import at_once, read_together, replies_to
from crdtcast.adapters.redis.server.sizes import portions, weighing, weight_of
from crdtcast.adapters.redis.server.steps import Steps, taken
from crdtcast.adapters.redis.store.contents import NOT_THERE, Contents, with_deadline
from crdtcast.adapters.redis.store.databases import (
    BEGIN,
    END,
    by_name,
    home_of,
    in_home,
    scan,
    sent,
)
from crdtcast.adapters.redis.store.value_pages import ValuePages
from crdtcast.adapters.redis.types import BY_NAME
from crdtcast.adapters.redis.types.native import PAGE_BYTES, Content, NativeType
from crdtcast.causality.tags import Vector

_SLICE = 500
_MINUTE_MS = 60_000
_WALKS = 2
"""Walks over a large value that clients write meanwhile, before it is read at once."""


class _Held(NamedTuple):
    """What a key held at an instant.

    total: the sum over its slots and its deadline; None if it no longer held that type, or hid a value.
    until: its deadline, negative for none.
    vector: see `Recorder.vector_of`.
    """

    name: bytes
    total: int | None
    until: int
    vector: Vector | None


_Key: TypeAlias = tuple[type[NativeType], bytes]


async def _held(
    committer: Committer, recorder: Recorder, weighed: Sequence[tuple[_Key, int]]
) -> list[_Held]:
    """The contents of these keys; a large value is read in pages, unless it is written all the time."""
    some = [key for key, _ in weighed]
    (native, name), weight = weighed[0]
    if weight > PAGE_BYTES and native.get is not None:
        for _ in range(_WALKS):
            if (held := await _held_in_pages(committer, recorder, native, name)) is not None:
                return [held]
    found: list[_Held] = []

    def take(told: list[tuple[int, Content | None]]) -> None:
        for (native, name), (until, content) in zip(some, told, strict=True):
            total = None
            if content and name not in committer.keyspace.hidden:
                content = committer.keyspace.exact.over(name, native.type, content)
                total = _sum(name, {native.type: content}, until)
            found.append(_Held(name, total, until, recorder.vector_of(name)))

    await read_together(committer.ask, at_once(_reading(some), take))
    return found


def _reading(some: Sequence[_Key]) -> Steps[list[tuple[int, Content | None]]]:
    """The deadlines of these keys, and their contents."""
    asked: list[tuple[int, list[bytes]]] = []
    for native, name in some:
        home = home_of(name)
        asked += (home.db, [b"PEXPIRETIME", home.key]), (home.db, native.reading(home.key))
    commands, places = sent(asked)
    replies = yield commands
    told = [replies[place] for place in places]
    return [
        (unpinned(until), native.content(reply))
        for (native, _), until, reply in zip(some, told[::2], told[1::2], strict=True)
    ]


async def _held_in_pages(
    committer: Committer, recorder: Recorder, native: type[NativeType], name: bytes
) -> _Held | None:
    """None if the value was written meanwhile, or a slot came twice."""
    home, read = home_of(name), partial(replies_to, committer.ask)
    vector = recorder.vector_of(name)
    walk = ValuePages(native, home)
    count = total = 0
    while walk.following is not None:
        page = await taken(walk.page(), read)
        if page is not None:
            count += len(page.content)
            content = committer.keyspace.exact.over(name, native.type, page.content)
            total += key_sum(name, {native.type: content})
    (native_until,) = await taken(in_home(home, [[b"PEXPIRETIME", home.key]]), read)
    until = unpinned(native_until)
    is_same = vector == recorder.vector_of(name) and until != NOT_THERE
    if not is_same or count != walk.count or name in committer.keyspace.hidden:
        return None
    return _Held(name, total + _sum(name, {}, until), until, vector)


def _sum(name: bytes, contents: Contents, until: int) -> int:
    return key_sum(name, contents if until < 0 else with_deadline(contents, until))


async def digest_everything(committer: Committer, recorder: Recorder) -> dict[str, Any]:
    """`{"keys": n, "digest": hex, "vector": {…}, "with_deadlines": {"keys": n, "digest": hex, "until": ms},
    "not_replicated": {type: n}}`.

    The vector is the one before the first slice. Keys of types that are not replicated count by their presence in the
    digest. Keys with a deadline count separately, and only if the deadline is after `until`: so two digests with the
    same `until` cover the same keys, although clocks differ.
    """
    databases = committer.keyspace.databases
    read_words = partial(replies_to, committer.ask)
    read = by_name(read_words)
    vector = dict(committer.engine.vector) if committer.engine else {}
    total = keys = 0
    foreign: Counter[str] = Counter()
    horizon = _horizon(committer.keyspace.dates.now)
    lasting, lasting_keys = 0, 0
    at = BEGIN
    while True:
        at, found_names = await scan(read_words, databases, at, _SLICE)
        names = committer.keyspace.left_out.kept(found_names)
        types: Sequence[Any] = await read([[b"TYPE", name] for name in names])
        for name, kind in zip(names, types, strict=True):
            if isinstance(kind, bytes) and not is_replicated(kind):
                foreign[kind.decode(errors="replace")] += 1
                total += presence_hash(name, kind)
                keys += 1
        found = [
            (native, name)
            for name, kind in zip(names, types, strict=True)
            if (native := BY_NAME.get(kind)) is not None
        ]
        weights = list(map(weight_of, await read([weighing(name) for _, name in found])))
        for some in portions(list(zip(found, weights, strict=True)), weights, PAGE_BYTES):
            for name, sum_, until, of in await _held(committer, recorder, some):
                if sum_ is None:
                    recorder.touch_again(name)  # logged once it has been read with what it hides
                    continue
                # A key with a nearer deadline may be gone at other members.
                if until < 0 or until > horizon - _MINUTE_MS:
                    recorder.tell_digest(name, of, digest_of(sum_))
                if until < 0:
                    total += sum_
                    keys += 1
                elif until > horizon:
                    lasting += sum_
                    lasting_keys += 1
        if recorder.log is not None:
            recorder.log.flush()
        if at == END:
            break
    return {
        "keys": keys,
        "digest": digest_of(total),
        "vector": vector,
        "with_deadlines": {
            "keys": lasting_keys,
            "digest": digest_of(lasting),
            "until": horizon,
        },
        "not_replicated": dict(foreign),
    }


def _horizon(now: int) -> int:
    """The next full minute that is not too near: members asked within the same minute have the same."""
    return ((now + MARGIN_MS) // _MINUTE_MS + 1) * _MINUTE_MS
