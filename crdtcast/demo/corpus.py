"""The demo's input: words of the Python standard library's source files. Pure except for reading files."""

import itertools
import re
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

WORD = re.compile(r"[a-z]{2,24}")
LEFT_OUT = frozenset(
    ("site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__")
)


def source_files(root: Path | None = None) -> list[Path]:
    """All source files of the standard library except its tests, in a fixed order."""
    root = root or Path(sysconfig.get_path("stdlib"))
    found = (path for path in root.rglob("*.py") if not LEFT_OUT.intersection(path.parts))
    return sorted(found)


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, in order: runs of 2 to 24 letters."""
    return WORD.findall(text.lower())


def words_of_files(files: Sequence[Path]) -> Iterator[str]:
    """The words of all files, in order. Bytes that are not UTF-8 are skipped."""
    for path in files:
        yield from words_of(path.read_text(encoding="utf-8", errors="ignore"))


def thirds(count: int, files: Sequence[Path] | None = None) -> list[list[str]]:
    """The first `count` words (all, if there are fewer) in three runs of equal length, give or take one word.

    The thirds come from different files but share most of their vocabulary, so the regions write to the same keys.
    """
    words = list(itertools.islice(words_of_files(files or source_files()), count))
    size, rest = divmod(len(words), 3)
    ends = list(itertools.accumulate(size + (number < rest) for number in range(3)))
    return [words[start:end] for start, end in zip([0, *ends], ends, strict=False)]
