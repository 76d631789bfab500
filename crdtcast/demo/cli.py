"""`crdtcast demo`: options in, a table out; exit code 0 only if everything is equal and right.

Ctrl-C, SIGTERM and SIGHUP end it in order: no process and no temporary directory is left.
"""

import contextlib
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import click
from rich.console import Console

from crdtcast.demo.scenes import Demo, summary
from crdtcast.demo.screen import Screen, print_result

WORDS = {"small": 12_000, "medium": 240_000, "large": 1_500_000}
TIMEOUT = {"small": 60.0, "medium": 120.0, "large": 900.0}
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.option(
    "--size",
    type=click.Choice(list(WORDS)),
    default="medium",
    show_default=True,
    help="Number of words to count: "
    + ", ".join(f"{name} {count:,}" for name, count in WORDS.items())
    + ".",
)
@click.option("--no-audit", is_flag=True, help="Skip the Spark audit.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on the last line.")
@click.option(
    "--keep", is_flag=True, help="Keep the servers' data and all logs, and print where they are."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("crdtcast-demo"),
    show_default=True,
    help="Directory for the audit's results.",
)
def demo(size: str, no_audit: bool, as_json: bool, keep: bool, out: Path) -> None:
    """Run three replicated servers, write to all of them, and audit the result."""
    screen = Screen()
    try:
        with interruptible(), scratch_directory(keep) as scratch, contextlib.closing(screen):
            course = Demo(scratch, WORDS[size], screen, TIMEOUT[size])
            outcome = course.run(audit_to=None if no_audit else out.absolute())
    except KeyboardInterrupt:
        click.echo("crdtcast: interrupted; all started processes have ended", err=True)
        sys.exit(130)
    print_result(outcome, Console(highlight=False))
    if keep:
        click.echo(f"kept files in {scratch}")
    if as_json:
        click.echo(json.dumps(summary(outcome)))
    sys.exit(0 if outcome.ok else 1)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """The first SIGINT, SIGTERM or SIGHUP raises KeyboardInterrupt; later ones do not disturb the clean-up."""

    def end(number: int, frame: FrameType | None) -> None:
        for one in ENDING:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {one: signal.signal(one, end) for one in ENDING}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextlib.contextmanager
def scratch_directory(keep: bool) -> Iterator[Path]:
    """A new directory, deleted at the end unless `keep` is set."""
    path = Path(tempfile.mkdtemp(prefix="crdtcast-demo-"))
    try:
        yield path
    finally:
        if not keep:
            shutil.rmtree(path, ignore_errors=True)
