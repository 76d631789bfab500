"""Convergence: replicas that have applied the same operations to an object have the same value.

Digests are compared at equal (object, vector), during the whole run and not only at the end.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from crdtcast.eventlog.format import EventKind
from crdtcast.integrations.spark.rules import Rule, apply

CHECK = "convergence"


def find(events: DataFrame) -> DataFrame:
    """For each object with different values, the first cut where they differ: the replica of the rarest digest."""
    told = events.where(F.col("kind") == EventKind.STATE).select(
        "group",
        "replica",
        "incarnation",
        "seq",
        "object",
        "digest",
        F.sort_array(F.map_entries("vector")).alias("cut"),
    )
    # First by hashes alone, which is cheap; nearly always nothing is left after that.
    cut = F.xxhash64("object", "cut").alias("hash")
    digest = F.xxhash64("digest")
    suspect = (
        told.groupBy("group", cut)
        .agg(F.min(digest).alias("least"), F.max(digest).alias("greatest"))
        .where(F.col("least") != F.col("greatest"))
        .select("group", "hash")
    )
    told = told.withColumn("hash", cut).join(F.broadcast(suspect), ["group", "hash"], "left_semi")
    by_digest = told.groupBy("group", "object", "cut", "digest").agg(
        F.min(F.struct("replica", "incarnation", "seq")).alias("first"),
        F.collect_set("replica").alias("replicas"),
    )
    parted = (
        by_digest.groupBy("group", "object", "cut")
        .agg(
            F.array_sort(
                F.collect_list(
                    F.struct(F.size("replicas").alias("votes"), "digest", "first", "replicas")
                )
            ).alias("digests")
        )
        .where(F.size("digests") > 1)
    )
    size = F.aggregate("cut", F.lit(0).cast("bigint"), lambda total, e: total + e["value"])
    per_object = Window.partitionBy("group", "object")
    first = (
        parted.withColumn("size", size)
        .withColumn("cuts", F.count(F.lit(1)).over(per_object))
        .withColumn("place", F.row_number().over(per_object.orderBy("size", "cut")))
        .where(F.col("place") == 1)
        .select("*", F.get("digests", F.lit(0)).alias("rarest"))
    )
    # Without a clear minority it is unknown who is wrong, so all replicas are involved.
    clear = F.get("digests", F.lit(0))["votes"] < F.get("digests", F.lit(1))["votes"]
    everybody = F.flatten(F.transform("digests", lambda d: d["replicas"]))
    return apply(
        first.select(
            "group",
            "object",
            "cuts",
            F.col("rarest.first.replica").alias("replica"),
            F.col("rarest.first.incarnation").alias("incarnation"),
            F.col("rarest.first.seq").alias("seq"),
            F.when(clear, F.col("rarest.replicas")).otherwise(everybody).alias("involved"),
        ),
        [
            Rule(
                check=CHECK,
                problem="parted",
                where=F.lit(True),
                object=F.col("object"),
                peers=F.col("involved"),
                number=F.col("cuts"),
            )
        ],
    )
