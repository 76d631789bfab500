"""Three replicas edit one Yjs document at a time: each has a pycrdt `Doc` of its own, and all become equal.

Needs `pip install 'crdtcast[pycrdt]'`.
"""

from typing import Any

import trio
from pycrdt import Doc, Map, Text

from crdtcast import Replica, open_replica
from crdtcast.adapters.pycrdt import LiveDocument, YDocHandle


async def write(replica: Replica, doc: "Doc[Any]", line: str) -> None:
    """What an editor does: it knows its own document only."""
    async with LiveDocument(YDocHandle(replica, "notes"), doc) as live:
        text, seen_by = doc.get("text", type=Text), doc.get("seen by", type=Map)
        text += line
        seen_by[replica.name] = len(line)
        await live.flush()  # or go on: it is sent with the next await


async def main() -> None:
    async with (
        open_replica("ann", found=True) as ann,
        open_replica("bob", join=ann.address) as bob,
        open_replica("cem", join=bob.address) as cem,
    ):
        replicas = (ann, bob, cem)
        async with trio.open_nursery() as nursery:
            for replica, line in zip(replicas, (" milk", " tea", " bread"), strict=True):
                nursery.start_soon(write, replica, Doc(), line)
        for replica in replicas:
            await replica.wait_quiet()
        values = [YDocHandle(replica, "notes").value for replica in replicas]
        assert values[0] == values[1] == values[2]
        print("ann, bob and cem have", *sorted(str(values[0]["text"]).split()))
        print("seen by", values[1]["seen by"])


trio.run(main)
