"""A journal in a directory: `journal-N`, of which only the newest counts, and `proof`, how far that was synced.

Rules. A segment is never cut or repaired: every start and every compaction begins the next one with all that counts,
syncs it, and only then gives it its name. A frame is written after the one before it was synced. A file that could not
be written or synced is never tried again.
"""

import errno
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from crdtcast.exceptions import ConfigurationError, JournalError, UnusableInputError
from crdtcast.journal.directory import Directory, OpenFile, RealDirectory
from crdtcast.journal.format import (
    NONCE_BYTES,
    FormatError,
    Header,
    JournalFrameKind,
    JournalProof,
    check_version,
    header_size,
    pack_frame,
    pack_header,
    pack_identity,
    pack_records,
    pack_slot,
    read_frames,
    unpack_header,
    unpack_proof,
)
from crdtcast.journal.interface import Journal, Recovered

_PROOF = "proof"
_NEW = "journal.new"
_ROOM = "free some space"
_ELSEWHERE = "use a directory that this user may write to"
_REMEDIES = {
    errno.ENOSPC: _ROOM,
    errno.EDQUOT: _ROOM,
    errno.EFBIG: _ROOM,
    errno.EACCES: _ELSEWHERE,
    errno.EPERM: _ELSEWHERE,
    errno.EROFS: _ELSEWHERE,
    errno.ENOTDIR: _ELSEWHERE,
    errno.EEXIST: _ELSEWHERE,
}
_SEGMENT = re.compile(r"journal-(\d{12})")


class FileJournal(Journal):
    """A journal on disk: `sync` returns when the disk has the data.

    path: a separate directory, created if missing.
    trusted: the operator's word that no other process continues from this journal, or from its original, and that
        nothing newer exists. Then it counts as intact in any case.
    directory: another file layer, for tests.
    """

    volatile: ClassVar[bool] = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        trusted: bool = False,
        directory: Callable[[Path], Directory] = RealDirectory,
    ) -> None:
        self.path: Path = Path(path)
        self._trusted = trusted
        self._make_directory = directory
        self._directory: Directory | None = None
        self._proof_file: OpenFile | None = None
        self._segment: OpenFile | None = None
        self._proof = JournalProof(b"")
        self._header = Header(b"", 0, (0, 0), 0)
        self._offset = 0
        self._snapshot_end = 0
        self._failed: OSError | None = None
        self._noting = threading.Lock()
        self._syncs = 0
        self._sync_seconds = 0.0
        self._appended: list[bytes] = []
        self._compacted: bytes | None = None

    # Loading

    def load(self) -> Recovered:
        """See `Journal.load`."""
        with self._saying("opened"):
            self._directory = directory = self._make_directory(self.path)
            self._proof_file = directory.open(_PROOF)
            try:
                if not self._proof_file.lock():
                    raise ConfigurationError(
                        f"the journal in {self.path} is in use by another process: stop that "
                        "process, or use another directory"
                    )
                return self._load(directory)
            except BaseException:
                self.close()
                raise

    def _load(self, directory: Directory) -> Recovered:
        raw_proof = directory.read(_PROOF)
        check_version(raw_proof, f"the journal in {self.path}")
        numbers = _segments(directory)
        proof, damage = _read_proof(raw_proof)
        if not numbers:
            if proof is not None and proof.segment:
                raise self._unusable(f"{_name(proof.segment)} is missing")
            self._begin_anew(directory)
            return Recovered(None, (), run=self._header.number)
        name = _name(numbers[-1])
        raw = directory.read(name)
        check_version(raw, f"the journal in {self.path}")
        try:
            header = unpack_header(raw)
            frames = read_frames(header, raw)
        except FormatError as error:
            raise self._unusable(f"of {name}, {error}") from None
        assert self._proof_file is not None
        identity = self._proof_file.identity
        damage = header.damage or damage
        if not damage and (proof is None or proof.nonce != header.nonce):
            damage = "the proof of its last sync belongs to another journal"
        damage = damage or _missing(header, proof, frames.end)
        if not damage and frames.beyond:
            damage = f"{name} is damaged after {frames.end:,} bytes"
        if not damage and header.identity != identity:
            damage = "it is a copy, or was restored from one"
        if self._trusted:
            damage = ""
        newest = max(numbers[-1], header.number, proof.segment if proof else 0)
        self._proof = JournalProof(header.nonce, proof.serial if proof else 0)
        self._header = Header(header.nonce, newest, identity, 0, damage)
        self._next_segment(directory, frames.snapshot, frames.records, keep=bool(damage))
        if proof is None or proof.nonce != header.nonce:
            # Not before: until the segment itself says that it is damaged, the old proof must.
            self._write_proof(directory, header.nonce)
            self._prove()
        return Recovered(frames.snapshot, frames.records, damage, self._header.number)

    def _begin_anew(self, directory: Directory) -> None:
        self._proof = self._write_proof(directory, secrets.token_bytes(NONCE_BYTES))
        assert self._proof_file is not None
        self._header = Header(self._proof.nonce, 0, self._proof_file.identity, 0)
        self._next_segment(directory, None, ())

    def _write_proof(self, directory: Directory, nonce: bytes) -> JournalProof:
        """Write a proof of nothing yet into the locked file."""
        assert self._proof_file is not None
        self._proof_file.write(0, pack_identity(nonce))
        self._proof_file.sync()
        directory.sync()
        return JournalProof(nonce)

    def _unusable(self, what: str) -> UnusableInputError:
        return UnusableInputError(
            f"no part of the journal in {self.path} is usable ({what}): move the directory away, "
            "and let the node join again as its own replacement (replace=True; --replaces with "
            "its name); data that only this node had is lost"
        )

    # Writing

    def append(self, batch: Sequence[bytes]) -> None:
        with self._noting:
            self._appended += batch

    def compact(self, snapshot: bytes) -> None:
        with self._noting:
            self._compacted, self._appended = snapshot, []

    def sync(self) -> None:
        with self._noting:
            snapshot, self._compacted = self._compacted, None
            appended, self._appended = self._appended, []
        began = time.monotonic()
        with self._saying("written"):
            if self._failed is not None:
                raise self._failed
            assert self._directory is not None and self._segment is not None, "load it first"
            try:
                if snapshot is not None:
                    self._next_segment(self._directory, snapshot, appended, damage="")
                elif appended:
                    content = pack_records(appended)
                    frame = pack_frame(
                        self._header, self._offset, JournalFrameKind.RECORDS, content
                    )
                    self._segment.write(self._offset, frame)
                    self._segment.sync()
                    self._offset += len(frame)
                    self._prove()
            except OSError as error:
                # After a failed sync it is unknown what of it is on the disk, and the next sync may
                # succeed without it.
                self._failed = error
                raise
        self._syncs += 1
        self._sync_seconds += time.monotonic() - began

    def _next_segment(
        self,
        directory: Directory,
        snapshot: bytes | None,
        records: Sequence[bytes],
        *,
        damage: str | None = None,
        keep: bool = False,
    ) -> None:
        """Continue in a new segment that begins with these. It counts once it has its name.

        keep: rename the segments before, instead of deleting them, so that they can be examined.
        """
        before, header = self._segment, self._header
        damage = header.damage if damage is None else damage
        number = header.number + 1
        place = Header(header.nonce, number, header.identity, 0, damage)
        offset = header_size(damage)
        frames: list[bytes] = []
        if snapshot is not None:
            frames.append(pack_frame(place, offset, JournalFrameKind.SNAPSHOT, snapshot))
            offset += len(frames[-1])
        self._snapshot_end = offset
        if records:
            frames.append(
                pack_frame(place, offset, JournalFrameKind.RECORDS, pack_records(records))
            )
            offset += len(frames[-1])
        self._header = replace(place, base=offset)
        self._segment = segment = directory.create(_NEW)
        segment.write(0, b"".join((pack_header(self._header), *frames)))
        segment.sync()
        directory.rename(_NEW, _name(number))
        directory.sync()
        self._offset = offset
        self._prove()
        if before is not None:
            before.close()
        for older in _segments(directory):
            if older < number and keep:
                directory.rename(_name(older), f"damaged-{older:012}")
            elif older < number:
                directory.remove(_name(older))

    def _prove(self) -> None:
        """Note how far it is synced. The note itself is not synced: it may be old, but is never wrong."""
        self._proof = JournalProof(
            self._proof.nonce, self._proof.serial + 1, self._header.number, self._offset
        )
        assert self._proof_file is not None
        self._proof_file.write(*pack_slot(self._proof))

    def close(self) -> None:
        for file in (self._segment, self._proof_file):
            if file is not None:
                file.close()
        self._segment = self._proof_file = None

    @property
    def grown(self) -> int:
        return self._offset - self._snapshot_end

    def measures(self) -> dict[str, float]:
        """bytes: size of the segment that counts; grown: bytes after its snapshot; syncs: since the start;
        sync_seconds: their total time.
        """
        return {
            "bytes": self._offset,
            "grown": self.grown,
            "syncs": self._syncs,
            "sync_seconds": self._sync_seconds,
        }

    @contextmanager
    def _saying(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            remedy = _REMEDIES.get(error.errno or 0, "repair the disk")
            raise JournalError(
                f"the journal in {self.path} cannot be {what}: {error.strerror or error}; this "
                f"node sent nothing that is not on the disk: {remedy}, and start it again"
            ) from error


def _name(number: int) -> str:
    return f"journal-{number:012}"


def _segments(directory: Directory) -> list[int]:
    return sorted(int(m[1]) for name in directory.names() if (m := _SEGMENT.fullmatch(name)))


def _read_proof(raw: bytes) -> tuple[JournalProof | None, str]:
    try:
        return unpack_proof(raw), ""
    except FormatError as error:
        return None, str(error)


def _missing(header: Header, proof: JournalProof | None, end: int) -> str:
    """What was synced and is missing now, as far as that is known."""
    if proof is not None and proof.segment > header.number:
        return f"{_name(proof.segment)}, which is newer, is missing"
    synced = header.base
    if proof is not None and proof.segment == header.number:
        synced = max(synced, proof.offset)
    if end < synced:
        return (
            f"{_name(header.number)} is readable up to byte {end:,}, but was synced up to "
            f"{synced:,}"
        )
    return ""
