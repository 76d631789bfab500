"""Disks that can be full. A small one is a file system of its own in memory (tmpfs): whatever writes there gets ENOSPC,
in the middle of a record, too. That needs Linux, and a mount namespace, which root may have, and everybody who may have
a user namespace. Elsewhere a limit of the process stands for it.
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
_REMOUNT, _PRIVATE = 32, 1 << 18 | 1 << 14  # of mount(2); private with all that is below
_ROOM = 256 * 2**20
"""Bytes. It is memory, and used as far as there are files."""


def enter(scratch: Path) -> None:
    """Have mounts of our own, with all processes that are started from here on; they end with the last of these.

    OSError: it is not permitted, or no file system in memory can be mounted below `scratch`.
    """
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "only Linux has them")
    _call("unshare", _NEW_MOUNTS)
    _mount(b"none", Path("/"), _PRIVATE)
    probe = SmallDisk(scratch / "probe")
    probe.close()
    shutil.rmtree(probe.path)


class ChaosDisk:
    """A node's directory, on whatever disk that is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fill(self, process: int) -> None:
        """Nothing more can be written: not another byte to any file by that process."""
        resource.prlimit(process, resource.RLIMIT_FSIZE, (1, 1))

    def make_room(self) -> None:
        """Whoever starts now can write again."""

    def close(self) -> None:
        """Nobody uses it any more."""


class SmallDisk(ChaosDisk):
    """A directory with a file system of its own. What is on it is moved to the disk below at the end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        path.mkdir()
        _mount(TMPFS.encode(), path, options=f"size={_ROOM}")

    def fill(self, process: int) -> None:
        """It becomes as small as what is on it: no file can have another block."""
        while True:
            here = os.statvfs(self.path)
            used = max(here.f_blocks - here.f_bfree, 1)  # 0 would be without a limit
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
    # mount(8) repeats options that a user's namespace may not say when it mounts again.
    _call("mount", source, os.fsencode(path), source, ctypes.c_ulong(flags), options.encode())


def _call(name: str, *arguments: object) -> None:
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
