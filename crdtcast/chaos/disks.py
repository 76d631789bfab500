"""Disks that can be full.

A small disk is a file system in memory (tmpfs): a write to it may fail with ENOSPC, also in the middle of a record. It
needs Linux, and a mount namespace: root may have one, and so may every user who may have a user namespace. Elsewhere a
limit of the process stands for it.
"""

import ctypes
import errno
import os
import resource
import shutil
import sys
from pathlib import Path

TMPFS, LIMIT = "tmpfs", "limit"

_NEW_MOUNTS = 0x00020000  # of unshare(2)
_REMOUNT, _PRIVATE = 32, 1 << 18 | 1 << 14  # of mount(2); private with all mounts below
_ROOM = 256 * 2**20
"""Bytes. This is memory, used only as far as there are files."""


def enter(scratch: Path) -> None:
    """Give this process, and all that it starts from now on, mounts that end with the last of these processes.

    Raises OSError if that is not permitted, or no file system in memory can be mounted below `scratch`.
    """
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "only Linux has them")
    _call("unshare", _NEW_MOUNTS)
    _mount(b"none", Path("/"), _PRIVATE)
    probe = SmallDisk(scratch / "probe")
    probe.close()
    shutil.rmtree(probe.path)


class ChaosDisk:
    """A node's directory, on any disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, process: int) -> None:
        """Let that process write no further byte to any file."""
        resource.prlimit(process, resource.RLIMIT_FSIZE, (1, 1))

    def make_room(self) -> None:
        """A process that starts now can write again."""

    def close(self) -> None:
        """Nothing uses it any more."""


class SmallDisk(ChaosDisk):
    """A directory with a small file system. At the end its files are moved to the disk below."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        path.mkdir()
        _mount(TMPFS.encode(), path, options=f"size={_ROOM}")

    def fill(self, process: int) -> None:
        """Shrink it to what is on it: no file can have another block."""
        while True:
            here = os.statvfs(self.path)
            used = max(here.f_blocks - here.f_bfree, 1)  # 0 would mean no limit
            try:
                _mount(TMPFS.encode(), self.path, _REMOUNT, f"size={used * here.f_frsize}")
            except OSError as error:
                if error.errno != errno.EINVAL:  # more has been written meanwhile
                    raise
            else:
                return

    def make_room(self) -> None:
        _mount(TMPFS.encode(), self.path, _REMOUNT, f"size={_ROOM}")

    def close(self) -> None:
        saved = self.path.with_name(f"{self.path.name}.saved")
        shutil.copytree(self.path, saved, ignore=shutil.ignore_patterns("*.sock"))
        _call("umount2", os.fsencode(self.path), 0)
        self.path.rmdir()
        saved.rename(self.path)


def _mount(source: bytes, path: Path, flags: int = 0, options: str = "") -> None:
    # mount(8) repeats options that a user namespace may not set in a remount.
    _call("mount", source, os.fsencode(path), source, ctypes.c_ulong(flags), options.encode())


def _call(name: str, *arguments: object) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
