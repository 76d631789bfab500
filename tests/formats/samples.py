"""One value of everything that is written down or sent, and its bytes as this program writes them.

Names are for ever. Everything here is fixed: no clock, no random number.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from fractions import Fraction
from typing import Any, NamedTuple

from crdtcast.adapters.redis.store import effects, metadata
from crdtcast.adapters.redis.store.local_file import FORMAT as LOCAL_FILE_FORMAT
from crdtcast.adapters.redis.store.local_file import LocalFile
from crdtcast.causality.hlc import HLC
from crdtcast.causality.messages import Digest, DigestKind, Ended, Message
from crdtcast.causality.tags import Dot, Tag
from crdtcast.datatypes import Site
from crdtcast.engine import Cut, GroupEngine, How
from crdtcast.engine.founding import Announcement, Founder
from crdtcast.engine.level import Span
from crdtcast.engine.operations import (
    Join,
    Reads,
    Settled,
    Sweep,
)
from crdtcast.engine.operations import encode as encode_operation
from crdtcast.engine.whispers import WhisperFrame
from crdtcast.exceptions import CrdtcastError
from crdtcast.journal import format as journal_format
from crdtcast.journal.saved import JournalBatch, Life, Saved, pack_batch, pack_saved
from crdtcast.replica.objects import packed
from crdtcast.replica.session import token
from crdtcast.wire.fields import Named, Section
from crdtcast.wire.frames import Frame, Hello, KeepAlive, Proof, Refusal, Welcome, encode
from crdtcast.wire.group_frames import (
    Admit,
    Apart,
    Copy,
    Founding,
    Grouped,
    Here,
    Known,
)
from crdtcast.wire.offer_frames import Ask, Fetch, Offer, Part, Unable
from crdtcast.wire.state import Happened, JoinerEntry, pack_entry
from tests import view_values
from tests.datatypes.test_catalogue import CASES

A, B, C = "a.0123456789abcdef0", "b.0123456789abcdef0", "c.0123456789abcdef0+a.0123456789abcdef0+1"
MESSAGE = Message(Dot(A, 3), (Dot(A, 2), Dot(B, 7)), b"payload")
DIGEST = Digest(DigestKind.NEWS, {A: 3, B: 7}, dropped=9, acknowledging=False)

FRAMES: Mapping[str, Frame] = {
    "keepalive": KeepAlive(),
    "hello": Hello(
        group="shop",
        name="a",
        incarnation=A,
        process=b"process8",
        fence=4,
        clock_ms=1_700_000_000_000,
        shared=True,
        address="10.0.0.1:7001",
        nonce=bytes(range(32)),
        zstd=True,
    ),
    "fixed hello": Hello(
        group="shop",
        name="a",
        incarnation=A,
        process=b"process8",
        level=2,
        reads=Span(1, 2),
        databases=(16, 15),
    ),
    "welcome": Welcome(5),
    "refusal": Refusal("group", "another group"),
    "proof": Proof(bytes(range(32))),
    "named": Named(0, 1, (A, B)),
    "section": Section(100, b"piece"),
    "message": MESSAGE,
    "digest": DIGEST,
    "ask": Ask(1, b"question"),
    "offer": Offer(1, 1000),
    "unable": Unable(1, True, "not now"),
    "fetch": Fetch(1, 500),
    "part": Part(1, 500, b"piece"),
    "here": Here(1, "shop", A, A),
    "apart": Apart("shop", "ended", "it has ended"),
    "founding": Founding(
        "shop", Announcement(("a", "b"), {"a": Founder(A, True, Span(1, 2))}, confirms=True)
    ),
    "known": Known({"a": "10.0.0.1:7001"}),
    "grouped message": Grouped(1, MESSAGE),
    "grouped digest": Grouped(1, DIGEST),
    "grouped ended": Grouped(1, Ended(B, 7)),
    "grouped views": Grouped(1, view_values.FRAME),
    "grouped ask": Grouped(1, Ask(1, b"question")),
    "grouped copy": Grouped(1, Copy(1, Span(1, 2))),
    "grouped admit": Grouped(1, Admit(1, B, ("c",), False, Span(1, 2))),
    "grouped offer": Grouped(1, Offer(1, 1000)),
    "grouped unable": Grouped(1, Unable(1, True, "not now")),
    "grouped fetch": Grouped(1, Fetch(1, 500)),
    "grouped part": Grouped(1, Part(1, 500, b"piece")),
    "grouped whisper": Grouped(1, WhisperFrame(7, "cursors", 30_000, b"payload")),
}

CUT = Cut(5, How.LEFT)
OPERATIONS = {
    "join": Join("c.0123456789abcdef0", (B,), False, {A: 3, B: 7}),
    "sweep": Sweep(((B, CUT),)),
    "settled": Settled(B, 7),
    "reads": Reads(Span(1, 2)),
}

EFFECTS: list[effects.Effect] = [
    effects.One(b"s", effects.RedisType.SET, (b"x", b"y")),
    effects.Reg(b"t", effects.RedisType.STRING, (effects.WHOLE, b"text")),
    effects.Inc(b"n", effects.RedisType.STRING, effects.WHOLE, -(10**30)),
    effects.KillKey(b"k"),
    effects.KillSlots(b"s", effects.RedisType.SET, (b"x",)),
    effects.Reg(b"h", effects.RedisType.HASH, (b"f", b"text", b"g", b"5")),
    effects.Inc(b"h", effects.RedisType.HASH, b"g", 10**30),
    effects.KillSlots(b"h", effects.RedisType.HASH, (b"f",)),
    effects.Inc(b"n", effects.RedisType.STRING, effects.WHOLE, Fraction(-5, 2)),
    effects.KillAll(None),
    effects.KillAll(0),
    effects.KillAll(3),
    effects.Replace(b"r", 1 << 40),
    effects.Assign(b"a", b"text"),
    effects.Assign(b"a", b"text", 1 << 40),
]
STORED = metadata.StoredState(
    group="shop",
    name="a",
    incarnation=A,
    members=("a", "b"),
    counter=3,
    vector={A: 3, B: 7},
    context=(Dot(A, 3), Dot(B, 7)),
    stable={A: 2},
    clock=1 << 40,
    reported=(Dot(A, 2),),
    order=10,
    level=1,
)
LOCAL_FILE = LocalFile(
    group="shop",
    name="a",
    incarnation=A,
    run_id="0" * 40,
    role="master",
    durability="always",
    level=1,
    server="redis://127.0.0.1:6379",
    addresses={"b": "10.0.0.2:7001"},
)

NONCE = bytes(range(16))
HEADER = journal_format.Header(NONCE, 3, (1, 2), 0, "it is a copy")
STATE = replace(
    GroupEngine.found(A, [B]).state(), record=view_values.RECORD, wants=view_values.WANTS
)
BATCH = JournalBatch(
    happened=(MESSAGE, (Dot(A, 2), Dot(B, 7))),
    context=(Dot(A, 3),),
    life=Life(True, (A,), {"b": "10.0.0.2:7001"}),
)
ADMISSION = GroupEngine.found(A, [B]).admit(
    "c.0123456789abcdef0", covered={A: 0, B: 0}, copied_from=A, reads=Span(1, 1)
)
SAVED = Saved("shop", "a", A, A, False, STATE, b"application", None, Life())


class Recorded(NamedTuple):
    """What is compared: the number of the format, and bytes by name."""

    number: object
    bytes: Mapping[str, bytes]


def wire() -> Recorded:
    hello = Hello(group="g", name="a", incarnation=A, process=b"p")
    return Recorded(
        [hello.oldest, hello.version],
        {name: encode(frame) for name, frame in FRAMES.items()}
        | {
            f"operation {name}": encode_operation(operation)[1]
            for name, operation in OPERATIONS.items()
        }
        | {
            "admission": pack_entry(
                JoinerEntry(
                    ADMISSION.incarnation,
                    A,
                    ADMISSION.state,
                    (Happened(Tag(Dot(A, 3), (), {}), b"x"),),
                )
            )
        },
    )


def journal() -> Recorded:
    header = journal_format.pack_header(HEADER)
    frame = journal_format.pack_frame(
        HEADER,
        len(header),
        journal_format.JournalFrameKind.RECORDS,
        journal_format.pack_records([b"a", b"bc"]),
    )
    return Recorded(
        journal_format.FORMAT,
        {
            "identity": journal_format.pack_identity(NONCE),
            "slot": journal_format.pack_slot(journal_format.JournalProof(NONCE, 7, 3, 150))[1],
            "header": header,
            "frame": frame,
            "batch": pack_batch(BATCH),
            "snapshot": pack_saved(SAVED),
        },
    )


def gateway() -> Recorded:
    return Recorded(
        [metadata.FORMAT, LOCAL_FILE_FORMAT, list(effects.READS)],
        {
            "payload": effects.encode(1 << 40, EFFECTS),
            "state": STORED.encode(),
            "store": metadata.entry(10, MESSAGE)[1],
            "local file": json.dumps(asdict(LOCAL_FILE), indent=1).encode(),
        },
    )


def datatypes() -> Recorded:
    """An object of each type after some operations, of which the first half is stable."""
    found = {
        "operations": packed([["x", "set_aw", "add", 1], ["n", ["number", 2], "assign", "5"]]),
        "token": str(token("shop", [Dot(A, 3), Dot(B, 7)])).encode(),
    }
    versions = {}
    for case in CASES:
        versions[case.crdt.TYPE] = case.crdt.VERSION
        crdt = case.crdt()
        crdt.site = Site("a", HLC(lambda: 1_700_000_000_000))
        tags = []
        # The last one of many undoes the others.
        for name, *arguments in [*case.calls, case.calls[0]]:
            with suppress(CrdtcastError):
                operation = crdt.prepare(name, *arguments)
                tags.append(Tag(Dot("a", len(tags) + 1), (), {"a": len(tags)}))
                crdt.effect(operation, tags[-1])
        for tag in tags[: len(tags) // 2]:
            crdt.stable(tag)
        found[f"snapshot {case.crdt.TYPE}"] = crdt.snapshot()
    return Recorded(versions, found)


ALL: Mapping[str, Callable[[], Recorded]] = {
    "wire": wire,
    "journal": journal,
    "gateway": gateway,
    "datatypes": datatypes,
}


def as_text(recorded: Recorded) -> dict[str, Any]:
    """What a file holds."""
    return {
        "number": recorded.number,
        "bytes": {name: raw.hex() for name, raw in sorted(recorded.bytes.items())},
    }
