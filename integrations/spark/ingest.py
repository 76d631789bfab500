"""JSON lines to Parquet: a raw copy of every line, then the readable ones by group and replica.

Parquet has a tenth of the size and is several times faster to read, and the checks read it often.
Every path may be on any Hadoop file system.
"""

from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from crdtcast.eventlog.format import GZIP, OPEN, SCHEMA_VERSION, SEALED
from crdtcast.exceptions import UnusableInputError
from crdtcast.integrations.spark.schema import EVENT, LINE, TORN

_FEW = 200_000
"""Up to so many lines are kept in memory: opening a file per log, repeatedly, takes longer than reading it."""
_NEEDED = ("version", "group", "replica", "incarnation", "seq", "ts", "kind")


@dataclass(frozen=True, slots=True)
class Ingested:
    """The readable events, to be unpersisted; the number of lines, and of those that could not be read."""

    events: DataFrame
    lines: int
    torn: int


def ingest(spark: SparkSession, logs: str, out: str) -> Ingested:
    """Read all segments under `logs`, sealed or open; write `out`/raw and `out`/events.

    :raises UnusableInputError: if there are no logs, none can be read, or they have a newer schema.
    """
    try:
        lines = (
            spark.read.schema(LINE)
            .option("columnNameOfCorruptRecord", TORN)
            .option("pathGlobFilter", f"*{{{SEALED},{OPEN},{SEALED}{GZIP},{OPEN}{GZIP}}}")
            .option("recursiveFileLookup", "true")
            .json(logs)
        )
    except AnalysisException as error:
        raise UnusableInputError(f"no event logs: cannot read {logs} ({error})") from error
    whole = F.col(TORN).isNull()
    for name in _NEEDED:
        whole &= F.col(name).isNotNull()
    seen = Observation("lines")
    raw = f"{out}/raw"
    (
        lines.withColumn("file", F.col("_metadata.file_name"))
        .observe(
            seen,
            F.count(F.lit(1)).alias("lines"),
            F.count(F.when(~whole, 1)).alias("torn"),
            F.max("version").alias("version"),
        )
        .write.mode("overwrite")
        .parquet(raw)
    )
    counted = seen.get
    if not counted["lines"]:
        raise UnusableInputError(
            f"no event logs in {logs}: no file named *.jsonl or *.jsonl.gz has a line"
        )
    if counted["lines"] == counted["torn"]:
        raise UnusableInputError(f"{logs} holds no event logs: no line is an event")
    if counted["version"] > SCHEMA_VERSION:
        raise UnusableInputError(
            f"cannot audit {logs}: it has schema version {counted['version']}, and this audit "
            f"reads {SCHEMA_VERSION}: use the version of crdtcast that wrote it"
        )
    readable = spark.read.schema(LINE).parquet(raw).where(whole).drop(TORN)
    # No shuffle before it: a segment is of one replica, so each replica gets few files anyway.
    readable.write.mode("overwrite").partitionBy("group", "replica").parquet(f"{out}/events")
    events = spark.read.schema(EVENT).parquet(f"{out}/events")
    if counted["lines"] <= _FEW:
        events = events.cache()
    return Ingested(events, counted["lines"], counted["torn"])
