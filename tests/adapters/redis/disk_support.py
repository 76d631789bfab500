"""A small disk that can be filled to the last byte."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest


@contextlib.contextmanager
def small_disk(place: Path, size: str = "8m") -> Iterator[Path]:
    """A disk of its own, mounted at `place`; the test is skipped where that is not allowed."""
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small disk: {mounted.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(file: BinaryIO) -> None:
    """Write until not one byte more has room."""
    for size in (1 << 16, 1 << 10, 1):
        with contextlib.suppress(OSError):
            while True:
                file.write(b"x" * size)
