"""`crdtcast check`: exit code 0 if the logs are right, 1 if they have a violation, 2 if they cannot be checked."""

import json
import sys
from collections import Counter
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from crdtcast.eventlog.check.check import Checked, check_logs
from crdtcast.eventlog.check.report import explained, located
from crdtcast.exceptions import UnusableInputError

RIGHT, VIOLATED, UNUSABLE = 0, 1, 2


@click.command()
@click.argument("logs", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print counters and the first violations as JSON on the last line.",
)
@click.option(
    "--live", is_flag=True, help="The logs are still being written: do not check their ends."
)
def check(logs: tuple[Path, ...], as_json: bool, live: bool) -> None:
    """Check event logs against the protocol's definitions, one event after the other.

    Checks causal delivery, exactly-once delivery, exact tags, stability, membership, and equal values.
    LOGS are files, or directories searched with their subdirectories. Prints the first event that
    violates a definition, with the lines of the logs around it. Exit code 1 if there is a violation.
    """
    console = Console(stderr=True)
    try:
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        ) as progress:
            task = progress.add_task("reading")

            def read(events: int) -> None:
                progress.update(task, description=f"{events:,} events")

            checked = check_logs(logs, live=live, progress=read)
            text = _text(checked)
    except UnusableInputError as error:
        click.echo("crdtcast check: " + " ".join(str(error).split()), err=True)
        sys.exit(UNUSABLE)
    click.echo(text)
    for note in checked.notes:
        console.print(f"note: {escape(note)}", soft_wrap=True, highlight=False)
    if as_json:
        click.echo(json.dumps(_summary(checked)))
    sys.exit(VIOLATED if checked.violations else RIGHT)


def _text(checked: Checked) -> str:
    lines = []
    if checked.violations:
        first = checked.violations[0]
        lines += [*explained(first, checked.groups[first.group]), ""]
        more = checked.counts_of[first.group]["violations"] - 1
        if more:
            lines.append(f"further violations, which may follow from this one: {more}")
    if len(checked.groups) > 1:
        lines += [_said(counts, f"group {name}: ") for name, counts in checked.counts_of.items()]
    return "\n".join([*lines, _said(checked.counts)])


def _said(counts: Counter[str], where: str = "") -> str:
    return (
        f"{'wrong' if counts['violations'] else 'right'}: {where}"
        f"{counts['events']:,} events of {counts['logs']} logs: {counts['messages']:,} messages, "
        f"{counts['deliveries']:,} deliveries, {counts['stable']:,} stability notices"
    )


def _summary(checked: Checked) -> dict[str, object]:
    names = (
        *("events", "groups", "logs", "messages", "deliveries", "stable", "values"),
        *("joins", "leaves", "evictions", "views", "raises", "reissues"),
        *("unstable", "torn", "violations"),
    )
    return {
        **{name: checked.counts[name] for name in names},
        "first": [located(v, checked.groups[v.group]) for v in checked.violations[:20]],
        "wrong": [name for name, counts in checked.counts_of.items() if counts["violations"]],
        "notes": list(checked.notes),
    }
