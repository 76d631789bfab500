"""The experiments' command line in small: tables that add up, figures, what it refuses. Sizes are tiny."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.experiments.models import PoissonInterval, WeibullLatency
from benchmarks.experiments.timed import TimedSetup, run_timed

ROOT = Path(__file__).parents[1]
TINY = (
    "--members",
    "3",
    "--messages",
    "4",
    "--cpu-messages",
    "6",
    "--rounds",
    "2",
    "--cpu-ticks",
    "100",
)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.experiments", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("experiments")
    done = run("--experiment", "1,2,3-slow,cpu", *TINY, "--out", out, "--no-figures")
    assert done.returncode == 0, done.stderr
    assert "[1/" in done.stderr and "times ours" in done.stdout
    return out


@pytest.mark.process
def test_every_run_has_a_row_that_adds_up(tables: Path) -> None:
    table = rows(tables / "experiments.csv")
    # Two experiments with the same set-up are run once; ours has no way to do without stability.
    assert len(table) == 3 * (1 + 4 * 2) + (1 + 4 * 2)
    for row in table:
        assert row["complete"] == "True"
        assert int(row["deliveries"]) == 3 * 4 * 2
        parts = ("bytes_messages", "bytes_digests", "bytes_repairs")
        assert float(row["bytes_total"]) == pytest.approx(
            sum(float(row[part]) for part in parts), rel=2e-3
        )
        assert float(row["bytes_spelled"]) > float(row["bytes_total"])
        if row["stability"] == "False":
            assert row["lag_ms"] == "nan" and float(row["bytes_digests"]) == 0


@pytest.mark.process
def test_dependencies_count_context_dots_or_vector_entries(tables: Path) -> None:
    most = {
        row["engine"]: int(row["dependencies_most"])
        for row in rows(tables / "experiments.csv")
        if row["experiment"] == "2" and float(row["interval_ms"]) == 10
    }
    assert most["twolevel"] == 6 and most["vectors"] == most["cbcast"] == 3
    assert 1 <= most["crdtcast"] <= 3 and most["graph"] == most["crdtcast"]


@pytest.mark.process
def test_engines_are_compared_at_the_same_lag(tables: Path) -> None:
    table = {row["engine"]: row for row in rows(tables / "cpu.csv")}
    assert list(table) == ["crdtcast", "vectors", "twolevel", "graph", "cbcast"]
    ours = table.pop("crdtcast")
    assert float(ours["ratio"]) == 1
    for row in table.values():
        assert float(row["lag_ms"]) == pytest.approx(float(ours["lag_ms"]), rel=0.1)
        assert float(row["our_tick_ms"]) == 100
        assert float(row["ratio_least"]) <= float(row["ratio"]) <= float(row["ratio_most"])


@pytest.mark.parametrize("name", ["crdtcast", "vectors", "twolevel", "graph", "cbcast"])
def test_messages_of_each_engine_survive_encoding(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.experiments.codec import Codec
    from benchmarks.experiments.engines import ENGINES, member_ids

    ids = member_ids(11)  # so many that the order of ids is not that of numbers
    codec = Codec(ids, name)
    setup = TimedSetup(
        members=len(ids),
        messages=5,
        interval=PoissonInterval(100),
        latency=WeibullLatency.with_mean(10),
    )
    run = run_timed(setup, ids, ENGINES[name].build(stability=True), recorded=0)
    sent = [arrival.message for arrival in run.inputs if arrival.verb == "receive"]
    assert len({type(message) for message in sent}) > 1
    assert all(codec.decode(codec.encode(message)) == message for message in sent)


@pytest.mark.process
def test_resumed_run_repeats_nothing(tables: Path) -> None:
    before = (tables / "experiments.csv").read_text()
    done = run("--experiment", "1,2", *TINY, "--out", tables, "--no-figures", "--resume")
    assert done.returncode == 0 and "[1/" not in done.stderr
    assert (tables / "experiments.csv").read_text() == before


@pytest.mark.process
def test_figures_are_drawn_from_tables(tables: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    # Of experiment 2 one interval: each is nine panels, and they take nearly all of the time.
    header, *lines = (tables / "experiments.csv").read_text().splitlines(keepends=True)
    table = rows(tables / "experiments.csv")
    one = [
        line
        for line, row in zip(lines, table, strict=True)
        if row["experiment"] != "2" or float(row["interval_ms"]) == 10
    ]
    assert 0 < len(one) < len(lines)
    (tmp_path / "experiments.csv").write_text(header + "".join(one))
    (tmp_path / "cpu.csv").write_text((tables / "cpu.csv").read_text())
    done = run("--draw", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    drawn = sorted(path.name for path in tmp_path.glob("*.png"))
    assert drawn == ["cpu.png", "experiment-2.png", "experiment-3-slow.png"]
    assert all((tmp_path / name).stat().st_size > 5000 for name in drawn)


@pytest.mark.process
@pytest.mark.parametrize(
    "arguments",
    [("--engines", "vectors,magic"), ("--members", "four"), ("--cpu-ticks", "often")],
    ids=["engine", "members", "ticks"],
)
def test_unknown_arguments_are_refused(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, "--out", tmp_path)
    assert done.returncode == 2
    assert "usage" in done.stderr
    assert not list(tmp_path.iterdir())
