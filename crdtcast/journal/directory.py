"""The file layer under a journal: the few operations on a directory, each synced separately.

Two implementations: the real one below, and the one of `crdtcast.testing`, which loses at a crash what was not synced.
"""

import array
import contextlib
import os
import sys
from pathlib import Path
from typing import Protocol

from crdtcast.exceptions import ConfigurationError
from crdtcast.journal.atomic_file import sync_directory

if sys.platform != "win32":
    import fcntl

_GET_GENERATION = 0x80087601
"""FS_IOC_GETVERSION of Linux: a random number that the file system gives each new inode."""


class OpenFile(Protocol):
    """A file that is written at offsets."""

    def write(self, offset: int, content: bytes) -> None:
        """Write all of it, or raise OSError."""
        ...

    def sync(self) -> None:
        """Make what was written survive a power failure."""
        ...

    def lock(self) -> bool:
        """Lock it for this process, until `close` or the end of the process. Returns whether that succeeded."""
        ...

    @property
    def identity(self) -> tuple[int, int]:
        """Two numbers that no copy of the file shares, and that no writing changes."""
        ...

    def close(self) -> None: ...


class Directory(Protocol):
    """The files of one journal. Its methods raise OSError if the operation fails."""

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...

    def create(self, name: str) -> OpenFile:
        """A new, empty file; it replaces an old one."""
        ...

    def open(self, name: str) -> OpenFile:
        """The file with its content, or a new one."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, name: str) -> None: ...

    def sync(self) -> None:
        """Make created, changed and removed names survive a power failure."""
        ...


class RealFile:
    """A file of the operating system."""

    def __init__(self, path: Path, flags: int) -> None:
        self._descriptor = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, offset: int, content: bytes) -> None:
        left = memoryview(content)
        while left:
            written = os.pwrite(self._descriptor, left, offset)
            offset += written
            left = left[written:]

    def sync(self) -> None:
        if sys.platform == "darwin":
            fcntl.fcntl(self._descriptor, fcntl.F_FULLFSYNC)  # fsync leaves it in the disk's cache
        else:
            os.fdatasync(self._descriptor)

    def lock(self) -> bool:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @property
    def identity(self) -> tuple[int, int]:
        generation = array.array("l", [0])
        if sys.platform == "linux":
            # Some file systems have none: then a copy on another file system may, by chance, look like the original.
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._descriptor, _GET_GENERATION, generation, True)
        return os.fstat(self._descriptor).st_ino, generation[0] & 0xFFFFFFFFFFFFFFFF

    def close(self) -> None:
        os.close(self._descriptor)


class RealDirectory:
    """A directory of the operating system, created if it is missing."""

    def __init__(self, path: Path) -> None:
        if sys.platform == "win32":
            raise ConfigurationError(
                "a journal on disk needs Linux or macOS: omit it; the member then works in memory"
            )
        self._path = path
        missing = [p for p in (path, *path.parents) if not p.exists()]
        for new in reversed(missing):
            new.mkdir(mode=0o700, exist_ok=True)
            sync_directory(new.parent)

    def names(self) -> list[str]:
        return sorted(os.listdir(self._path))

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def create(self, name: str) -> RealFile:
        return RealFile(self._path / name, os.O_TRUNC)

    def open(self, name: str) -> RealFile:
        return RealFile(self._path / name, 0)

    def rename(self, old: str, new: str) -> None:
        os.replace(self._path / old, self._path / new)

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def sync(self) -> None:
        sync_directory(self._path)

    def __str__(self) -> str:
        return str(self._path)
