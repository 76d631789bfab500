"""The rules of this suite: its dial, and who may start processes (`effort.py`, `conftest.py`)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from crdtcast.adapters.redis.store import effects, many_slots
from crdtcast.adapters.redis.types import native, strings
from tests import pieces, servers
from tests.effort import EFFORT, Effort, Seeds, chosen, examples, first_seed, seeds, size
from tests.scheduling import LONGEST, ByFile, place_of, workers


def test_default_effort_is_that_of_ci() -> None:
    assert chosen({}) == Effort("ci")
    assert not Effort("ci").runs_slow
    assert [Effort("ci").of(count) for count in (1, 2, 3, 100)] == [1, 1, 1, 25]


def test_a_release_tries_more_of_the_same_seeds() -> None:
    effort = chosen({"CRDTCAST_EFFORT": "release"})
    assert (effort.of(1), effort.of(100)) == (20, 2000)
    assert (effort.first_seed, effort.runs_slow) == (0, True)


def test_fuzzing_begins_at_a_new_seed_and_workers_at_the_same() -> None:
    environment = {"CRDTCAST_EFFORT": "fuzz"}
    effort = chosen(environment)
    assert effort.first_seed > 0
    assert chosen(environment) == effort, "a worker has another seed than its parent"
    assert f"CRDTCAST_SEED={effort.first_seed}" in str(effort)
    assert chosen({"CRDTCAST_EFFORT": "fuzz", "CRDTCAST_SEED": "7"}).first_seed == 7


@pytest.mark.parametrize("name", ["CRDTCAST_EFFORT", "CRDTCAST_SEED"])
def test_an_effort_that_cannot_be_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}='much'"):
        chosen({name: "much"})


def test_the_seed_that_a_loop_has_taken_is_known() -> None:
    begin = EFFORT.first_seed
    assert [*seeds(3, first=5)] == [*range(begin + 5, begin + 5 + EFFORT.of(3))]
    for seed in seeds(16):
        if seed == begin + 3:
            break
    assert Seeds.taken == begin + 3
    assert first_seed() == Seeds.taken == begin
    assert examples(7) == EFFORT.of(7)


def test_a_size_is_the_small_one_unless_slow_tests_run() -> None:
    assert size(ci=3, release=40) == (40 if EFFORT.runs_slow else 3)


@pytest.mark.skipif(not pieces.MAY_DIFFER, reason="gateways are not forked")
def test_all_modules_use_the_same_piece_and_page_sizes() -> None:
    assert many_slots.PIECE == effects.PIECE == pieces.PIECE
    assert native.PAGE_BYTES == strings.PAGE_BYTES == pieces.PAGE_BYTES


def test_without_the_mark_no_test_starts_a_process() -> None:
    with pytest.raises(RuntimeError, match="mark it `process`"):
        subprocess.run([sys.executable, "-c", ""])
    with pytest.raises(RuntimeError, match="mark it `process`"):
        os.system("true")
    with pytest.raises(RuntimeError, match="mark it `process`"):
        servers.borrow()


def test_a_file_stays_in_one_worker_and_spark_does_as_a_whole() -> None:
    def group_of(nodeid: str) -> str:
        return ByFile._split_scope(ByFile.__new__(ByFile), nodeid)

    assert group_of("tests/a/test_b.py::TestC::test_d[e::f]") == "tests/a/test_b.py"
    files = [*Path(__file__).parent.rglob("test_*.py")]
    spark = [file for file in files if "pytest.mark.spark" in file.read_text().partition("def ")[0]]
    assert len(spark) >= 3
    assert {group_of(f"{file}::test_x") for file in spark} == {"spark"}


def test_slowest_test_files_exist_and_start_first() -> None:
    tests = Path(__file__).parent
    assert [name for name in LONGEST if not (tests / name).is_file()] == []
    files = [path.as_posix() for path in tests.rglob("test_*.py")]
    first = sorted(files, key=place_of)[: len(LONGEST)]
    assert first == [f"{tests.as_posix()}/{name}" for name in LONGEST]


def test_one_more_worker_than_cores_fills_the_waits() -> None:
    assert [workers(cores) for cores in (1, 2, 8)] == [1, 4, 10]


def test_test_names_have_at_most_60_characters() -> None:
    named = re.compile(r"^ *(?:async )?def (test_\w+)", flags=re.MULTILINE)
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    names = [name for file in files for name in named.findall(file.read_text())]
    assert names and [name for name in names if len(name) > 60] == []
