"""What a newer program has written is refused as that, and is left as it was: it is not damaged."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import msgpack
import pytest

from crdtcast.adapters.redis.store.local_file import FORMAT, LocalFile
from crdtcast.adapters.redis.store.metadata import StoredState
from crdtcast.exceptions import ConfigurationError
from crdtcast.journal import FileJournal
from tests.formats.samples import LOCAL_FILE, STORED


def journal(directory: Path) -> Path:
    path = directory / "journal"
    written = FileJournal(path)
    written.load()
    written.append([b"what only this node has"])
    written.sync()
    written.close()
    (segment,) = path.glob("journal-*")
    raw = segment.read_bytes()
    segment.write_bytes(
        raw[:16] + (99).to_bytes(2, "big") + raw[18:] + b"in a way that is not known yet"
    )
    return path


def gateway_file(directory: Path) -> Path:
    path = directory / "a.json"
    later = {**asdict(LOCAL_FILE), "format": 99, "field": "that came later"}
    path.write_text(json.dumps(later))
    return path


CASES: list[tuple[Callable[[Path], Path], Callable[[Path], object]]] = [
    (journal, lambda path: FileJournal(path).load()),
    (gateway_file, lambda path: LocalFile.read(path.parent, "a")),
]


@pytest.mark.parametrize(("made", "read"), CASES, ids=lambda each: getattr(each, "__name__", ""))
def test_newer_file_is_refused_and_left_unchanged(
    made: Callable[[Path], Path], read: Callable[[Path], object], tmp_path: Path
) -> None:
    path = made(tmp_path)
    files = [path] if path.is_file() else sorted(path.iterdir())
    before = [file.read_bytes() for file in files]
    with pytest.raises(
        ConfigurationError, match=r"has format 99, .* start the newer program that wrote it"
    ):
        read(path)
    assert [file.read_bytes() for file in files] == before


def test_newer_metadata_is_told_apart_from_foreign_data() -> None:
    fields = msgpack.unpackb(STORED.encode())
    newer = msgpack.packb({**fields, "format": 99, "field": "that came later"})
    with pytest.raises(
        ConfigurationError, match=r"metadata has format 99, .* start the newer program"
    ):
        StoredState.decode(newer)
    with pytest.raises(ConfigurationError, match="that crdtcast did not write"):
        StoredState.decode(b"something else")


def test_local_file_of_a_known_format_can_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"format": FORMAT, "level": 1}))
    with pytest.raises(ConfigurationError, match="is damaged"):
        LocalFile.read(tmp_path, "a")


def test_gateway_files_are_private_to_the_user(tmp_path: Path) -> None:
    LOCAL_FILE.write(tmp_path / "state")
    written = tmp_path / "state" / "a.json"
    assert [path.stat().st_mode & 0o777 for path in (written, written.parent)] == [0o600, 0o700]
