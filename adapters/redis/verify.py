"""CRDTCAST VERIFY: a digest of every key, written to the event log and summed up.

Keys are read in slices behind the commits, so each digest belongs to the vector at its instant. Two replicas with
equal vectors must answer with equal digests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from crdtcast.adapters.redis.census import is_replicated
from crdtcast.adapters.redis.contents import Contents, with_deadline
from crdtcast.adapters.redis.databases import BEGIN, END, by_name, scan
from crdtcast.adapters.redis.deadlines.index import MARGIN_MS
from crdtcast.adapters.redis.digests import key_digest, presence_hash
from crdtcast.adapters.redis.own_reads import replies_to
from crdtcast.adapters.redis.sizes import portions, weighing, weight_of
from crdtcast.adapters.redis.types import BY_NAME

if TYPE_CHECKING:
    from crdtcast.adapters.redis.gateway import Gateway

_SLICE = 500
_BYTES = 1 << 20
_MODULUS = 1 << 128
_MINUTE_MS = 60_000


async def digest_everything(gateway: Gateway) -> dict[str, Any]:
    """`{"keys": n, "digest": hex, "vector": {…}, "with_deadlines": {"keys": n, "digest": hex, "until": ms},
    "not_replicated": {type: n}}`.

    The vector is the one before the first slice. Keys of types that are not replicated count by their presence in the
    digest. Keys with a deadline count apart, and only if that is behind `until`, so that two digests of one `until` are
    of the same keys, although clocks differ.
    """
    recorder = gateway.recorder
    databases = gateway.committer.keyspace.databases
    read_words = partial(replies_to, gateway.ask)
    read = by_name(read_words)
    vector = dict(gateway.committer.engine.vector) if gateway.committer.engine else {}
    total = keys = 0
    foreign: Counter[str] = Counter()
    horizon = _horizon(gateway.committer.keyspace.dates.now)
    lasting, lasting_keys = 0, 0
    at = BEGIN
    while True:
        at, names = await scan(read_words, databases, at, _SLICE)
        types: Sequence[Any] = await read([[b"TYPE", name] for name in names])
        deadlines: Sequence[Any] = await read([[b"PEXPIRETIME", name] for name in names])
        until = dict(zip(names, deadlines, strict=True))
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
        sizes = await read([weighing(name) for _, name in found])
        hidden = gateway.committer.keyspace.hidden
        for some in portions(found, map(weight_of, sizes), _BYTES):
            replies = await read([native.reading(name) for native, name in some])
            for (native, name), reply in zip(some, replies, strict=True):
                content = native.content(reply)
                if name in hidden or not content:
                    recorder.touch_again(name)  # told when it has been read with what it hides
                    continue
                contents: Contents = {native.type: content}
                if (end := until[name]) < 0:
                    recorder.tell(name, contents)
                    total += int(key_digest(name, contents), 16)
                    keys += 1
                elif end > horizon - _MINUTE_MS:  # what is nearer may be gone elsewhere
                    contents = with_deadline(contents, end)
                    recorder.tell(name, contents)
                    if end > horizon:
                        lasting += int(key_digest(name, contents), 16)
                        lasting_keys += 1
        if recorder.log is not None:
            recorder.log.flush()
        if at == END:
            break
    return {
        "keys": keys,
        "digest": f"{total % _MODULUS:032x}",
        "vector": vector,
        "with_deadlines": {
            "keys": lasting_keys,
            "digest": f"{lasting % _MODULUS:032x}",
            "until": horizon,
        },
        "not_replicated": dict(foreign),
    }


def _horizon(now: int) -> int:
    """The next full minute but what is near: who is asked within the same one has the same."""
    return ((now + MARGIN_MS) // _MINUTE_MS + 1) * _MINUTE_MS
