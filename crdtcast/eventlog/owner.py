"""The process that writes a replica's event log: the one that opened it last.

A gateway that hangs may be followed by another one on the same directory, which reads where the log ends and continues
there. Lines that the first one still holds must not follow these, even if it wakes up before its server tells it that
it is not the writer any more.
"""

import contextlib
import errno
import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_TAKING_PATIENCE = 2.0
_WRITING_PATIENCE = 0.25
"""Seconds to wait for the lock. A process holds it for long only while it takes the log, and has announced that before,
or if it was stopped then. A stopped one must not hold up the next: the content of the file says who owns the log."""


class LogOwner:
    """A file next to the segments that names the owner, and whose lock lets one process at a time write.

    If the disk cannot hold that file, every process may write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._token = secrets.token_hex(16).encode()
        self._named = False
        self._patience = _WRITING_PATIENCE

    @contextmanager
    def taking(self) -> Iterator[None]:
        """This process becomes the owner; no other process writes during the block."""
        with _locked(self._path, os.O_RDWR | os.O_CREAT, _TAKING_PATIENCE) as (file, _):
            if file is not None:
                with contextlib.suppress(OSError):
                    self._named = os.pwrite(file, self._token, 0) == len(self._token)
            yield

    @contextmanager
    def writing(self) -> Iterator[bool]:
        """Whether this process is the owner, and remains it during the block."""
        with _locked(self._path, os.O_RDONLY, self._patience) as (file, has_lock):
            self._patience = _WRITING_PATIENCE if has_lock else 0.0  # wait only once
            named = None if file is None else os.pread(file, len(self._token), 0)
            yield not self._named or named is None or named == self._token


@contextmanager
def _locked(path: Path, flags: int, patience: float) -> Iterator[tuple[int | None, bool]]:
    """The file, or None if it cannot be opened; and whether it could be locked."""
    try:
        file = os.open(path, flags | os.O_CLOEXEC, 0o600)
    except OSError:
        file = -1
    if file < 0:
        yield None, False
        return
    try:
        yield file, _lock(file, patience)
    finally:
        os.close(file)  # which unlocks it


def _lock(file: int, patience: float) -> bool:
    """Wait for the lock, or go on without it: some network file systems have no locks."""
    if sys.platform == "win32":
        return False
    until = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES) or time.monotonic() >= until:
                return False
            time.sleep(0.005)
