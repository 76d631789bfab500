"""Order by origin, exactly once: every replica delivers 1, 2, 3, … of each origin, and only what that origin sent."""

from collections.abc import Iterator

from pyspark.sql import functions as F

from crdtcast.integrations.spark.findings import Finding
from crdtcast.integrations.spark.logs import LoggedGroup, LoggedReplica
from crdtcast.integrations.spark.rules import Rule

CHECK = "order"


def on_messages() -> list[Rule]:
    """Rules for a message at a replica."""
    seq = F.col("seq")
    return [
        Rule(
            check=CHECK,
            problem="duplicate",
            where=F.col("again").isNotNull() | (seq.isNotNull() & F.col("is_in_base")),
            seq=F.coalesce("again", "seq"),
        ),
        Rule(
            check=CHECK,
            problem="not its origin",
            where=F.col("foreign").isNotNull(),
            seq=F.col("foreign"),
        ),
        Rule(
            check=CHECK,
            problem="never sent",
            where=seq.isNotNull() & ~F.col("is_sent") & ~F.col("is_unlogged"),
            peers=F.array("origin"),
        ),
        Rule(
            check=CHECK,
            problem="rolled back",
            where=F.col("lost_at").isNotNull(),
            seq=F.col("lost_at"),
        ),
    ]


def on_dependencies() -> list[Rule]:
    """Rules for a message and its successor of the same origin."""
    started_with = F.exists(
        "starts",
        lambda s: F.get(s["vector"], F.col("origin_index")) >= F.col("counter"),
    )
    return [
        Rule(
            check=CHECK,
            problem="missing",
            where=F.col("successor").isNotNull() & F.col("seq").isNull() & ~started_with,
            seq=F.col("successor.seq"),
        ),
        Rule(
            check=CHECK,
            problem="out of order",
            where=F.col("seq") > F.col("successor.seq"),
            other_origin=F.col("successor.origin"),
            other_counter=F.col("successor.counter"),
        ),
    ]


def at_the_end(group: LoggedGroup) -> Iterator[Finding]:
    """What a replica lacks at the end of its log, although it cannot have been on its way any more.

    That is so if some replica was notified that the message is stable, which means that all have it. It is also so if
    the log ends cleanly, or the whole group came to rest, and the message was sent before the log's end. (Only this
    check compares the clocks of two machines: a replica that stops first need not have what others send later.)
    """
    at_rest = all(is_at_rest(log) for log in group.current)
    for log in group.current:
        for origin, sent in group.surviving.items():
            if origin == log.incarnation:
                continue  # its own messages are not on their way to it
            known = log.known(origin)
            stable = max(other.told[origin].last_stable for other in group.logs.values())
            owed = stable
            sender = group.logs.get(origin)
            if (log.stopped or at_rest) and (sender is None or sender.last_sent_ts <= log.last_ts):
                owed = max(owed, sent)
            if known < owed:
                yield Finding(
                    check=CHECK,
                    problem="missing at the end",
                    group=group.name,
                    replica=log.replica,
                    incarnation=log.incarnation,
                    seq=log.last_seq,
                    origin=origin,
                    counter=known + 1,
                    number=owed - known,
                )


def is_at_rest(log: LoggedReplica) -> bool:
    """Whether a log shows that its replica had come to rest: a clean end, or a STATE after the last delivery."""
    return log.stopped or log.last_state > log.last_act
