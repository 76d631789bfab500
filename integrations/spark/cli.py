"""`crdtcast audit`: exit code 0 if the logs are clean, 1 if there are findings, 2 if the input or the machine does not
allow an audit.

Also the script for a cluster: `spark-submit integrations/spark/cli.py hdfs:///logs --out …`.
"""

import json
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from crdtcast.eventlog.format import GZIP, OPEN, SEALED
from crdtcast.exceptions import CrdtcastError

if TYPE_CHECKING:
    from crdtcast.integrations.spark.result import Result

CLEAN, FINDINGS, UNUSABLE = 0, 1, 2
_LARGE = 100 * 2**20


@click.command()
@click.argument("logdir")
@click.option("--out", required=True, help="Directory for the tables, findings.json, report.html.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the findings as one JSON object on the last line.",
)
@click.option(
    "--live", is_flag=True, help="The logs are still being written: do not check their ends."
)
@click.option("--cores", type=click.IntRange(min=1), help="Threads to use (default: all CPUs).")
@click.option(
    "--memory", default="2g", show_default=True, help="Heap size of Spark's Java process."
)
def audit(logdir: str, out: str, as_json: bool, live: bool, cores: int | None, memory: str) -> None:
    """Check the event logs in LOGDIR with Spark, and write a report.

    Checks order, exactly-once delivery, causal delivery, stability, convergence, and garbage
    collection. LOGDIR and the output directory may be on any Hadoop file system.
    """
    # PySpark is slow to import, and --help does not need it.
    from crdtcast.integrations.spark.audit import run
    from crdtcast.integrations.spark.session import Size, open_session

    console = Console(stderr=True)
    # So that SIGTERM ends Spark's process and removes its directory, too.
    with suppress(ValueError):  # not the main thread, which alone may set it
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        size = Size.LARGE if _is_large(logdir) else Size.SMALL
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        ) as progress:
            task = progress.add_task("starting Spark", total=None)

            def step(name: str) -> None:
                progress.update(task, description=name)

            with open_session(size, cores=cores, memory=memory) as spark:
                result = run(spark, _absolute(logdir), _absolute(out), live=live, progress=step)
    except CrdtcastError as error:
        _give_up(str(error), UNUSABLE)
    except KeyboardInterrupt:
        _give_up("interrupted", 128 + signal.SIGINT)
    _show(result, out, console)
    if as_json:
        click.echo(json.dumps({**result.summary(), "report": f"{out.rstrip('/')}/report.html"}))
    sys.exit(CLEAN if result.verdict.clean else FINDINGS)


def _give_up(message: str, code: int) -> NoReturn:
    click.echo("crdtcast audit: " + " ".join(message.split()), err=True)
    sys.exit(code)


def _show(result: "Result", out: str, console: Console) -> None:
    verdict = result.verdict
    if verdict.clean:
        left_out = ", ".join(result.not_judged)
        console.print(
            f"[green]clean[/green]: {result.lines:,} events, nothing found"
            + (f"; not checked: {left_out}" if left_out else "")
        )
    else:
        table = Table("check", "replica", "what happened", box=None)
        for finding in verdict.findings[:20]:
            table.add_row(finding.check, finding.replica, finding.text)
        console.print(table)
        also = sum(verdict.suppressed.values())
        console.print(
            f"[red]{len(verdict.findings)} findings[/red]"
            + (f", and {also} rows that follow from them" if also else "")
        )
    for note in result.notes:
        console.print(f"note: {note}", markup=False)
    console.print(f"report: {out.rstrip('/')}/report.html", markup=False, soft_wrap=True)


def _absolute(location: str) -> str:
    """Spark's process has another working directory, so a relative path is made absolute."""
    return location if "://" in location else str(Path(location).absolute())


def _is_large(location: str) -> bool:
    if "://" in location:
        return True
    total = 0
    for path in Path(location).rglob("*"):
        if path.name.removesuffix(GZIP).endswith((SEALED, OPEN)):
            total += path.stat().st_size
    return total > _LARGE


if __name__ == "__main__":
    audit()
