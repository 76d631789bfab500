"""The two frames on which the checks work, from one pass along each log and one join.

`messages`: a row for each replica and message: when it was delivered and reported stable there, and what the other
replicas' logs say about that.
`dependencies`: a row for each replica and each message that was delivered there, or that a delivered message depends
on, with the first delivered message that names it.

Vectors are arrays in these frames: each group's incarnations are numbered, and the position is the number. Only their
width grows with the number of members.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, IntegerType, LongType, StringType

from crdtcast.eventlog.format import EventKind
from crdtcast.integrations.spark.logs import LoggedGroup, LoggedReplica
from crdtcast.integrations.spark.schema import columns
from crdtcast.integrations.spark.small import small_table

_VECTOR = ArrayType(LongType())
_BY_ORIGIN = columns(group=StringType(), origin=StringType(), origin_index=IntegerType())
_BY_LOG = columns(
    group=StringType(),
    incarnation=StringType(),
    replica=StringType(),
    index=IntegerType(),
    current=BooleanType(),
    sent=LongType(),
    # Whether there is a log of each origin of the group.
    is_complete=BooleanType(),
    # Delivered before the first START; before each START, unless it begins with nothing; stable before a START.
    base=_VECTOR,
    starts=ArrayType(columns(seq=LongType(), vector=_VECTOR)),
    told_before=_VECTOR,
)
_BY_GROUP = columns(
    group=StringType(),
    incarnations=ArrayType(StringType()),
    # How many messages of each count; up to which number they may be missing from their own log
    # (null: there is no log).
    surviving=_VECTOR,
    unlogged=_VECTOR,
    # Numbers of the current incarnations, and of the ended ones.
    living=ArrayType(IntegerType()),
    ended=ArrayType(IntegerType()),
    # What the START lines of an incarnation cover.
    covers=ArrayType(columns(index=IntegerType(), vector=_VECTOR)),
)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Both frames; see the module."""

    messages: DataFrame
    dependencies: DataFrame


def build(
    spark: SparkSession, events: DataFrame, groups: dict[str, LoggedGroup], *, live: bool
) -> Timeline:
    """Set up both frames; they are cached, and computed by the first job that uses them.

    :param live: logs are still being written, so one may lack what another one says about it.
    """
    width = max(len(group.origins) for group in groups.values())

    by_log = small_table(
        spark,
        [_log_row(log, group, width) for group in groups.values() for log in group.logs.values()],
        _BY_LOG,
    )
    by_origin = small_table(
        spark,
        [
            {"group": group.name, "origin": origin, "origin_index": index}
            for group in groups.values()
            for index, origin in enumerate(group.origins)
        ],
        _BY_ORIGIN,
    )
    by_group = small_table(
        spark, [_group_row(group, width, live) for group in groups.values()], _BY_GROUP
    )
    lines = _lines(events, by_log, by_origin, width)
    messages = _messages(lines, by_log, by_group, live=live).cache()
    return Timeline(messages, _dependencies(messages, by_log, by_origin).cache())


def _array(vector: Mapping[str, int | None], group: LoggedGroup, width: int) -> list[int | None]:
    listed = [vector.get(origin, 0) for origin in group.origins]
    return listed + [0] * (width - len(listed))


def _log_row(log: LoggedReplica, group: LoggedGroup, width: int) -> dict[str, object]:
    return {
        "group": group.name,
        "incarnation": log.incarnation,
        "replica": log.replica,
        "index": log.index,
        "current": log.current,
        "sent": log.sent,
        "is_complete": not group.absent,
        "base": _array(log.base, group, width),
        "starts": [
            {"seq": start.seq, "vector": _array(start.vector, group, width)}
            for place, start in enumerate(log.starts)
            if place or start.vector
        ],
        "told_before": _array(log.told_before, group, width),
    }


def _group_row(group: LoggedGroup, width: int, live: bool) -> dict[str, object]:
    unlogged: dict[str, int | None] = {}
    for origin in group.origins:
        log = group.logs.get(origin)
        open_end = log is None or (live and log.current)
        unlogged[origin] = None if open_end or log is None else log.covered.get(origin, 0)
    return {
        "group": group.name,
        "incarnations": group.origins,
        "surviving": _array(group.surviving, group, width),
        "unlogged": _array(unlogged, group, width),
        "living": [log.index for log in group.current],
        "ended": [log.index for log in group.logs.values() if not log.current],
        "covers": [
            {"index": log.index, "vector": _array(log.covered, group, width)}
            for log in group.logs.values()
            if log.covered
        ],
    }


def _lines(events: DataFrame, by_log: DataFrame, by_origin: DataFrame, width: int) -> DataFrame:
    """SEND, DELIVER and STABLE lines, with what the replica had delivered of each origin before."""
    is_stable = F.col("kind") == EventKind.STABLE
    lines = (
        events.where(F.col("kind").isin(EventKind.SEND, EventKind.DELIVER, EventKind.STABLE))
        .select("group", "incarnation", "seq", "ts", "kind", "origin", "counter", "deps")
        .join(by_origin, ["group", "origin"])
        .join(by_log.select("group", "incarnation", "index"), ["group", "incarnation"])
    )
    earlier = (
        Window.partitionBy("group", "incarnation")
        .orderBy("seq")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    before = [
        F.max(F.when(~is_stable & (F.col("origin_index") == index), F.col("counter"))).over(earlier)
        for index in range(width)
    ]
    return lines.select(
        "*",
        is_stable.alias("is_stable"),
        F.array(*[F.coalesce(highest, F.lit(0)) for highest in before]).alias("before"),
    )


def _messages(lines: DataFrame, by_log: DataFrame, by_group: DataFrame, *, live: bool) -> DataFrame:
    is_stable = F.col("is_stable")
    is_sent = (F.col("kind") == EventKind.SEND) & (F.col("origin") == F.col("incarnation"))
    is_foreign = (F.col("kind") == EventKind.SEND) & (F.col("origin") != F.col("incarnation"))
    # How many messages the replica itself had sent before. If member k delivers x, this is need(x)[k]: the messages of
    # k that are not after x.
    sent_before = F.get("before", F.col("index")).alias("sent_before")
    here = (
        # One shuffle serves both groupings: rows that agree in all five columns agree in these three.
        lines.repartition("group", "origin", "counter")
        .groupBy("group", "origin", "origin_index", "counter", "incarnation", "index")
        .agg(
            F.min(F.when(~is_stable, F.struct("seq", "ts", sent_before))).alias("act"),
            F.max(F.when(~is_stable, F.col("seq"))).alias("last_act"),
            F.min(F.when(is_stable, F.struct("seq", "ts", "before"))).alias("told"),
            F.max(F.when(is_stable, F.col("seq"))).alias("last_told"),
            F.max(F.when(is_foreign, F.col("seq"))).alias("foreign"),
            F.max(F.when(is_sent, F.coalesce("deps", _no_dots()))).alias("deps"),
        )
    )
    replica = F.struct("incarnation", "index", "act", "last_act", "told", "last_told", "foreign")
    everywhere = (
        here.groupBy("group", "origin", "origin_index", "counter")
        .agg(F.collect_list(replica).alias("replicas"), F.max("deps").alias("deps"))
        .join(by_group, "group")
        .withColumn(
            "acts",
            F.transform(
                F.filter("replicas", lambda r: r["act"].isNotNull()),
                lambda r: F.struct(
                    r["index"].alias("index"),
                    # Messages of an ended incarnation count only if they were not rolled back.
                    F.least(r["act"]["sent_before"], F.get("surviving", r["index"])).alias("need"),
                ),
            ),
        )
    )

    def has(index: Column) -> Column:
        """Whether an incarnation delivered the message or began with it."""
        return F.exists("acts", lambda e: e["index"] == index) | F.exists(
            "covers",
            lambda c: (
                (c["index"] == index)
                & (F.get(c["vector"], F.col("origin_index")) >= F.col("counter"))
            ),
        )

    everywhere = (
        everywhere.withColumn("lacking", F.filter("living", lambda k: ~has(k)))
        .withColumn(
            # Incarnations that ended without it: all their messages are concurrent with it.
            "ended",
            F.transform(
                F.filter("ended", lambda k: ~has(k)),
                lambda k: F.struct(k.alias("index"), F.get("surviving", k).alias("need")),
            ),
        )
        .select(
            *("group", "origin", "origin_index", "counter", "deps", "incarnations", "unlogged"),
            *("acts", "lacking", "ended"),
            F.inline("replicas"),
        )
        .join(by_log.drop("index"), ["group", "incarnation"])
    )
    counter, index = F.col("counter"), F.col("origin_index")

    def started_with(before: Column, index: Column, counter: Column) -> Column:
        """Whether a START of this log, before that line, covers a message."""
        return F.exists(
            "starts", lambda s: (s["seq"] < before) & (F.get(s["vector"], index) >= counter)
        )

    def to_come(member: Column) -> Column:
        """Whether this replica had not delivered all of a member's messages concurrent with this one when this one was
        reported stable."""
        index, need = member["index"], member["need"]
        return (
            (index != F.col("index"))
            & (need > F.get("told.before", index))
            & ~started_with(F.col("told.seq"), index, need)
        )

    def names(found: Column, index: Callable[[Column], Column]) -> Column:
        """The incarnations of these members, or null, so that what is cached is small."""
        listed = F.transform(found, lambda e: F.get("incarnations", index(e)))
        return F.when(F.size(found) > 0, listed)

    is_told = F.col("told").isNotNull()
    # A START within a log says what a replica has after a restart; it cannot have less than the same incarnation had
    # before.
    lost_at = F.filter(
        "starts", lambda s: (s["seq"] > F.col("act.seq")) & (F.get(s["vector"], index) < counter)
    )
    everywhere = (
        everywhere.withColumn("early", F.when(is_told, F.filter("acts", to_come)))
        .withColumn("early_of_ended", F.when(is_told, F.filter("ended", to_come)))
        .withColumn("lacking", F.when(is_told, F.filter("lacking", lambda k: k != F.col("index"))))
    )
    return everywhere.select(
        *("group", "incarnation", "replica", "current", "origin", "counter", "deps"),
        F.col("act.seq").alias("seq"),
        F.col("act.ts").alias("ts"),
        F.col("act.sent_before").alias("sent_before"),
        F.when(F.col("last_act") > F.col("act.seq"), F.col("last_act")).alias("again"),
        F.col("told.seq").alias("told_seq"),
        F.col("told.ts").alias("told_ts"),
        F.when(F.col("last_told") > F.col("told.seq"), F.col("last_told")).alias("told_again"),
        "foreign",
        F.col("deps").isNotNull().alias("is_sent"),
        (counter <= F.get("unlogged", index)).alias("is_unlogged"),
        (F.get("base", index) >= counter).alias("is_in_base"),
        F.when(is_told, started_with(F.col("told.seq"), index, counter)).alias("is_started_with"),
        F.get(lost_at, F.lit(0))["seq"].alias("lost_at"),
        # A stability notice is early if a concurrent message can still come: from a member that had sent it before it
        # delivered this one, from a member that has not delivered this one, or from an incarnation
        # that ended without it.
        names(F.col("early"), lambda e: e["index"]).alias("early"),
        F.get("early", F.lit(0))["need"].alias("early_need"),
        F.when(F.lit(not live), names(F.col("lacking"), lambda k: k)).alias("lacking"),
        names(F.col("early_of_ended"), lambda e: e["index"]).alias("early_of_ended"),
    )


def _no_dots() -> Column:
    return F.array().cast("array<struct<origin:string,counter:bigint>>")


def _dependencies(messages: DataFrame, by_log: DataFrame, by_origin: DataFrame) -> DataFrame:
    here = ["group", "incarnation", "origin", "counter"]
    delivered = messages.where(F.col("seq").isNotNull()).select(
        *here, "seq", "sent_before", "told_seq", "deps"
    )
    # Messages of one origin are delivered in order, so each one implicitly depends on its predecessor.
    previous = F.when(
        F.col("counter") > 1,
        F.array(F.struct(F.col("origin"), (F.col("counter") - 1).alias("counter"))),
    )

    def edges(dots: Column, is_previous: bool) -> Column:
        return F.transform(
            F.coalesce(dots, _no_dots()),
            lambda dot: F.struct(
                dot["origin"].alias("origin"),
                dot["counter"].alias("counter"),
                F.lit(is_previous).alias("is_previous"),
            ),
        )

    named = (
        delivered.select(
            "group",
            "incarnation",
            "sent_before",
            F.struct("seq", "origin", "counter").alias("dependant"),
            F.when(F.col("told_seq").isNotNull(), F.struct("told_seq", "origin", "counter")).alias(
                "told_dependant"
            ),
            F.inline(F.concat(edges(F.col("deps"), False), edges(previous, True))),
        )
        .groupBy(*here)
        .agg(
            F.min(F.when(F.col("is_previous"), F.col("dependant"))).alias("successor"),
            F.min(F.when(~F.col("is_previous"), F.col("dependant"))).alias("dependant"),
            F.min("sent_before").alias("named_before_send"),
            F.min("told_dependant").alias("told_dependant"),
        )
    )
    return (
        delivered.drop("deps")
        .join(named, here, "full_outer")
        .join(by_log, ["group", "incarnation"])
        .join(by_origin, ["group", "origin"], "left")
    )
