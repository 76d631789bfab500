"""A full disk below the event log alone: the member goes on, says so in one line, and writes the lines when it can."""

import errno
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from crdtcast import ConfigurationError, open_member, open_replica
from crdtcast.datatypes import PNCounter
from crdtcast.eventlog.check.check import check_logs

ON_A_SMALL_DISK = """
import json, logging, sys
from pathlib import Path
import trio
from crdtcast import open_member
from crdtcast.chaos import disks

scratch = Path(sys.argv[1])
try:
    disks.enter(scratch)
except OSError as error:
    sys.exit(error.strerror)
disk = disks.SmallDisk(scratch / "logs")
said = []
logger = logging.getLogger("crdtcast")
logger.addHandler(logging.Handler())
logger.handlers[0].emit = lambda record: said.append(record.getMessage())

async def main():
    async with open_member("eu", found=True, journal=scratch / "eu", event_logs=disk.path) as eu:
        async def write(number):
            for _ in range(number):
                eu.tcbroadcast(b"x" * 100)
                await eu.wait_durable()
        await write(1)
        disk.fill(0)
        await write(200)
        disk.make_room()
        await write(1)

trio.run(main)
disk.close()
print(json.dumps(said))
"""


@pytest.mark.process
def test_full_log_disk_does_not_stop_a_real_node(tmp_path: Path) -> None:
    words = [sys.executable, "-c", ON_A_SMALL_DISK, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if done.returncode == 1 and "Traceback" not in done.stderr:
        pytest.skip(f"no file systems of our own: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    refused, taken = json.loads(done.stdout)
    assert "No space left on device; free space on that disk" in refused
    assert "is writable again" in taken and "nothing was lost" in taken
    checked = check_logs([tmp_path / "logs"])
    assert not checked.violations and checked.counts["messages"] == 202


def test_embedded_member_warns_of_a_full_log_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk takes nothing at all: the directory of the logs cannot be made either."""
    caplog.set_level(logging.WARNING)
    make = Path.mkdir

    def mkdir(path: Path, mode: int = 0o777, **options: bool) -> None:
        if tmp_path / "logs" in (path, *path.parents):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        make(path, mode, **options)

    async def main() -> None:
        async with (
            open_member(
                "eu", found=True, journal=tmp_path / "eu", event_logs=tmp_path / "logs" / "eu"
            ) as eu,
            open_replica(
                "us", found=True, journal=tmp_path / "us", event_logs=tmp_path / "logs" / "us"
            ) as us,
        ):
            for _ in range(3):
                eu.tcbroadcast(b"x")
                await us.object("votes", PNCounter).increment(1)
            await eu.wait_durable()
            await us.wait_durable()
            lines = [record.getMessage() for record in caplog.records]
            assert len([line for line in lines if "free space on that disk" in line]) == 2, lines
            monkeypatch.undo()
            eu.tcbroadcast(b"x")
            await us.object("votes", PNCounter).increment(1)
            await eu.wait_durable()
            await us.wait_durable()
            for replica in ("eu", "us"):
                assert check_logs([tmp_path / "logs" / replica]).counts["messages"] == 4

    monkeypatch.setattr(Path, "mkdir", mkdir)
    trio.run(main)


def test_unusable_log_directory_is_found_before_the_join(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").touch()

    async def main() -> None:
        async with open_member("eu", found=True) as eu:
            with pytest.raises(ConfigurationError, match="that this user may write to"):
                async with open_member(
                    "us", join=eu.address, journal=tmp_path / "us", event_logs=tmp_path / "file"
                ):
                    pass
            await eu.wait_stable(eu.tcbroadcast(b"there is nobody else"))
            assert set(eu.members) == {"eu"}

    trio.run(main)
