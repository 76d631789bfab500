"""A file journal on a real disk: what it recognises, and what it refuses."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crdtcast.exceptions import ConfigurationError, JournalError, UnusableInputError
from crdtcast.journal import FileJournal, MemoryJournal, Recovered
from crdtcast.testing.disk import Disk
from crdtcast.testing.journals import check_journal
from tests.effort import examples


def write(path: Path, *batches: bytes, snapshot: bytes | None = b"state") -> None:
    journal = FileJournal(path)
    journal.load()
    if snapshot is not None:
        journal.compact(snapshot)
        journal.sync()
    for batch in batches:
        journal.append([batch])
        journal.sync()
    journal.close()


def load(path: Path, *, trusted: bool = False) -> Recovered:
    journal = FileJournal(path, trusted=trusted)
    try:
        return journal.load()
    finally:
        journal.close()


def segment(path: Path) -> Path:
    (found,) = path.glob("journal-*")
    return found


def test_file_journal_passes_the_journal_contract(tmp_path: Path) -> None:
    check_journal(lambda: FileJournal(tmp_path / "new" / "node"), seed=1)


def test_memory_journal_passes_the_journal_contract() -> None:
    journal = MemoryJournal()
    check_journal(lambda: journal, seed=2)
    assert MemoryJournal.volatile and not FileJournal.volatile


class Forgetful(MemoryJournal):
    def sync(self) -> None:
        self._appended = self._appended[:-1]
        super().sync()


def test_journal_contract_detects_a_forgetful_journal() -> None:
    journal = Forgetful()
    with pytest.raises(AssertionError):
        check_journal(lambda: journal)


def test_torn_tail_is_cut(tmp_path: Path) -> None:
    write(tmp_path, b"a", b"b")
    with open(segment(tmp_path), "ab") as file:
        file.write(b"\xc2\xd7\xca\x57half a frame")
    found = load(tmp_path)
    assert (found.records, found.damage) == ((b"a", b"b"), "")


def cut(size: int) -> Callable[[Path], None]:
    return lambda path: os.truncate(segment(path), segment(path).stat().st_size - size)


def flip(path: Path) -> None:
    file = segment(path)
    raw = bytearray(file.read_bytes())
    raw[-100] ^= 1
    file.write_bytes(raw)


def flip_under_an_old_proof(path: Path) -> None:
    flip(path)
    proof = path / "proof"
    raw = proof.read_bytes()
    with open(proof, "r+b") as file:
        file.write(raw[:512].ljust(len(raw), b"\0"))


def newer_lost(path: Path) -> None:
    saved = segment(path).read_bytes()
    name = segment(path).name
    write(path, b"newer")
    segment(path).unlink()
    (path / name).write_bytes(saved)


def copied(path: Path) -> None:
    shutil.copytree(path, path.parent / "copy", copy_function=shutil.copy2)
    shutil.rmtree(path)
    (path.parent / "copy").rename(path)


def without_proof(path: Path) -> None:
    (path / "proof").unlink()


def broken_proof(path: Path) -> None:
    with open(path / "proof", "r+b") as file:
        file.seek(20)
        file.write(b"x")


DAMAGES = [
    (cut(1), 2, "was synced"),
    (cut(200), 0, "was synced"),
    (flip, 1, "was synced"),
    (flip_under_an_old_proof, 1, "damaged"),
    (newer_lost, 3, "is missing"),
    (copied, 3, "a copy"),
    (without_proof, 3, "the proof"),
    (broken_proof, 3, "the proof"),
]


@pytest.mark.parametrize(("harm", "left", "damage"), DAMAGES)
def test_damage_of_a_journal_is_recognised(
    tmp_path: Path, harm: Callable[[Path], None], left: int, damage: str
) -> None:
    path = tmp_path / "node"
    write(path, b"a" * 40, b"b" * 40, b"c" * 40)
    harm(path)
    found = load(path)
    assert damage in found.damage
    assert found.snapshot == b"state"
    assert len(found.records) == left
    # That lasts until there is a new snapshot, whatever is appended.
    journal = FileJournal(path)
    assert journal.load().damage == found.damage
    journal.append([b"more"])
    journal.sync()
    journal.close()
    assert load(path).damage == found.damage
    journal = FileJournal(path)
    journal.load()
    journal.compact(b"a new life")
    journal.sync()
    journal.close()
    assert load(path) == Recovered(b"a new life", (), run=load(path).run - 1)


def test_damaged_segment_is_kept_for_inspection(tmp_path: Path) -> None:
    write(tmp_path, b"a", b"b")
    raw = segment(tmp_path).read_bytes()
    cut(1)(tmp_path)
    load(tmp_path)
    (kept,) = tmp_path.glob("damaged-*")
    assert kept.read_bytes() == raw[:-1]


def test_copied_journal_loads_if_the_operator_trusts_it(tmp_path: Path) -> None:
    path = tmp_path / "node"
    write(path, b"a")
    copied(path)
    assert load(path, trusted=True).damage == ""
    assert load(path).damage == ""


def test_moved_directory_is_the_same_journal(tmp_path: Path) -> None:
    write(tmp_path / "node", b"a")
    (tmp_path / "node").rename(tmp_path / "elsewhere")
    assert load(tmp_path / "elsewhere").damage == ""


def test_lost_beginning_is_refused(tmp_path: Path) -> None:
    write(tmp_path, b"a")
    with open(segment(tmp_path), "r+b") as file:
        file.write(b"x")
    with pytest.raises(UnusableInputError, match=r"move the directory away.*replace=True"):
        load(tmp_path)


def test_lost_segments_are_no_new_journal(tmp_path: Path) -> None:
    write(tmp_path, b"a")
    segment(tmp_path).unlink()
    with pytest.raises(UnusableInputError, match="is missing"):
        load(tmp_path)


@pytest.mark.parametrize("name", ["proof", "segment"])
def test_newer_format_is_refused_and_left_alone(tmp_path: Path, name: str) -> None:
    write(tmp_path, b"a")
    file = tmp_path / "proof" if name == "proof" else segment(tmp_path)
    raw = file.read_bytes()
    with open(file, "r+b") as opened:
        opened.seek(16)
        opened.write((2).to_bytes(2, "big"))
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(
        ConfigurationError, match=r"format 2.*start the newer program that wrote it"
    ):
        load(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    file.write_bytes(raw)
    assert load(tmp_path).damage == ""


HOLD = """
import sys
from crdtcast.journal import FileJournal
journal = FileJournal(sys.argv[1])
journal.load()
journal.append([b"mine"])
journal.sync()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.process
def test_second_process_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(ConfigurationError, match="in use by another process"):
            load(tmp_path)
        process.kill()
        process.wait()
    assert load(tmp_path).records == (b"mine",)


def test_journal_path_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        JournalError,
        match=r"cannot be opened: (.*\bdirectory|File).*: use a directory that this user may write to",
    ):
        load(tmp_path / "file")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EIO, "repair the disk"),
        (errno.EROFS, "may write to"),
    ],
)
def test_each_write_failure_names_a_remedy(
    number: int, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(JournalError, match=f"{remedy}, and start it again"):
        load(tmp_path)


def test_new_directories_are_synced_into_their_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noting)
    write(tmp_path / "a" / "b")
    directories = tmp_path, tmp_path / "a", tmp_path / "a" / "b"
    assert {path.stat().st_ino for path in directories} <= synced


# Fuzzing: whatever the files hold


@st.composite
def mangled(draw: st.DrawFn) -> dict[str, bytes]:
    """The files of a journal, with some bytes replaced, cut or added; or made up altogether."""
    disk = Disk()
    journal = FileJournal("node", directory=lambda _: disk)
    journal.load()
    for batch in draw(st.lists(st.lists(st.binary(max_size=30), max_size=3), max_size=3)):
        journal.append(batch)
        if draw(st.integers(0, 4)) == 0:
            journal.compact(b"snapshot")
        journal.sync()
    files = {name: disk.read(name) for name in disk.names()}
    for name in draw(st.lists(st.sampled_from(sorted(files)), min_size=1, max_size=2)):
        raw = files[name]
        at = draw(st.integers(0, len(raw)))
        piece = draw(st.one_of(st.binary(max_size=40), st.sampled_from([raw[:at], raw[-60:]])))
        files[name] = raw[:at] + piece + raw[at + draw(st.integers(0, 60)) :]
    if draw(st.integers(0, 5)) == 0:
        files[draw(st.sampled_from(["proof", "journal-000000000009"]))] = draw(st.binary())
    return files


@settings(max_examples=examples(150))
@given(mangled())
def test_any_bytes_are_refused_clearly_or_give_a_valid_beginning(files: dict[str, bytes]) -> None:
    disk = Disk()
    for name, raw in files.items():
        disk.create(name).write(0, raw)
    journal = FileJournal("node", directory=lambda _: disk)
    try:
        found = journal.load()
    except (ConfigurationError, UnusableInputError) as error:
        assert "\n" not in str(error)
        return
    journal.append([b"more"])
    journal.sync()
    journal.close()
    after = FileJournal("node", directory=lambda _: disk).load()
    assert (after.snapshot, after.records) == (found.snapshot, (*found.records, b"more"))
    assert after.damage == found.damage


def test_files_of_one_journal_are_no_beginning_of_another(tmp_path: Path) -> None:
    write(tmp_path / "a", b"a")
    write(tmp_path / "b", b"b")
    raw = segment(tmp_path / "a").read_bytes()
    other = segment(tmp_path / "b")
    other.write_bytes(other.read_bytes() + raw[100:])
    assert load(tmp_path / "b").records == (b"b",)
    other = segment(tmp_path / "b")
    other.write_bytes(raw)
    assert "belongs to another journal" in load(tmp_path / "b").damage
