"""Each rule of taking over a database that is left out is found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crdtcast.adapters.redis.deadlines import adopted as adopted_index
from crdtcast.adapters.redis.deadlines.adopted import AdoptedIndex
from crdtcast.adapters.redis.deadlines.dates import Dates
from tests.adapters.redis.test_adoption_model import run_schedule
from tests.effort import EFFORT

pytestmark = pytest.mark.process


def looks_at_no_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write to a key that may have no entry does not look at its deadline."""

    def set_in_use(self: Dates, value: bool) -> None:
        self.__dict__["used"] = value

    unaware = property(lambda self: self.__dict__["used"] and not self.adopts, set_in_use)
    monkeypatch.setattr(Dates, "in_use", unaware, raising=False)


def one_database_only(monkeypatch: pytest.MonkeyPatch) -> None:
    step = AdoptedIndex.step

    def of_one(self: AdoptedIndex, db: int, offset: int, databases: Any, left_out: Any) -> Any:
        return step(self, db, offset, databases[:1], left_out)

    monkeypatch.setattr(AdoptedIndex, "step", of_one)


def replaced(monkeypatch: pytest.MonkeyPatch, old: bytes, new: bytes) -> None:
    script = adopted_index._STEP
    assert old in script
    monkeypatch.setattr(adopted_index, "_STEP", script.replace(old, new))


def keys_for_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of other databases than 0 lack the number of the database."""
    replaced(monkeypatch, b"if of > 0 or", b"if")


def skips_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first key of each page has no entry."""
    replaced(monkeypatch, b"if at >= 0 and", b"if at >= 0 and _ > 1 and")


FAULTS = (looks_at_no_deadlines, skips_keys, one_database_only, keys_for_names)


@pytest.mark.parametrize("fault", FAULTS if EFFORT.runs_slow else FAULTS[:2])
def test_schedule_finds_the_planted_fault(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
) -> None:
    with monkeypatch.context() as planted:
        fault(planted)
        with pytest.raises(AssertionError):
            run_schedule(tmp_path, monkeypatch, 0)
