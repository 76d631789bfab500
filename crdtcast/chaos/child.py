"""`crdtcast node` with a wrong wall clock, a disk that may fail, and lies if asked for.

Usage: `python -m crdtcast.chaos.child SKEW_MS FLAG LIES JSON`. FLAG: while a file of that name exists, every sync of
the journal fails. LIES: the seed of the lies; 0 for an honest node. JSON: the node's settings.
"""

import errno
import json
import os
import sys
from pathlib import Path

import trio

from crdtcast.causality.member_id import wall_clock_ms
from crdtcast.chaos.liar import lie
from crdtcast.exceptions import CrdtcastError, leaves
from crdtcast.journal.directory import RealDirectory, RealFile
from crdtcast.service.configuration import load
from crdtcast.service.json_log import log_to_stderr
from crdtcast.service.run import NodeProcess
from crdtcast.service.settings import NodeSettings


def main() -> int:
    """Returns the exit code."""
    skew, flag, lies = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    settings = load(NodeSettings, None, given=json.loads(sys.argv[4])).get()
    log_to_stderr(settings.name, settings.log_level, as_json=settings.log_json)
    wrong: list[BaseException] = []
    try:
        process = NodeProcess(
            settings,
            clock_ms=lambda: wall_clock_ms() + skew,
            directory=lambda path: _Failing(path, flag),
        )
        trio.run(_life, process, lies)
    except* CrdtcastError as errors:
        wrong = list(leaves(errors))
    for error in wrong:
        print(f"crdtcast: {error}", file=sys.stderr)
    return 2 if wrong else 0


async def _life(process: NodeProcess, lies: int) -> None:
    async with trio.open_nursery() as nursery:
        if lies:
            nursery.start_soon(lie, process, lies)
        await process.run()
        nursery.cancel_scope.cancel()


class _FailingFile(RealFile):
    """While the flag exists, `sync` fails: what was written may be on the disk or not."""

    def __init__(self, path: Path, flags: int, flag: Path) -> None:
        super().__init__(path, flags)
        self._flag = flag

    def sync(self) -> None:
        if self._flag.exists():
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync()


class _Failing(RealDirectory):
    def __init__(self, path: Path, flag: Path) -> None:
        super().__init__(path)
        self._flag = flag

    def create(self, name: str) -> RealFile:
        return _FailingFile(self._path / name, os.O_TRUNC, self._flag)

    def open(self, name: str) -> RealFile:
        return _FailingFile(self._path / name, 0, self._flag)


if __name__ == "__main__":
    sys.exit(main())
