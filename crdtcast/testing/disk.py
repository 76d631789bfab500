"""A disk in memory that loses at a crash what was not synced, for tests of data that must survive a crash.

`Disk` is a `crdtcast.journal.directory.Directory`. `Disk.crashes` enumerates what a crash may leave; nothing is random.
Names and contents are synced separately, as by file systems. Names may be written in any order, and so may the sectors
of a file.
"""

import errno
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

SECTOR = 512
_MOST = 4
"""Up to so many unsynced steps of a directory, or writes to a file, every subset is tried."""


class Crash(BaseException):
    """The process ends at this point. Not an Exception, so that no code of it continues."""


@dataclass(slots=True, eq=False)
class _Inode:
    """A file, independent of its names. durable: what a crash leaves. unsynced: writes since then."""

    number: int
    durable: bytes = b""
    unsynced: list[tuple[int, bytes]] = field(default_factory=list)
    locked: bool = False

    @property
    def content(self) -> bytes:
        return _written(self.durable, self.unsynced)

    def outcomes(self) -> Iterator[bytes]:
        """The contents that it may have after a crash."""
        writes = self.unsynced
        for kept in _subsets(len(writes)):
            yield _written(self.durable, [writes[k] for k in kept])
        if writes:
            # The last write is torn: only its first sectors, only its last ones, or zeros instead of it.
            *before, (offset, content) = writes
            cut = SECTOR - offset % SECTOR
            half = cut + max(0, (len(content) - cut) // 2 // SECTOR * SECTOR)
            if half < len(content):
                yield _written(self.durable, [*before, (offset, content[:half])])
                yield _written(self.durable, [*before, (offset + half, content[half:])])
            end = offset + len(content)
            if end > len(self.durable):
                # The file has grown, and its new part was never written.
                kept_bytes = max(0, len(self.durable) - offset)
                zeros = content[:kept_bytes] + bytes(len(content) - kept_bytes)
                yield _written(self.durable, [*before, (offset, zeros)])


def _subsets(size: int) -> Iterator[tuple[int, ...]]:
    """Of `size` things: every subset if they are few, else every prefix."""
    if size > _MOST:
        yield from (tuple(range(kept)) for kept in range(size + 1))
        return
    for kept in range(size + 1):
        yield from itertools.combinations(range(size), kept)


def _written(content: bytes, writes: list[tuple[int, bytes]]) -> bytes:
    whole = bytearray(content)
    for offset, piece in writes:
        whole.extend(bytes(max(0, offset - len(whole))))
        whole[offset : offset + len(piece)] = piece
    return bytes(whole)


class DiskFile:
    """An open file of a `Disk`."""

    def __init__(self, disk: "Disk", inode: _Inode) -> None:
        self._disk = disk
        self._inode = inode
        self._has_lock = False

    def write(self, offset: int, content: bytes) -> None:
        """Write it; not durable before `sync`."""
        if not self._disk.step():
            return
        room = self._disk.room
        if room is not None:
            grown = offset + len(content) - len(self._inode.content)
            lacking = grown - max(0, room - self._disk.used)
            if grown > 0 and lacking > 0:
                self._inode.unsynced.append((offset, content[: max(0, len(content) - lacking)]))
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._inode.unsynced.append((offset, content))

    def sync(self) -> None:
        """Make the content durable. The file's name is synced by its directory."""
        if self._disk.step(sync=True):
            self._inode.durable = self._inode.content
            self._inode.unsynced.clear()

    def lock(self) -> bool:
        """Lock it. Returns False if another open file has the lock."""
        if self._inode.locked and not self._has_lock:
            return False
        self._inode.locked = self._has_lock = True
        return True

    @property
    def identity(self) -> tuple[int, int]:
        """Tells this file from all others."""
        return self._inode.number, 0

    def close(self) -> None:
        """Close it, without a sync."""
        if self._has_lock:
            self._inode.locked = self._has_lock = False


class Disk:
    """One directory in memory that can lose unsynced data. `Disk()` is empty.

    crash_at: raise `Crash` at this step, counted from 1, instead of taking it.
    without: a line of code, as in `synced_by`, whose syncs do nothing, to show that a test needs them.
    room: bytes of all files together; a file that grows beyond it fails, as on a full disk.
    """

    def __init__(
        self,
        *,
        crash_at: int | None = None,
        without: tuple[str, int] | None = None,
        room: int | None = None,
    ) -> None:
        self.crash_at = crash_at
        self.without = without
        self.room = room
        self.steps: int = 0
        """Number of writes, syncs and changes of names so far."""
        self.synced_by: set[tuple[str, int]] = set()
        """File and line of each call that has synced."""
        self.broken: OSError | None = None
        """Raised by every further step; for a disk that fails."""
        self._inodes = itertools.count(1)
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._unsynced: list[Callable[[dict[str, _Inode]], None]] = []

    def step(self, *, sync: bool = False) -> bool:
        """Count a step. Returns whether it takes effect."""
        self.steps += 1
        if self.steps == self.crash_at:
            raise Crash
        if self.broken is not None:
            raise self.broken
        if sync:
            caller = sys._getframe(2)
            place = caller.f_code.co_filename, caller.f_lineno
            self.synced_by.add(place)
            return place != self.without
        return True

    @property
    def used(self) -> int:
        """Bytes of all files."""
        return sum(len(inode.content) for inode in self._names.values())

    # What a journal does

    def names(self) -> list[str]:
        """The names of the files."""
        return sorted(self._names)

    def read(self, name: str) -> bytes:
        """The content as written, synced or not."""
        return self._inode(name).content

    def create(self, name: str) -> DiskFile:
        """A new, empty file; it replaces an old one."""
        return self._new(name)

    def open(self, name: str) -> DiskFile:
        """The file with its content, or a new one."""
        if name in self._names:
            return DiskFile(self, self._names[name])
        return self._new(name)

    def _new(self, name: str) -> DiskFile:
        inode = _Inode(next(self._inodes))
        self._change(lambda names: names.update({name: inode}))
        return DiskFile(self, inode)

    def rename(self, old: str, new: str) -> None:
        """Rename it; not durable before `sync`."""
        inode = self._inode(old)

        def move(names: dict[str, _Inode]) -> None:
            names.pop(old, None)
            names[new] = inode

        self._change(move)

    def remove(self, name: str) -> None:
        """Remove it; not durable before `sync`."""
        self._change(lambda names: names.pop(name, None))

    def sync(self) -> None:
        """Make the names durable. Contents are synced by the files."""
        if self.step(sync=True):
            self._durable_names = dict(self._names)
            self._unsynced.clear()

    def _inode(self, name: str) -> _Inode:
        if name not in self._names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return self._names[name]

    def _change(self, change: Callable[[dict[str, _Inode]], object]) -> None:
        if self.step():
            change(self._names)
            self._unsynced.append(change)  # type: ignore[arg-type]

    # What a crash does

    def crashes(self) -> Iterator["Disk"]:
        """Yield every disk that a power failure at this moment may leave (a killed process leaves the last one).

        Of the names, every subset of the unsynced changes, in their order; of each file, every subset of its unsynced
        writes, and the last one torn. The content of one file varies at a time, while the others have lost everything,
        or nothing, that was not synced.
        """
        for kept in _subsets(len(self._unsynced)):
            names = dict(self._durable_names)
            for change in (self._unsynced[k] for k in kept):
                change(names)
            inodes = list(dict.fromkeys(names.values()))
            for varied in inodes:
                others = [i for i in inodes if i is not varied and i.unsynced]
                for rest_written in (False, True) if others else (True,):
                    for content in varied.outcomes():
                        yield self._left(names, varied, content, rest_written=rest_written)
            if not inodes:
                yield self._left(names, None, b"", rest_written=True)

    def _left(
        self,
        names: dict[str, _Inode],
        varied: _Inode | None,
        content: bytes,
        *,
        rest_written: bool,
    ) -> "Disk":
        left = Disk(without=self.without, room=self.room)
        left._inodes = itertools.count(next(self._inodes) + 1000)
        copies: dict[_Inode, _Inode] = {}
        for name, inode in names.items():
            rest = inode.content if rest_written else inode.durable
            kept = content if inode is varied else rest
            copy = copies.setdefault(inode, _Inode(inode.number, kept))
            left._names[name] = left._durable_names[name] = copy
        return left

    def copied(self) -> "Disk":
        """Return a copy of all files, as `cp` makes it: other files with the same content."""
        other = Disk()
        other._inodes = itertools.count(next(self._inodes) + 1_000_000)
        for name, inode in self._names.items():
            other._names[name] = _Inode(next(other._inodes), inode.content)
        other._durable_names = dict(other._names)
        return other
