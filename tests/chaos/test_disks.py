"""A disk that is full. Real file systems where anybody may mount one; the limit everywhere on Linux."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from crdtcast.chaos.disks import ChaosDisk

ENTER = """
import sys
from pathlib import Path
from crdtcast.chaos import disks
scratch = Path(sys.argv[1])
try:
    disks.enter(scratch)
except OSError as error:
    sys.exit(error.strerror)
"""

FILL = """
disk = disks.SmallDisk(scratch / "n1")
here = open(disk.path / "journal", "wb", buffering=0)
kept = here.write(b"k" * 5000)
disk.fill(0)
before = set(scratch.iterdir())
for _ in range(2):
    try:
        while True:
            kept += here.write(b"w" * 1000)  # the last block takes a part
    except OSError as error:
        print(error.errno, kept)
try:
    (disk.path / "other").write_bytes(b"o")
except OSError as error:
    print(error.errno)
disk.make_room()
print(here.write(b"a" * 100_000))
here.close()
disk.close()
"""


def python(program: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", program, str(scratch)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


@pytest.mark.process
def test_a_small_disk_is_full_to_the_byte_until_there_is_room(tmp_path: Path) -> None:
    if reason := python(ENTER, tmp_path).stderr.strip():
        pytest.skip(f"no file systems of our own: {reason}")
    done = python(ENTER + FILL, tmp_path)
    assert done.returncode == 0, done.stderr
    full, again, other, room = done.stdout.splitlines()
    assert full == again == f"{errno.ENOSPC} 8192" and other == f"{errno.ENOSPC}"
    assert room == "100000"
    # It was a file system of that process alone; what was on it stays.
    assert (tmp_path / "n1" / "journal").stat().st_size == 8192 + 100_000
    assert [path.name for path in tmp_path.iterdir()] == ["n1"]


@pytest.mark.process
def test_the_limit_stops_one_process_alone(tmp_path: Path) -> None:
    disk = ChaosDisk(tmp_path)
    write = "import sys; sys.stdin.readline(); open(sys.argv[1], 'wb', buffering=0).write(b'12')"
    words = [sys.executable, "-c", write, str(disk.path / "journal")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        disk.fill(child.pid)
        _, said = child.communicate("\n")
    assert child.returncode == 0 or "File too large" in said
    assert (disk.path / "journal").stat().st_size == 1
    disk.make_room()
    (disk.path / "journal").write_bytes(b"12")
