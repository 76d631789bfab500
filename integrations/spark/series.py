"""The data of the report's plots: stability lag, backlog and metadata over time, a few hundred points."""

from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crdtcast.eventlog.format import EventKind
from crdtcast.integrations.spark.logs import LoggedGroup

BUCKETS = 120
WHOLE = -1
"""The bucket that stands for the whole time."""


@dataclass(slots=True)
class Series:
    """One replica from its group's first event on: one point for each bucket that has data; times in seconds.

    `lag` holds (time, median, 99th percentile) in seconds; `backlog` messages delivered and not stable; `metadata`
    bytes.
    """

    group: str
    replica: str
    lag: list[tuple[float, float, float]] = field(default_factory=list)
    backlog: list[tuple[float, int]] = field(default_factory=list)
    metadata: list[tuple[float, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Lag:
    """Time from delivery to stability at one replica, in seconds."""

    group: str
    replica: str
    messages: int
    median: float
    p99: float
    longest: float


def read_series(
    events: DataFrame, messages: DataFrame, groups: dict[str, LoggedGroup]
) -> tuple[list[Series], list[Lag]]:
    """Both for every replica, in one job."""
    starts = {g.name: min(log.first_ts for log in g.logs.values()) for g in groups.values()}
    ends = {g.name: max(log.last_ts for log in g.logs.values()) for g in groups.values()}
    widths = {name: max(1, -(-(ends[name] - starts[name] + 1) // BUCKETS)) for name in groups}
    zero, width = F.lit(0), F.lit(1)
    for name in groups:
        mine = F.col("group") == name
        zero = F.when(mine, starts[name]).otherwise(zero)
        width = F.when(mine, widths[name]).otherwise(width)

    def bucket(ts: Column) -> Column:
        return F.floor((ts - zero) / width)

    null = F.lit(None).cast("bigint")
    lag = F.col("told_ts") - F.col("ts")
    own = ["group", "replica"]

    # Each message counts +1 where it was delivered, and -1 where it was reported stable; its lag counts at the former.
    def point(bucket: Column, step: int, lag: Column) -> Column:
        return F.struct(
            bucket.cast("bigint").alias("bucket"), F.lit(step).alias("step"), lag.alias("lag")
        )

    steps = messages.select(
        *own,
        F.inline(
            F.array(
                point(bucket(F.col("ts")), 1, lag),
                point(bucket(F.col("told_ts")), -1, null),
                point(F.lit(WHOLE), 0, lag),
            )
        ),
    ).where(F.col("bucket").isNotNull())
    lag = F.col("lag")
    by_bucket = steps.groupBy(*own, "bucket").agg(
        F.sum("step").alias("step"),
        F.count(lag).alias("lagging"),
        F.percentile_approx(lag, [0.5, 0.99, 1.0], 1000).alias("lags"),
        null.alias("bytes"),
    )
    metadata = (
        events.where(F.col("kind") == EventKind.GC)
        .groupBy(*own, bucket(F.col("ts")).alias("bucket"))
        .agg(
            null.alias("step"),
            null.alias("lagging"),
            F.lit(None).cast("array<bigint>").alias("lags"),
            F.max_by("bytes_after", "ts").alias("bytes"),
        )
    )
    rows = by_bucket.unionByName(metadata).collect()

    series = {
        (group.name, log.replica): Series(group.name, log.replica)
        for group in groups.values()
        for log in group.current
    }
    totals: list[Lag] = []
    backlog = dict.fromkeys(series, 0)
    for row in sorted(rows, key=lambda row: row.bucket):
        key = (row.group, row.replica)
        if row.bucket == WHOLE:
            if row.lagging:
                median, p99, longest = (value / 1e6 for value in row.lags)
                totals.append(Lag(row.group, row.replica, row.lagging, median, p99, longest))
            continue
        time = (row.bucket + 1) * widths[row.group] / 1e6
        if row.bytes is not None:
            series[key].metadata.append((time, row.bytes))
        if row.step is not None:
            backlog[key] += row.step
            series[key].backlog.append((time, max(0, backlog[key])))
            if row.lagging:
                series[key].lag.append((time, row.lags[0] / 1e6, row.lags[1] / 1e6))
    return list(series.values()), sorted(totals, key=lambda lag: (lag.group, lag.replica))
