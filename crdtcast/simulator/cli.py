"""`crdtcast simulate`: many seeds of a campaign, one schedule from a file, or every schedule of a small scope.

Exit code 0 if every run was right; 1 if one failed (its shrunk schedule is printed, and written if requested); 2 for
invalid options or files.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from crdtcast.exceptions import CrdtcastError
from crdtcast.simulator.campaign import GroupOutcome, run_schedule
from crdtcast.simulator.campaigns import CAMPAIGNS
from crdtcast.simulator.exhaustive import SCOPES, explore
from crdtcast.simulator.faults import DEFAULT, KINDS
from crdtcast.simulator.group.drain import OperatorSteps
from crdtcast.simulator.plan import RunPlan, load_plan, parse_range
from crdtcast.simulator.schedule import GroupSchedule
from crdtcast.simulator.shrink import shrink

MAX_SHOWN = 5
CHUNK = 10
SHRINKING = 600
"""Limit on replays to shrink one failure, since each replay that hangs takes long."""


@dataclass(slots=True)
class Tally:
    """Totals of the runs so far. shown: failures that were printed."""

    runs: int = 0
    failures: int = 0
    shown: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: GroupOutcome, directory: Path | None) -> None:
        """Count a run; print and write it if it failed."""
        self.runs += 1
        self.counts.update(outcome.counts)
        if outcome.kind is None:
            return
        self.failures += 1
        if self.shown < MAX_SHOWN:
            self.shown += 1
            _report(outcome, directory)

    def close(self, as_json: bool) -> None:
        """Print the last line. Raises SystemExit if a run failed."""
        counts = {name: n for name, n in sorted(self.counts.items()) if n}
        steps = OperatorSteps.of(self.counts)
        if as_json:
            totals = {"runs": self.runs, "failures": self.failures}
            click.echo(json.dumps({**totals, **steps.as_json(), **counts}))
        else:
            if counts:
                click.echo(", ".join(f"{name} {n}" for name, n in counts.items()))
            click.echo(f"{self.runs} runs, {self.failures} failures; {steps}")
        if self.failures:
            raise SystemExit(1)


def _report(outcome: GroupOutcome, directory: Path | None) -> None:
    shrunk = shrink(outcome, run_schedule, runs=SHRINKING)
    text = shrunk.schedule.to_json(shrunk.failure)
    click.echo(f"seed {outcome.schedule.seed}: {outcome.failure}\nshrunk: {shrunk.failure}\n{text}")
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{outcome.kind}-{outcome.schedule.seed}.json"
        path.write_text(text, encoding="utf-8")
        click.echo(f"written to {path}; replay with --replay {path}")


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Run the plan in this TOML file.",
)
@click.option(
    "--engine",
    metavar="MODULE:CLASS",
    help="Run your own subclass of GroupEngine (or of GroupWorld, FoundingRound) in its place.",
)
@click.option("--members", metavar="N[:M]", help="Number of founders (default: 3:6).")
@click.option(
    "--seeds", metavar="FIRST:LAST", help="Range of seeds, both included (default: 0:99)."
)
@click.option(
    "--faults",
    metavar="A,B,…",
    help=f"Faults: any of {','.join(KINDS)} (default: {','.join(DEFAULT)}).",
)
@click.option("--campaign", metavar="NAME", help=f"Campaign: one of {', '.join(CAMPAIGNS)}.")
@click.option(
    "--exhaustive",
    metavar="SCOPE",
    help=f"Run every schedule of a small scope: all, or one of {', '.join(SCOPES)}.",
)
@click.option(
    "--limit",
    type=int,
    default=20_000,
    help="With --exhaustive: stop each scope after this many states.",
)
@click.option(
    "--replay", type=click.Path(path_type=Path), metavar="FILE", help="Run this schedule only."
)
@click.option(
    "--write",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write failing schedules to this directory.",
)
@click.option(
    "--logs",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write event logs as real nodes do, one directory for each run.",
)
@click.option("--jobs", type=click.IntRange(1), default=1, help="Processes (default: 1).")
@click.option(
    "--json", "as_json", is_flag=True, help="Print totals as a JSON object on the last line."
)
def simulate(
    replay: Path | None,
    write: Path | None,
    logs: Path | None,
    exhaustive: str | None,
    limit: int,
    jobs: int,
    as_json: bool,
    **words: Any,
) -> None:
    """Run simulated groups of the real engine against an oracle.

    A failure is reduced to the actions that matter and printed; --write stores it in a file, and --replay runs such a
    file.
    """
    tally = Tally()
    try:
        if replay is not None:
            tally.add(run_schedule(GroupSchedule.load(replay), logs), write)
        elif exhaustive is not None:
            _explore(exhaustive, limit, _plan(words).engine, tally, write)
        else:
            plan = _plan(words)
            for outcome in _shown(_outcomes(plan, logs, jobs), len(plan.seeds)):
                tally.add(outcome, write)
    except CrdtcastError as error:
        click.echo(f"crdtcast simulate: {error}", err=True)
        raise SystemExit(2) from error
    tally.close(as_json)


def _plan(words: dict[str, Any]) -> RunPlan:
    config = words.pop("config")
    chosen = {} if config is None else load_plan(config)
    for key, value in words.items():
        if value is None:
            continue
        if key in ("seeds", "members"):
            chosen[key] = parse_range(value)
        elif key == "faults":
            chosen[key] = tuple(name for name in value.split(",") if name)
        else:
            chosen[key] = value
    return RunPlan(**chosen)


def _outcomes(plan: RunPlan, logs: Path | None, jobs: int) -> Iterator[GroupOutcome]:
    run = partial(plan.run, logs=logs)
    if jobs == 1:
        yield from map(run, plan.seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, plan.seeds, chunksize=CHUNK)


def _shown(outcomes: Iterable[GroupOutcome], total: int) -> Iterator[GroupOutcome]:
    """The outcomes, with a progress bar on a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("runs"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[bad]} failed"),
    )
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("runs", total=total, bad=0)
        bad = 0
        for outcome in outcomes:
            bad += outcome.kind is not None
            bar.update(task, advance=1, bad=bad)
            yield outcome


def _explore(name: str, limit: int, engine: str | None, tally: Tally, write: Path | None) -> None:
    names = list(SCOPES) if name == "all" else [name]
    for scope in names:
        covered = explore(scope, limit, engine)
        tally.runs += covered.states
        tally.counts[f"states {scope}"] = covered.states
        tally.counts[f"schedules {scope}"] = covered.schedules
        whole = "all" if covered.complete else "the first"
        click.echo(
            f"{scope}: {whole} {covered.states} states, in {covered.schedules} schedules from end to end"
        )
        for outcome in covered.failures:
            tally.failures += 1
            if tally.shown < MAX_SHOWN:
                tally.shown += 1
                _report(outcome, write)
