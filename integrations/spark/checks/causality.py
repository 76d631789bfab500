"""Causal delivery, linear in deliveries times direct dependencies.

(1) The dependencies of a message are delivered before it, at every replica. (2) Completeness, so that no dependency is
left out: everything that a replica delivered before it sent its next message is named by that message, or by one
delivered before that. Together they say that dependencies generate exactly the causal past in the sender's own log.
"""

from collections import defaultdict
from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType

from crdtcast.integrations.spark.findings import Finding
from crdtcast.integrations.spark.rules import Rule, dot
from crdtcast.integrations.spark.schema import columns
from crdtcast.integrations.spark.small import small_table

CHECK = "causality"
OMITTED = "dependency omitted"

_PAIRS = columns(
    group=StringType(),
    incarnation=StringType(),
    origin=StringType(),
    counter=LongType(),
    later=IntegerType(),
    later_counter=LongType(),
)


def on_dependencies() -> list[Rule]:
    """Rules for a message and the messages that name it."""
    started_with = F.exists(
        "starts",
        lambda s: (
            (s["seq"] < F.col("dependant.seq"))
            & (F.get(s["vector"], F.col("origin_index")) >= F.col("counter"))
        ),
    )
    named = F.col("dependant").isNotNull() & ~F.coalesce(started_with, F.lit(False))
    # If its successor was delivered without it or before it, the check of order reports that.
    in_order = F.col("successor").isNull() | ~(F.col("seq") > F.col("successor.seq"))
    this = {"other_origin": F.col("origin"), "other_counter": F.col("counter")}
    sender = F.array("dependant.origin")
    return [
        Rule(
            check=CHECK,
            problem="dependency missing",
            where=named & F.col("seq").isNull() & F.col("successor").isNull(),
            seq=F.col("dependant.seq"),
            peers=sender,
            **dot("dependant"),
            **this,
        ),
        Rule(
            check=CHECK,
            problem="dependency late",
            where=named & in_order & (F.col("seq") > F.col("dependant.seq")),
            seq=F.col("dependant.seq"),
            peers=sender,
            **dot("dependant"),
            **this,
        ),
        Rule(
            check=CHECK,
            problem=OMITTED,
            # A message of a member without a log may have named it.
            where=F.col("is_complete")
            & (F.col("origin") != F.col("incarnation"))
            & (F.col("sent") > F.col("sent_before"))
            & F.coalesce(F.col("named_before_send") > F.col("sent_before"), F.lit(True)),
            origin=F.col("incarnation"),
            counter=F.col("sent_before") + 1,
            **this,
        ),
    ]


def without_heirs(
    spark: SparkSession, messages: DataFrame, found: Iterable[Finding]
) -> list[Finding]:
    """Drop omissions that only follow from an earlier one.

    A replica that delivers y, and a message that omits y, takes y as covered, and does not name it either. Runs a small
    job if several replicas omit one message, and none otherwise.
    """
    found = list(found)
    by_omitted: defaultdict[tuple[str, str | None, int | None], list[int]] = defaultdict(list)
    for place, finding in enumerate(found):
        if finding.problem == OMITTED:
            by_omitted[finding.group, finding.other_origin, finding.other_counter].append(place)
    pairs = [
        {
            "group": group,
            "incarnation": found[later].incarnation,
            "origin": found[earlier].origin,
            "counter": found[earlier].counter,
            "later": later,
            "later_counter": found[later].counter,
        }
        for (group, _, _), places in by_omitted.items()
        for later in places
        for earlier in places
        if found[later].incarnation != found[earlier].incarnation
    ]
    if not pairs:
        return found
    heirs = (
        messages.join(
            small_table(spark, pairs, _PAIRS),
            ["group", "incarnation", "origin", "counter"],
        )
        .where(F.col("sent_before") < F.col("later_counter"))
        .select("later")
        .distinct()
        .collect()
    )
    dropped = {row.later for row in heirs}
    return [finding for place, finding in enumerate(found) if place not in dropped]
