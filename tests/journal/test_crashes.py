"""A file journal on a disk that loses what was not synced, at every step and in every way."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from crdtcast.exceptions import JournalError, UnusableInputError
from crdtcast.journal import FileJournal
from crdtcast.testing.disk import Crash, Disk
from tests.effort import seeds

SEEDS = seeds(2)
PATH = Path("node")


class History:
    """What was asked of a journal, as the states that it went through; `acknowledged` of them
    at least have to survive, `asked` at most.
    """

    def __init__(self) -> None:
        self.states: list[tuple[bytes | None, tuple[bytes, ...]]] = [(None, ())]
        self.acknowledged = 0

    def append(self, batch: list[bytes]) -> None:
        snapshot, records = self.states[-1]
        self.states.append((snapshot, (*records, *batch)))

    def compact(self, snapshot: bytes) -> None:
        self.states.append((snapshot, ()))


def live(disk: Disk, history: History, random: Random, rounds: int) -> None:
    """A life of a journal: until it ends, or the disk does."""
    journal = FileJournal(PATH, directory=lambda _: disk)
    found = journal.load()
    check(found.snapshot, found.records, found.damage, history)
    for _ in range(rounds):
        for _ in range(random.randrange(1, 3)):
            batch = [random.randbytes(random.choice((0, 3, 700, 1300))) for _ in range(2)]
            journal.append(batch)
            history.append(batch)
        if random.random() < 0.3:
            snapshot = random.randbytes(random.choice((0, 900)))
            journal.compact(snapshot)
            history.compact(snapshot)
        journal.sync()
        history.acknowledged = len(history.states) - 1
    journal.close()


def check(
    snapshot: bytes | None, records: tuple[bytes, ...], damage: str, history: History
) -> None:
    assert damage == ""
    assert (snapshot, records) in history.states[history.acknowledged :]
    # From here on that counts, whatever else was asked.
    history.acknowledged = history.states.index((snapshot, records))
    del history.states[history.acknowledged + 1 :]


def lives(seed: int, without: tuple[str, int] | None = None) -> Iterator[tuple[int, int, int]]:
    """Every crash of two lives, and every outcome of it; each is gone on from once more."""
    crash_at = 0
    while True:
        crash_at += 1
        random, history = Random(seed), History()
        disk = Disk(crash_at=crash_at, without=without)
        try:
            live(disk, history, random, 2)
            live(disk, history, random, 2)
        except Crash:
            pass
        else:
            return
        for outcome, left in enumerate(disk.crashes()):
            after = History()
            after.states, after.acknowledged = list(history.states), history.acknowledged
            live(left, after, random, 1)
            for again, later in enumerate(left.crashes() if outcome % 5 == 0 else ()):
                last = History()
                last.states, last.acknowledged = list(after.states), after.acknowledged
                live(later, last, random, 1)
                yield crash_at, outcome, again


@pytest.mark.parametrize("seed", SEEDS)
def test_synced_records_survive_and_torn_ones_are_not_read(seed: int) -> None:
    crashes = {crash_at for crash_at, _, _ in lives(seed)}
    assert len(crashes) > 25


def sync_places() -> list[tuple[str, int]]:
    places: set[tuple[str, int]] = set()
    for seed in SEEDS:
        disk = Disk()
        live(disk, History(), Random(seed), 8)
        places |= disk.synced_by
    return sorted(places)


@pytest.mark.parametrize(
    "place", sync_places(), ids=lambda place: f"{Path(place[0]).stem}:{place[1]}"
)
def test_every_sync_is_needed(place: tuple[str, int]) -> None:
    """Without it some crash loses something, or leaves a journal that looks damaged or is unusable."""
    with pytest.raises((AssertionError, UnusableInputError)):
        for seed in SEEDS:
            for _ in lives(seed, without=place):
                pass


def test_syncs_are_found() -> None:
    """Contents of a frame, of a segment and of the proof; the names of a segment and of the proof."""
    assert len(sync_places()) == 5


def test_full_disk_acknowledges_nothing_and_names_a_remedy() -> None:
    for room in range(1600, 12_000, 290):
        disk, history, random = Disk(room=room), History(), Random(room)
        try:
            live(disk, history, random, 12)
        except JournalError as error:
            assert "No space left on device" in str(error) and "free some space" in str(error)
            for left in disk.crashes():
                left.room = None
                after = History()
                after.states, after.acknowledged = list(history.states), history.acknowledged
                live(left, after, random, 1)


def test_failed_sync_is_never_tried_again() -> None:
    disk = Disk()
    journal = FileJournal(PATH, directory=lambda _: disk)
    journal.load()
    journal.append([b"a"])
    disk.broken = OSError(5, "Input/output error")
    with pytest.raises(JournalError, match="Input/output error"):
        journal.sync()
    disk.broken = None
    journal.append([b"b"])
    with pytest.raises(JournalError, match="Input/output error"):
        journal.sync()
