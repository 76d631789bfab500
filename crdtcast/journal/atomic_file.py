"""Files that are complete or missing, also after a power failure."""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Replace the file's content, or create it with its directory; durable when this returns. Only this user may read
    either.

    Raises OSError if that fails; then the file is unchanged.
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
    """Make files created, renamed or removed in it durable. Does nothing if the system cannot sync directories."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
