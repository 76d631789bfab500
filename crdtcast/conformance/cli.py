"""`crdtcast conformance FILE`: a line for each scenario, totals, and exit code 1 if any failed."""

import json
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from crdtcast.conformance.runner import ScenarioOutcome, ScenarioResult, run_scenario
from crdtcast.conformance.scenario import LEVELS, Scenario, load_scenarios
from crdtcast.conformance.stage import Stage, in_order
from crdtcast.exceptions import UnusableInputError


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--only", multiple=True, metavar="ID", help="Run only this scenario. Repeatable.")
@click.option("--type", "types", multiple=True, metavar="T", help="Run only this type. Repeatable.")
@click.option(
    "--level",
    "levels",
    multiple=True,
    type=click.Choice(LEVELS),
    help="Run only this level. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print totals as JSON on the last line.")
@click.option(
    "--appendfsync",
    type=click.Choice(["always", "everysec", "no"]),
    default="everysec",
    show_default=True,
    help="How the servers write to disk.",
)
@click.option(
    "--timeout",
    default=30.0,
    show_default=True,
    metavar="S",
    help="Time limit in seconds for each reply and exchange.",
)
@click.option("--verbose", is_flag=True, help="Print the purpose of every scenario.")
def conformance(
    file: Path,
    only: Sequence[str],
    types: Sequence[str],
    levels: Sequence[str],
    as_json: bool,
    appendfsync: str,
    timeout: float,
    verbose: bool,
) -> None:
    """Run the scenarios of FILE against real gateways and servers.

    Links are open only during a scenario's `sync` steps. Clocks are moved, not waited for.
    Exit code 0 if nothing failed, 1 if something failed, 2 if FILE is unusable.
    """
    scenarios = chosen(load_scenarios(file), only, types, levels)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends in order, like Ctrl-C
    totals: Counter[ScenarioOutcome] = Counter()
    with tempfile.TemporaryDirectory(prefix="crdtcast-conformance-") as scratch:
        stage = Stage(Path(scratch), appendfsync)
        try:
            for scenario in in_order(scenarios):
                result = run_scenario(scenario, stage, timeout)
                totals[result.outcome] += 1
                print_result(result, verbose)
        finally:
            stage.stop()
    print_totals(totals, as_json)
    sys.exit(1 if totals[ScenarioOutcome.FAILED] else 0)


def chosen(
    scenarios: Sequence[Scenario],
    only: Sequence[str],
    types: Sequence[str],
    levels: Sequence[str],
) -> list[Scenario]:
    """The scenarios that satisfy every kind of option given. Raises UnusableInputError if an id is unknown."""
    known = {scenario.id for scenario in scenarios}
    unknown = [name for name in only if name not in known]
    if unknown:
        raise UnusableInputError(f"unknown scenario {', '.join(unknown)}")
    return [
        scenario
        for scenario in scenarios
        if (not only or scenario.id in only)
        and (not types or scenario.type in types)
        and (not levels or scenario.level in levels)
    ]


STYLES: dict[ScenarioOutcome, dict[str, Any]] = {
    ScenarioOutcome.PASSED: {"fg": "green"},
    ScenarioOutcome.FAILED: {"fg": "red", "bold": True},
    ScenarioOutcome.UNSUPPORTED: {"fg": "yellow"},
}


def print_result(result: ScenarioResult, verbose: bool) -> None:
    """Print a line for a scenario, and its purpose if asked for or if it failed."""
    scenario = result.scenario
    outcome = click.style(f"{result.outcome.value:<17}", **STYLES[result.outcome])
    line = f"{outcome} {scenario.id} ({scenario.type}, {scenario.level}, {result.seconds:.1f} s)"
    click.echo(f"{line}: {result.detail}" if result.detail else line)
    if scenario.why and (verbose or result.outcome is ScenarioOutcome.FAILED):
        click.echo(f"{'':17} why: {scenario.why}")


def print_totals(totals: Counter[ScenarioOutcome], as_json: bool) -> None:
    """Print the sums, for people or as one JSON object."""
    counts = {
        "passed": totals[ScenarioOutcome.PASSED],
        "failed": totals[ScenarioOutcome.FAILED],
        "unsupported": totals[ScenarioOutcome.UNSUPPORTED],
    }
    click.echo(", ".join(f"{count} {name}" for name, count in counts.items()))
    if as_json:
        click.echo(json.dumps(counts))
