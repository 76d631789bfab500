"""How the demo looks in a terminal: scenes, progress bars, a table. It only shows what it is given."""

import time
from collections.abc import Mapping

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from crdtcast.demo.scenes import REGIONS, SceneOutcome
from crdtcast.demo.verify import CONSTANT_BYTES, metadata_beyond


class Screen:
    """Shows the demo's progress on stderr, so that only results are on stdout."""

    def __init__(self) -> None:
        self.console: Console = Console(stderr=True, highlight=False)
        self.began: float = time.monotonic()
        self.bars: Progress | None = None
        self.tasks: dict[str, TaskID] = {}

    def scene(self, text: str) -> None:
        """Print a line with the time since the start."""
        self.close()
        since = time.monotonic() - self.began
        self.console.print(f"[bold cyan]{since:6.1f} s[/]  [bold]{text}[/]", soft_wrap=True)

    def note(self, text: str) -> None:
        """Print a line that belongs to the scene, above any bars."""
        (self.bars.console if self.bars else self.console).print(
            f"          {text}", soft_wrap=True
        )

    def progress(self, done: Mapping[str, int], total: Mapping[str, int]) -> None:
        """Show a bar for each region."""
        if self.bars is None:
            columns = (TextColumn("          {task.description:<6}"), BarColumn(40))
            self.bars = Progress(*columns, MofNCompleteColumn(), console=self.console)
            self.bars.start()
            self.tasks = {name: self.bars.add_task(name, total=total[name]) for name in total}
        for name, count in done.items():
            self.bars.update(self.tasks[name], completed=count)

    def busy(self) -> None:
        """Show a spinner with the elapsed time, if stderr is a terminal."""
        if self.bars is None and self.console.is_terminal:
            columns = (TextColumn("         "), SpinnerColumn(), TimeElapsedColumn())
            self.bars = Progress(*columns, console=self.console, transient=True)
            self.bars.add_task("", total=None)
            self.bars.start()

    def close(self) -> None:
        """Finish the bars, so that the terminal is as it was."""
        if self.bars is not None:
            self.bars.stop()
            self.bars = None


def result_table(outcome: SceneOutcome) -> Table:
    """A column for each region, a row for each thing to compare."""
    table = Table(title="What the three servers hold", title_justify="left")
    table.add_column("")
    for name in REGIONS:
        table.add_column(name, justify="right")
    rows = {
        "writes taken": [f"{outcome.operations[name]:,}" for name in REGIONS],
        "words in the set": [f"{len(outcome.contents[name].vocabulary):,}" for name in REGIONS],
        "counters": [f"{len(outcome.contents[name].counts):,}" for name in REGIONS],
        "their sum": [f"{sum(outcome.contents[name].counts.values()):,}" for name in REGIONS],
        "metadata, constant": [
            f"{outcome.metadata[name].constant_keys} keys, "
            f"{outcome.metadata[name].constant_bytes:,} B"
            for name in REGIONS
        ],
        "and beyond": [
            f"{outcome.metadata[name].keys} keys, {outcome.metadata[name].bytes:,} B"
            for name in REGIONS
        ],
    }
    for label, cells in rows.items():
        table.add_row(label, *cells)
    return table


def print_result(outcome: SceneOutcome, console: Console) -> None:
    """Print the table, the figures, the differences, and the path of the report."""
    console.print(result_table(outcome))
    writes = sum(outcome.operations.values())
    rate = writes / max(outcome.write_seconds, 1e-9)
    beyond = metadata_beyond(outcome.metadata.values())
    console.print(f"{writes:,} writes in {outcome.write_seconds:.1f} s, {rate:,.0f} a second")
    console.print(
        f"{outcome.operations_while_cut_off:,} of them by a region that was cut off; all regions "
        f"equal {outcome.convergence_seconds:.2f} s after the cut was healed",
        soft_wrap=True,
    )
    console.print(
        f"metadata left, beyond {CONSTANT_BYTES:,} bytes a region: "
        f"{beyond['keys']} keys, {beyond['bytes']} bytes"
    )
    console.print(f"audit: {escape(str(outcome.audit))}")
    if outcome.figures is not None:
        figures = outcome.figures
        console.print(
            f"  {figures.events:,} events, {figures.messages:,} messages, {figures.deliveries:,} "
            f"deliveries; a message is known to be everywhere after {figures.median_lag:.2f} s "
            f"(median), {figures.p99_lag:.2f} s (99th percentile)",
            soft_wrap=True,
        )
    if outcome.report is not None:
        console.print(f"report: {outcome.report}", soft_wrap=True)
    for line in outcome.differences[:10]:
        console.print(f"[red]{escape(line)}[/]", soft_wrap=True)
    if len(outcome.differences) > 10:
        console.print(f"[red]and {len(outcome.differences) - 10:,} more differences[/]")
    verdict = "[bold green]all equal and correct" if outcome.ok else "[bold red]NOT correct"
    console.print(f"{verdict}[/] after {outcome.seconds:.1f} s")
