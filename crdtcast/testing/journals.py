"""Journals in tests: a check of the interface, and a journal on a disk in memory."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import ClassVar

from crdtcast.exceptions import ConfigurationError
from crdtcast.journal.file import FileJournal
from crdtcast.journal.interface import Journal, Recovered
from crdtcast.testing.disk import Disk


class DiskJournal(FileJournal):
    """A file journal on a `Disk`, for tests with a simulated clock: its syncs take no time and no thread.

    disk: a new one, or one left by an earlier life or a crash (`Disk.crashes`).
    trusted: see `FileJournal`.
    """

    blocks: ClassVar[bool] = False

    def __init__(self, disk: Disk, *, trusted: bool = False) -> None:
        super().__init__(Path("disk"), trusted=trusted, directory=lambda _: disk)


def check_journal(open_journal: Callable[[], Journal], *, seed: int = 0, rounds: int = 30) -> None:
    """Raises AssertionError unless the journal keeps what it has synced, in order, and nothing else.

    open_journal: each call returns an object that is not loaded yet, for the same journal. The journal is empty at the
        first call.
    seed: of the random operations.
    rounds: the number of times that the journal is loaded.

    This cannot test a power failure: see `crdtcast.testing.disk`.
    """
    random = Random(seed)
    journal = open_journal()
    found = journal.load()
    _same(found, None, [], seed)
    run = found.run
    snapshot: bytes | None = None
    records: list[bytes] = []
    for _ in range(rounds):
        for _ in range(random.randrange(4)):
            if random.random() < 0.2:
                snapshot, records = random.randbytes(random.choice((0, 1, 5000))), []
                journal.compact(snapshot)
            batch = [random.randbytes(random.choice((0, 1, 40, 3000))) for _ in range(3)]
            journal.append(batch)
            records += batch
            if random.random() < 0.5:
                journal.sync()
        journal.sync()
        written = journal.grown
        assert written >= sum(map(len, records)), f"{written} bytes grown: too few (seed {seed})"
        _check_alone(open_journal, seed)
        if random.random() < 0.5:
            journal.append([b"never synced"])
        journal.close()
        journal = open_journal()
        found = journal.load()
        if found.records[len(records) :] == (b"never synced",):
            records.append(b"never synced")  # it may be kept
        _same(found, snapshot, records, seed)
        assert found.run > run, f"run {found.run} after {run}: it has to rise (seed {seed})"
        run = found.run
    journal.close()


def _same(found: Recovered, snapshot: bytes | None, records: list[bytes], seed: int) -> None:
    assert found.damage == "", f"taken for damaged: {found.damage} (seed {seed})"
    assert found.snapshot == snapshot, f"another snapshot than the last one (seed {seed})"
    assert list(found.records) == records, (
        f"{len(found.records)} records, not the {len(records)} that were synced (seed {seed})"
    )


def _check_alone(open_journal: Callable[[], Journal], seed: int) -> None:
    second = open_journal()
    try:
        second.load()
    except ConfigurationError:
        return
    raise AssertionError(f"a second writer was let in (seed {seed})")
