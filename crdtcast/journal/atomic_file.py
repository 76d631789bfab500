"""Files that are there whole or not at all, and still are after a power failure."""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Put `content` in the place of the file, if there is one; durable when this returns. Makes its directory.
    Both are for this user alone.

    Raises OSError; the file is as it was before then.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    with open(new, "wb", opener=_private) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_directory(path.parent)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def sync_directory(directory: Path) -> None:
    """What was created, renamed and removed in it is durable when this returns; where directories can be synced."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
