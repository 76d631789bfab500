"""Bytes that were written once are read, and written again, as long as their format has its number.

A test that fails here has changed a format. Raise its number (docs/formats.md says which, and what that means for
upgrades), then record anew with `CRDTCAST_RECORD=1 python3 dev.py test -n 0 tests/formats`.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from crdtcast.adapters.redis.store import effects, metadata
from crdtcast.adapters.redis.store.local_file import LocalFile
from crdtcast.datatypes.canonical import canonical
from crdtcast.engine.operations import decode as decode_operation
from crdtcast.group.status import as_json
from crdtcast.integrations.prometheus import page
from crdtcast.journal import format as journal_format
from crdtcast.journal.saved import unpack_batch, unpack_saved
from crdtcast.replica.session import Token
from crdtcast.wire.frames import FrameKind, decode
from crdtcast.wire.state import pack_state, unpack_entry
from tests.datatypes.test_catalogue import CASES
from tests.formats import samples
from tests.operations.test_views import STATUS

DATA = Path(__file__).parents[1] / "data" / "formats"


def recorded(name: str) -> dict[str, Any]:
    file = DATA / f"{name}.json"
    if os.environ.get("CRDTCAST_RECORD"):
        text = samples.as_text(samples.ALL[name]())
        file.write_text(json.dumps(text, indent=1, ensure_ascii=True) + "\n")
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def old_bytes(name: str) -> dict[str, bytes]:
    return {key: bytes.fromhex(raw) for key, raw in recorded(name)["bytes"].items()}


def test_metric_and_status_names_match_the_recorded_ones() -> None:
    """More may come; what goes, or is called something else, is said in the changelog."""
    file = DATA / "operators.json"
    metrics = {family.name for family in text_string_to_metric_families(page([STATUS]).decode())}
    now = {
        "metrics": sorted(name for name in metrics if name.startswith("crdtcast_")),
        "status": sorted(as_json(STATUS)),
        "member": sorted(as_json(STATUS.members[0])),
        "link": sorted(as_json(STATUS.links["us"])),
    }
    if os.environ.get("CRDTCAST_RECORD"):
        file.write_text(json.dumps(now, indent=1) + "\n")
    assert now == json.loads(file.read_text())


@pytest.mark.parametrize("name", samples.ALL)
def test_program_writes_the_recorded_bytes_of_each_format(name: str) -> None:
    assert samples.as_text(samples.ALL[name]()) == recorded(name)


def test_every_kind_of_frame_is_recorded_and_read() -> None:
    kinds = set()
    found = old_bytes("wire")
    for name, frame in samples.FRAMES.items():
        body = found[name][4:]
        assert decode(body) == frame, name
        kinds.add(name.rpartition(" ")[2].upper())
    assert kinds | {"GROUPED"} == set(FrameKind.__members__)
    for name, operation in samples.OPERATIONS.items():
        kind = samples.encode_operation(operation)[0]
        assert decode_operation(kind, found[f"operation {name}"]) == operation
    entry = unpack_entry(found["admission"])
    assert (entry.incarnation, entry.since[0].payload) == (samples.C, b"x")
    assert pack_state(entry.state) == pack_state(samples.ADMISSION.state)


def test_a_journal_is_read() -> None:
    found = old_bytes("journal")
    header = journal_format.unpack_header(found["header"])
    assert header == samples.HEADER
    assert journal_format.read_frames(header, found["header"] + found["frame"]).records == (
        b"a",
        b"bc",
    )
    assert unpack_batch(found["batch"], "it") == samples.BATCH
    assert unpack_saved(found["snapshot"], "it") == samples.SAVED


def test_recorded_gateway_bytes_are_read(tmp_path: Path) -> None:
    found = old_bytes("gateway")
    assert effects.decode(found["payload"]) == (1 << 40, samples.EFFECTS)
    assert metadata.StoredState.decode(found["state"]) == samples.STORED
    store = {metadata.store_field(samples.MESSAGE.dot): found["store"]}
    assert metadata.decode_store(store) == [samples.MESSAGE]
    (tmp_path / "a.json").write_bytes(found["local file"])
    assert LocalFile.read(tmp_path, "a") == samples.LOCAL_FILE


@pytest.mark.parametrize("case", CASES, ids=[case.crdt.TYPE for case in CASES])
def test_an_object_of_each_type_is_read(case: Any) -> None:
    raw = old_bytes("datatypes")[f"snapshot {case.crdt.TYPE}"]
    back = case.crdt.restore(raw)
    assert back.snapshot() == raw
    assert canonical(back.value) == canonical(case.crdt.restore(raw).value)


def test_a_session_token_is_read() -> None:
    text = old_bytes("datatypes")["token"].decode()
    assert str(Token.parse(text)) == text
