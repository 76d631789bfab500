"""Garbage collection: what can be forgotten is forgotten, and nothing is left when all is quiet.

A leak is a delivered message that was never reported stable at a replica, although the replica provably knew enough.
The proof is another message y that was reported stable there: for that the replica had, from each member k, a vector at
least as new as k's delivery of y. So that vector covers everything that k delivered before. The proof needs no clock,
and no guess about messages on their way.
"""

from collections.abc import Iterator

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StringType

from crdtcast.integrations.spark.findings import Finding
from crdtcast.integrations.spark.logs import LoggedGroup
from crdtcast.integrations.spark.rules import Rule, apply
from crdtcast.integrations.spark.schema import columns
from crdtcast.integrations.spark.small import small_table

CHECK = "garbage"

_PROOFS = columns(
    group=StringType(),
    at=StringType(),
    origin=StringType(),
    counter=LongType(),
)
_ENDS = columns(
    group=StringType(),
    incarnation=StringType(),
    last_stable=LongType(),
    others=LongType(),
    claims_empty=BooleanType(),
)


def leaks(
    spark: SparkSession, messages: DataFrame, groups: dict[str, LoggedGroup]
) -> DataFrame | None:
    """Messages that never became stable although they should have; None if all became stable."""
    concerned = [group for group in groups.values() if group.unstable]
    if not concerned:
        return None
    # The newest message of each origin reported stable since the last START, at which the rows were empty.
    proofs = [
        {"group": group.name, "at": log.incarnation, "origin": origin, "counter": told.last_stable}
        for group in concerned
        for log in group.current
        for origin, told in log.told.items()
        if told.last_stable_seq > max((start.seq for start in log.starts), default=0)
    ]
    ends = [
        {
            "group": group.name,
            "incarnation": log.incarnation,
            "last_stable": log.last_stable,
            "others": len(group.current) - 1,
            # The log itself says that nothing is unstable any more.
            "claims_empty": log.claims_stable > log.last_act,
        }
        for group in concerned
        for log in group.current
    ]
    proven = small_table(spark, proofs, _PROOFS)
    ended = small_table(spark, ends, _ENDS)
    delivered = messages.where(F.col("current") & F.col("seq").isNotNull())
    member = F.col("incarnation").alias("member")
    reach = (
        delivered.join(proven, ["group", "origin", "counter"])
        .groupBy("group", "at", member)
        .agg(F.max("seq").alias("reach"))
    )
    # Notices come in delivery order within a batch, and a log may end in the middle of one. So only messages delivered
    # before the last one reported stable are checked.
    judged_until = (
        messages.join(ended, ["group", "incarnation"])
        .where(F.col("told_seq") == F.col("last_stable"))
        .select("group", "incarnation", F.col("seq").alias("until"))
    )
    unstable = (
        delivered.where(F.col("told_seq").isNull())
        .join(ended, ["group", "incarnation"])
        .join(F.broadcast(judged_until), ["group", "incarnation"], "left")
        .select(
            *("group", "replica", "incarnation", "seq", "origin", "counter"),
            *("others", "claims_empty", "until"),
        )
    )
    elsewhere = delivered.select("group", "origin", "counter", member, F.col("seq").alias("there"))
    message = ["group", "replica", "incarnation", "seq", "origin", "counter"]
    covered = (
        unstable.join(elsewhere, ["group", "origin", "counter"], "left")
        .withColumn("at", F.col("incarnation"))
        .join(F.broadcast(reach), ["group", "at", "member"], "left")
        .groupBy(*message, "others", "claims_empty", "until")
        .agg(
            F.count(
                F.when(
                    (F.col("member") != F.col("incarnation")) & (F.col("there") <= F.col("reach")),
                    1,
                )
            ).alias("covering")
        )
    )
    proof = (F.col("covering") == F.col("others")) & (F.col("seq") < F.col("until"))
    return apply(
        covered,
        [
            Rule(
                check=CHECK,
                problem="leak",
                where=F.col("claims_empty") | F.coalesce(proof, F.lit(False)),
            )
        ],
    )


def at_the_end(group: LoggedGroup) -> Iterator[Finding]:
    """Replicas that log metadata after everything had become stable there."""
    for log in group.current:
        unstable = any(told.stable < told.delivered for told in log.told.values())
        after_all = log.last_gc > max(log.last_act, log.last_stable)
        if log.entries and after_all and not unstable:
            yield Finding(
                check=CHECK,
                problem="metadata left",
                group=group.name,
                replica=log.replica,
                incarnation=log.incarnation,
                seq=log.last_gc,
                number=log.entries,
            )
