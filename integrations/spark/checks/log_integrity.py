"""The logs themselves: `seq` is dense from 1, so lines lost to a full disk are noticed."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from crdtcast.integrations.spark.logs import LoggedGroup
from crdtcast.integrations.spark.rules import Rule, apply

CHECK = "log"


def find(events: DataFrame, groups: dict[str, LoggedGroup]) -> DataFrame | None:
    """Missing and repeated lines; None if the counts of lines already exclude both."""
    broken = [
        log.incarnation for group in groups.values() for log in group.logs.values() if log.has_holes
    ]
    if not broken:
        return None
    one_log = Window.partitionBy("group", "incarnation").orderBy("seq")
    lines = (
        events.where(F.col("incarnation").isin(broken))
        .select("group", "replica", "incarnation", "seq")
        .withColumn("step", F.col("seq") - F.lag("seq", 1, 0).over(one_log))
    )
    return apply(
        lines,
        [
            Rule(
                check=CHECK,
                problem="hole",
                where=F.col("step") > 1,
                number=F.col("step") - 1,
            ),
            Rule(check=CHECK, problem="line twice", where=F.col("step") == 0),
        ],
    )
