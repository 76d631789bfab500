"""The audit as a whole: logs in, verdict, tables and report out."""

import json
import time
from collections.abc import Callable
from functools import reduce

from crdtcast.extras import lacks

try:
    from pyspark.sql import DataFrame, SparkSession, Window
    from pyspark.sql import functions as F
except ModuleNotFoundError as _missing:
    raise lacks("spark", _missing) from None

from crdtcast.eventlog.format import EventKind
from crdtcast.exceptions import UnusableInputError
from crdtcast.integrations.spark import rules, timeline
from crdtcast.integrations.spark.checks import (
    causality,
    convergence,
    exactly_once,
    garbage,
    log_integrity,
    stability,
)
from crdtcast.integrations.spark.files import write_text
from crdtcast.integrations.spark.findings import Finding, from_row
from crdtcast.integrations.spark.ingest import Ingested, ingest
from crdtcast.integrations.spark.logs import LoggedGroup, read_logs
from crdtcast.integrations.spark.report.page import render
from crdtcast.integrations.spark.result import Result
from crdtcast.integrations.spark.series import read_series
from crdtcast.integrations.spark.verdict import judge

MOST_FINDINGS = 5000
"""At most so many findings of one problem reach the driver; the Parquet table has all."""


def run(
    spark: SparkSession,
    logs: str,
    out: str,
    *,
    live: bool = False,
    progress: Callable[[str], object] = lambda step: None,
) -> Result:
    """Audit all groups under `logs` and write Parquet, findings.json and report.html to `out`.

    :param logs: directory on any Hadoop file system, searched with its sub-directories.
    :param live: the logs are still being written; what a log lacks at its end is not checked.
    :param progress: called with each step as it begins.
    :raises UnusableInputError: if there is nothing to audit.
    """
    begun = time.monotonic()
    progress("reading the logs")
    ingested = ingest(spark, logs, out)
    try:
        result = _judged(spark, ingested, logs, out, live, progress, begun)
    finally:
        ingested.events.unpersist()
    progress("writing the report")
    write_text(spark, f"{out}/findings.json", json.dumps(result.summary(), indent=2) + "\n")
    write_text(spark, f"{out}/report.html", render(result))
    return result


def _judged(
    spark: SparkSession,
    ingested: Ingested,
    logs: str,
    out: str,
    live: bool,
    progress: Callable[[str], object],
    begun: float,
) -> Result:
    """The findings in the events; the table of findings goes to `out`."""
    everything = read_logs(ingested.events)
    changing = [name for name, group in everything.items() if group.is_changing]
    groups = {name: group for name, group in everything.items() if name not in changing}
    if not groups:
        raise UnusableInputError(f"{_says_changing(changing)}: use crdtcast check {logs}")
    events = ingested.events
    if changing:
        events = events.where(~F.col("group").isin(changing))
    progress("checking order, causality, stability and convergence")
    frames = timeline.build(spark, events, groups, live=live)
    try:
        found, total = _find(spark, events, frames, groups, out)
        if not live:
            found += [f for group in groups.values() for f in exactly_once.at_the_end(group)]
        found += [f for group in groups.values() for f in garbage.at_the_end(group)]
        verdict = judge(causality.without_heirs(spark, frames.messages, found))
        progress("measuring lag, backlog and metadata")
        series, lags = read_series(events, frames.messages, groups)
    finally:
        frames.dependencies.unpersist()
        frames.messages.unpersist()
    return Result(
        verdict=verdict,
        groups=groups,
        lines=ingested.lines,
        torn=ingested.torn,
        not_judged=_not_judged(groups),
        notes=(
            *([f"{_says_changing(changing)}: use crdtcast check."] if changing else []),
            *_notes(groups, ingested.torn, total, live),
        ),
        lags=tuple(lags),
        series=tuple(series),
        seconds=time.monotonic() - begun,
        live=live,
    )


def _find(
    spark: SparkSession,
    events: DataFrame,
    frames: timeline.Timeline,
    groups: dict[str, LoggedGroup],
    out: str,
) -> tuple[list[Finding], int]:
    """All findings from Spark, as a table and, up to a limit, as values; and their number."""
    parts = [
        rules.apply(frames.messages, exactly_once.on_messages() + stability.on_messages()),
        rules.apply(
            frames.dependencies,
            exactly_once.on_dependencies()
            + causality.on_dependencies()
            + stability.on_dependencies(),
        ),
        convergence.find(events),
        log_integrity.find(events, groups),
        garbage.leaks(spark, frames.messages, groups),
    ]
    table = f"{out}/findings"
    everything = reduce(DataFrame.unionByName, [part for part in parts if part is not None])
    everything.coalesce(1).write.mode("overwrite").parquet(table)
    each = Window.partitionBy("group", "check", "problem")
    ranked = (
        spark.read.schema(everything.schema)
        .parquet(table)
        .withColumn("of_its_kind", F.count(F.lit(1)).over(each))
        .withColumn("rank", F.row_number().over(each.orderBy("incarnation", "seq")))
        .where(F.col("rank") <= MOST_FINDINGS)
    )
    rows = [row.asDict() for row in ranked.collect()]
    total = sum(row["of_its_kind"] for row in rows if row["rank"] == 1)
    for row in rows:
        del row["of_its_kind"], row["rank"]
    return [from_row(row) for row in rows], total


def _says_changing(groups: list[str]) -> str:
    which = "Group" if len(groups) == 1 else "Groups"
    return f"{which} {', '.join(groups)}: their members change, which this audit does not check"


def _without_lines(group: LoggedGroup) -> dict[str, str]:
    """The checks for which a group has no line, with the kinds of these lines."""
    kinds = {}
    if not group.has_states:
        kinds[convergence.CHECK] = EventKind.STATE.value
    if not group.has_forgotten:
        kinds[garbage.CHECK] = f"{EventKind.STABLE} or {EventKind.GC}"
    return kinds


def _not_judged(groups: dict[str, LoggedGroup]) -> dict[str, str]:
    """The checks for which no group has a line, and what is missing."""
    lacking = [_without_lines(group) for group in groups.values()]
    return {
        check: f"no log has a {kinds} line"
        for check, kinds in lacking[0].items()
        if all(check in each for each in lacking)
    }


def _notes(groups: dict[str, LoggedGroup], torn: int, found: int, live: bool) -> list[str]:
    notes: list[str] = []
    if torn:
        notes.append(f"skipped {torn} torn lines (a crash leaves at most one in a segment).")
    if live:
        notes.append("The logs were still being written: their ends are not checked.")
    for group in groups.values():
        if group.absent:
            notes.append(
                f"Group {group.name}: no log of {', '.join(group.absent)}. Stability is checked "
                "with the other members' logs only. The missing members' own messages cannot be "
                "checked, nor whether the others name all dependencies."
            )
        if lacking := _without_lines(group):
            missing = " and ".join(f"{check} ({kinds} lines)" for check, kinds in lacking.items())
            notes.append(f"Group {group.name}: not enough lines to check {missing}.")
        unstarted = [log.incarnation for log in group.logs.values() if not log.starts]
        if unstarted:
            notes.append(
                f"Group {group.name}: the logs of {', '.join(unstarted)} have no START line; the "
                "audit assumes that they start with nothing delivered."
            )
        if group.unstable:
            notes.append(
                f"Group {group.name}: {group.unstable} deliveries were not stable at the end"
                f"{_held_back_by(group)}."
            )
    if found > MOST_FINDINGS:
        notes.append(f"{found} rows in all; this page shows at most {MOST_FINDINGS} of a kind.")
    return notes


def _held_back_by(group: LoggedGroup) -> str:
    """The members that lack most deliveries at the end."""
    lacks = {
        log.replica: sum(max(0, n - log.known(o)) for o, n in group.surviving.items())
        for log in group.current
    }
    behind = sorted((name for name, n in lacks.items() if n), key=lambda name: -lacks[name])
    if not behind:
        return ", though every log shows everything delivered"
    return "; behind: " + ", ".join(f"{name} (by {lacks[name]})" for name in behind[:5])
