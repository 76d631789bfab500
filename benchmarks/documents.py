"""What a replicated Yjs document costs: time for an edit, memory for an item. `python -m benchmarks.documents`.

Edits are one character each, at random places of a text. CPU time; memory is that of the process, pycrdt's part
included.
"""

import argparse
import gc
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from pycrdt import Doc, Text, merge_updates

from crdtcast import open_replica
from crdtcast.adapters.pycrdt import LiveDocument, YDoc, YDocHandle
from crdtcast.causality.tags import Dot, Tag


def edits(count: int) -> list[bytes]:
    """The updates of one author."""
    doc: Doc[Any] = Doc(client_id=1)
    text = doc.get("text", type=Text)
    updates: list[bytes] = []
    doc.observe(lambda event: updates.append(event.update))
    rng = random.Random(1)
    for n in range(count):
        text.insert(rng.randint(0, n), "x")
    return updates


def tag(counter: int) -> Tag:
    return Tag(Dot("a", counter), (), {"a": counter - 1})


def issued(updates: list[bytes]) -> YDoc:
    """A document that these were issued on, and that is stable."""
    crdt = YDoc()
    for n, update in enumerate(updates, start=1):
        crdt.effect(crdt.prepare("apply", update), tag(n))
        crdt.stable(tag(n))
    return crdt


def plain(updates: list[bytes]) -> "Doc[Any]":
    """A document of pycrdt with the same."""
    doc: Doc[Any] = Doc()
    for update in updates:
        doc.apply_update(update)
    return doc


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def occupied(make: Callable[[], object], copies: int) -> float:
    """Bytes that one of these takes."""
    gc.collect()
    before = resident()
    kept = [make() for _ in range(copies)]
    gc.collect()
    return (resident() - before) / len(kept)


def seconds(function: Callable[[], object]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


async def between_replicas(count: int, turn: int) -> None:
    """Print what an edit costs from one live document to another one, until it is stable."""
    async with (
        open_replica("a", found=True) as a,
        open_replica("b", join=a.address, types=[YDoc]) as b,
    ):
        doc: Doc[Any] = Doc(client_id=1)
        async with (
            LiveDocument(YDocHandle(a, "notes"), doc) as live,
            LiveDocument(YDocHandle(b, "notes"), Doc(client_id=2)),
        ):
            text = doc.get("text", type=Text)
            began = time.process_time()
            for n in range(count):
                text.insert(n // 2, "x")
                if n % turn == turn - 1:
                    await live.flush()
            await a.wait_quiet()
            cost = 1e6 * (time.process_time() - began) / count
            print(
                f"an edit between two replicas, {turn} in a turn: {cost:.0f} us, at both together"
            )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edits", type=int, default=20_000)
    count = parser.parse_args().edits
    logging.disable(logging.WARNING)
    updates = edits(count)
    merged = [merge_updates(*updates[at : at + 100]) for at in range(0, count, 100)]
    for name, given in (("one at a time", updates), ("100 in one update", merged)):
        print(f"an edit, {name}: {1e6 * seconds(lambda given=given: issued(given)) / count:.1f} us")
    print(f"plain pycrdt, an edit: {1e6 * seconds(lambda: plain(updates)) / count:.1f} us")
    crdt = issued(merged)
    for name, call in (
        ("value", lambda: crdt.value),
        ("digest", crdt.digest),
        ("snapshot", crdt.snapshot),
        ("text", lambda: crdt.text("text")),
    ):
        print(f"{name} of {count:,} items: {1000 * seconds(call):.1f} ms")
    for turn in (1, 100):
        trio.run(between_replicas, count // 5, turn)
    whole = merge_updates(*updates)
    print(f"an item, plain pycrdt: {occupied(lambda: plain([whole]), 10) / count:.0f} bytes")
    print(f"an item, replicated: {occupied(lambda: issued([whole]), 10) / count:.0f} bytes")
    print(f"an item, as YDoc.memory tells: {crdt.memory().total / count:.0f} bytes")
    crdt.forget(tag(count + 1))
    print(f"a deleted item, as YDoc.memory tells: {crdt.memory().total / count:.0f} bytes")


if __name__ == "__main__":
    main()
