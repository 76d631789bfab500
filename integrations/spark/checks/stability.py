"""Stability from its definition: no message concurrent with a stable one can come any more.

`need(x)[k]` is how many messages k had sent when it delivered x. STABLE(x) at i is right iff every member k has
delivered x, and i had already delivered `need(x)[k]` messages of k. STABLE comes once, in causal order, after its own
delivery. (Younes, dissertation 2023, chapter 3.)
"""

from pyspark.sql import functions as F

from crdtcast.integrations.spark.rules import Rule, dot

CHECK = "stability"


def on_messages() -> list[Rule]:
    """Rules for a message reported stable at a replica; members that lack it come first."""
    lacking, early, ended = F.col("lacking"), F.col("early"), F.col("early_of_ended")
    told_seq = F.col("told_seq")
    return [
        Rule(
            check=CHECK,
            problem="not delivered by all",
            where=lacking.isNotNull(),
            seq=told_seq,
            peers=lacking,
            number=F.size(lacking),
        ),
        Rule(
            check=CHECK,
            problem="early",
            where=lacking.isNull() & early.isNotNull(),
            seq=told_seq,
            peers=early,
            other_origin=F.get(early, F.lit(0)),
            other_counter=F.col("early_need"),
            number=F.size(early),
        ),
        Rule(
            check=CHECK,
            problem="early, an ended incarnation",
            where=lacking.isNull() & early.isNull() & ended.isNotNull(),
            seq=told_seq,
            peers=ended,
            number=F.size(ended),
        ),
        Rule(
            check=CHECK,
            problem="twice",
            where=F.col("told_again").isNotNull(),
            seq=F.col("told_again"),
        ),
        Rule(
            check=CHECK,
            problem="before its delivery",
            where=told_seq.isNotNull()
            & F.coalesce(F.col("seq") > told_seq, F.lit(True))
            & ~F.col("is_started_with"),
            seq=told_seq,
        ),
    ]


def on_dependencies() -> list[Rule]:
    """Rules for the order of STABLE lines: that of a dependency comes before its dependant's."""
    already_told = F.coalesce(
        F.get("told_before", F.col("origin_index")) >= F.col("counter"), F.lit(False)
    )
    # A dependency that is never reported stable is a leak, which another check finds.
    too_late = F.col("told_seq") > F.col("told_dependant.told_seq")
    return [
        Rule(
            check=CHECK,
            problem="out of order",
            where=F.col("seq").isNotNull() & too_late & ~already_told,
            seq=F.col("told_dependant.told_seq"),
            other_origin=F.col("origin"),
            other_counter=F.col("counter"),
            peers=F.array("told_dependant.origin"),
            **dot("told_dependant"),
        )
    ]
