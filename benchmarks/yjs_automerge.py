"""What a text and a map cost here, in Yjs and in Automerge: bytes stored and sent, and time, for the same edits.

    python -m benchmarks.yjs_automerge MODULES [--edits 20000]

MODULES is a directory in which `npm install yjs @automerge/automerge` has put its `node_modules`; Node.js runs them.
The edits, of one author each:

- *written*: a text that grows, typed in runs of about 20 characters at random places, a tenth of it deleted again;
- *revised*: a text of 1,000 characters, of which ten at a random place are replaced, again and again;
- *assigned*: a map of 100 keys that are assigned by chance.

Printed for each: bytes of the saved document, bytes sent for an edit (the operation, the update, the change; what the
transport adds is left out), microseconds of CPU for an edit, made, applied and, here, stable 200 edits later. Ours runs
in CPython, theirs in Node.js. All three must end with the same value.
"""

import argparse
import json
import os
import random
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack

from crdtcast.causality.hlc import HLC
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import GOMap, PureOpCRDT, SharedText, Site

LAG = 200
SEED = 11
SCRIPT = Path(__file__).with_suffix(".mjs")
REGISTER = "register_lww"


def written(count: int, chance: random.Random) -> Iterator[tuple[int, int, str]]:
    """Edits of a text: place, characters to delete, characters to insert."""
    length = place = left = 0
    for _ in range(count):
        if left == 0:
            place, left = chance.randint(0, length), chance.randint(1, 40)
        left -= 1
        if place and chance.random() < 0.1:
            place -= 1
            length -= 1
            yield place, 1, ""
        else:
            yield place, 0, chance.choice("etaoin shrdlu")
            place += 1
            length += 1


def revised(count: int, chance: random.Random) -> Iterator[tuple[int, int, str]]:
    """As `written`."""
    yield 0, 0, "x" * 1000
    for _ in range(count - 1):
        yield chance.randrange(991), 10, "".join(chance.choices("etaoin shrdlu", k=10))


def assigned(count: int, chance: random.Random) -> Iterator[tuple[str, str]]:
    """Keys and values of a map."""
    for number in range(count):
        yield f"key-{chance.randrange(100)}", f"value {number}"


TRACES: dict[str, Callable[[int, random.Random], Iterator[Any]]] = {
    "written": written,
    "revised": revised,
    "assigned": assigned,
}


def ours(name: str, edits: list[Any]) -> tuple[int, int, float, Any]:
    """Bytes saved, bytes sent, microseconds an edit, and the value."""
    crdt: PureOpCRDT[Any] = GOMap() if name == "assigned" else SharedText()
    crdt.site = Site("a", HLC(lambda: time.time_ns() // 1_000_000))
    unstable: deque[Tag] = deque()
    sent = 0
    began = time.process_time()
    for counter, edit in enumerate(edits):
        tag = Tag(Dot("a", counter + 1), (), {"a": counter, "b": 5, "c": 7})
        if name == "assigned":
            calls = [("update", edit[0], REGISTER, ["assign", edit[1]])]
        else:
            place, less, more = edit
            calls = [("delete", place, less)] * bool(less) + [("insert", place, more)] * bool(more)
        prepared: list[list[Any]] = []
        for call in calls:
            prepared.append(crdt.prepare(*call, after=prepared))
        for index, operation in enumerate(prepared):
            crdt.effect(operation, tag, index)
        sent += len(msgpack.packb(prepared))
        unstable.append(tag)
        if len(unstable) > LAG:
            crdt.stable(unstable.popleft())
    spent = time.process_time() - began
    for tag in unstable:
        crdt.stable(tag)
    value = crdt.value
    if name == "assigned":
        value = {key: held for (key, _), held in value.items()}
    return len(crdt.snapshot()), sent, spent / len(edits) * 1e6, value


def theirs(modules: Path, name: str, edits: list[Any]) -> dict[str, list[Any]]:
    """The same for Yjs and Automerge."""
    with tempfile.TemporaryDirectory() as folder:
        script, trace = Path(folder, SCRIPT.name), Path(folder, "edits.json")
        script.write_text(SCRIPT.read_text())
        Path(folder, "node_modules").symlink_to((modules / "node_modules").resolve())
        trace.write_text(
            json.dumps({"kind": "map" if name == "assigned" else "text", "edits": edits})
        )
        words = ["node", "--preserve-symlinks", "--preserve-symlinks-main", str(script), str(trace)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, list[Any]] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", type=Path)
    parser.add_argument("--edits", type=int, default=20_000)
    options = parser.parse_args()
    for name, trace in TRACES.items():
        edits = list(trace(options.edits, random.Random(SEED)))
        rows: dict[str, Any] = {
            "crdtcast": ours(name, edits),
            **theirs(options.modules, name, edits),
        }
        for who, (saved, sent, spent, value) in rows.items():
            assert value == rows["crdtcast"][3], f"{who} has another value"
            print(
                f"{name:9} {who:10} saved {saved:9,}  sent {sent / len(edits):7.1f} an edit  {spent:7.1f} us"
            )
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
