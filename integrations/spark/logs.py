"""Summaries of the logs: one row per incarnation and origin. Besides findings and the points of the plots, only these
rows reach the driver. Their number is members times members, whatever the number of events.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from crdtcast.causality.member_id import name_of
from crdtcast.eventlog.format import EventKind, members_in


@dataclass(frozen=True, slots=True)
class Start:
    """A START line: its place, the vector begun from, and what was reported stable before, if the line says."""

    seq: int
    vector: dict[str, int]
    told: dict[str, int] | None


@dataclass(slots=True)
class ToldStable:
    """What one log says about one origin."""

    delivered: int = 0  # lines: SEND and DELIVER
    highest: int = 0
    stable: int = 0  # lines: STABLE
    last_stable: int = 0  # counter of the last one …
    last_stable_seq: int = 0  # … and its place


@dataclass(slots=True)
class LoggedReplica:
    """One incarnation's log as a whole."""

    group: str
    replica: str
    incarnation: str
    index: int = -1
    current: bool = True
    lines: int = 0
    first_seq: int = 0
    last_seq: int = 0
    last_kind: str = ""
    first_ts: int = 0
    last_ts: int = 0
    sent: int = 0
    last_sent_ts: int = 0
    last_act: int = 0  # place of the last SEND or DELIVER
    last_stable: int = 0
    last_state: int = 0
    last_gc: int = 0
    changes: int = 0  # lines: JOIN, LEFT and EVICT
    entries: int | None = None  # of metadata, by the last GC
    claims_stable: int = 0  # place of the last GC or STOP that says that nothing is unstable
    bytes_after: int | None = None
    members: tuple[str, ...] = ()
    starts: list[Start] = field(default_factory=list)
    told: defaultdict[str, ToldStable] = field(default_factory=lambda: defaultdict(ToldStable))

    @property
    def base(self) -> dict[str, int]:
        """The vector with which the incarnation began."""
        return self.starts[0].vector if self.starts else {}

    @property
    def covered(self) -> dict[str, int]:
        """Everything that a START says was delivered before it."""
        return _highest(start.vector for start in self.starts)

    @property
    def told_before(self) -> dict[str, int]:
        """Messages that need no STABLE line: they were stable before a START, or may have been."""
        first = [s.vector for s in self.starts[:1] if s.told is None]
        return _highest([*first, *(s.told for s in self.starts if s.told is not None)])

    @property
    def stopped(self) -> bool:
        """Whether the log ends cleanly."""
        return self.last_kind == EventKind.STOP

    @property
    def has_holes(self) -> bool:
        """Whether lines are missing or repeated."""
        return (self.first_seq, self.last_seq) != (1, self.lines)

    def known(self, origin: str) -> int:
        """The highest counter of `origin` that this replica ever had."""
        return max(self.told[origin].highest, self.covered.get(origin, 0))


@dataclass
class LoggedGroup:
    """The logs of one group. `origins` are the incarnations that occur, in a fixed order."""

    name: str
    logs: dict[str, LoggedReplica]
    origins: list[str]

    @cached_property
    def current(self) -> list[LoggedReplica]:
        """The newest incarnation of each replica."""
        return [log for log in self.logs.values() if log.current]

    @cached_property
    def surviving(self) -> dict[str, int]:
        """Origin -> how many of its messages count.

        Messages of a superseded incarnation that neither its successor nor any other replica ever had were rolled back
        before they were sent.
        """
        counts: dict[str, int] = {}
        for origin in self.origins:
            own = self.logs.get(origin)
            others = max(
                (log.known(origin) for log in self.logs.values() if log is not own), default=0
            )
            if own is None:
                counts[origin] = others
            else:
                sent = own.known(origin)
                counts[origin] = sent if own.current else min(sent, others)
        return counts

    @property
    def is_changing(self) -> bool:
        """Whether its members change."""
        return any(log.changes for log in self.logs.values())

    @property
    def has_states(self) -> bool:
        """Whether some log has values of objects."""
        return any(log.last_state for log in self.logs.values())

    @property
    def has_forgotten(self) -> bool:
        """Whether some log says what is stable, or what metadata is left."""
        return any(
            log.last_stable or log.last_gc or log.claims_stable for log in self.logs.values()
        )

    @property
    def absent(self) -> list[str]:
        """Members without a log."""
        members = {member.partition(".")[0] for log in self.current for member in log.members}
        members |= {name_of(origin) for origin in self.origins}
        return sorted(members - {log.replica for log in self.logs.values()})

    @property
    def unstable(self) -> int:
        """Deliveries at current incarnations that were never reported stable."""
        return sum(
            max(0, told.delivered - told.stable)
            for log in self.current
            for told in log.told.values()
        )


def read_logs(events: DataFrame) -> dict[str, LoggedGroup]:
    """Summarise the events; one small job."""
    kind = F.col("kind")
    act = kind.isin(EventKind.SEND, EventKind.DELIVER)
    stable = kind == EventKind.STABLE
    at = F.col("seq")

    def last(value: str, condition: Column) -> Column:
        return F.max_by(value, F.when(condition, at)).alias(f"last_{value}")

    rows = (
        events.groupBy("group", "replica", "incarnation", "origin")
        .agg(
            F.count(F.lit(1)).alias("lines"),
            F.min("seq").alias("first_seq"),
            F.max("seq").alias("last_seq"),
            F.max_by("kind", "seq").alias("last_kind"),
            F.min("ts").alias("first_ts"),
            F.max("ts").alias("last_ts"),
            F.count(F.when(act, 1)).alias("acts"),
            F.max(F.when(act, F.col("counter"))).alias("highest"),
            F.max(F.when(act, at)).alias("last_act"),
            F.max(F.when(kind == EventKind.SEND, F.col("ts"))).alias("last_sent_ts"),
            F.count(F.when(stable, 1)).alias("stables"),
            F.max_by("counter", F.when(stable, at)).alias("last_stable"),
            F.max(F.when(stable, at)).alias("last_stable_seq"),
            F.max(F.when(kind == EventKind.STATE, at)).alias("last_state"),
            F.max(F.when(kind == EventKind.GC, at)).alias("last_gc"),
            F.count(F.when(kind.isin(EventKind.JOIN, EventKind.LEFT, EventKind.EVICT), 1)).alias(
                "changes"
            ),
            F.max(F.when(F.col("entries") == 0, at)).alias("claims_stable"),
            last("entries", kind == EventKind.GC),
            last("bytes_after", kind == EventKind.GC),
            last("op", kind.isin(EventKind.START, EventKind.SEGMENT)),
            F.collect_list(
                F.when(kind == EventKind.START, F.struct("seq", "vector", "deps"))
            ).alias("starts"),
        )
        .collect()
    )
    logs: dict[str, dict[str, LoggedReplica]] = defaultdict(dict)
    origins: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        log = logs[row.group].setdefault(
            row.incarnation, LoggedReplica(row.group, row.replica, row.incarnation)
        )
        if row.last_seq > log.last_seq:
            log.last_seq, log.last_kind = row.last_seq, row.last_kind
        log.first_seq = min(log.first_seq or row.first_seq, row.first_seq)
        log.first_ts = min(log.first_ts or row.first_ts, row.first_ts)
        log.last_ts = max(log.last_ts, row.last_ts)
        log.lines += row.lines
        log.changes += row.changes
        if row.origin is None:
            log.last_state = row.last_state or 0
            log.last_gc = row.last_gc or 0
            log.claims_stable = row.claims_stable or 0
            log.entries, log.bytes_after = row.last_entries, row.last_bytes_after
            log.members = tuple(members_in(row.last_op))
            log.starts = sorted(
                (
                    Start(s.seq, s.vector or {}, None if s.deps is None else dict(s.deps))
                    for s in row.starts
                ),
                key=lambda start: start.seq,
            )
            for start in log.starts:
                origins[row.group].update(start.vector)
        else:
            origins[row.group].add(row.origin)
            log.told[row.origin] = ToldStable(
                row.acts,
                row.highest or 0,
                row.stables,
                row.last_stable or 0,
                row.last_stable_seq or 0,
            )
            log.last_act = max(log.last_act, row.last_act or 0)
            log.last_stable = max(log.last_stable, row.last_stable_seq or 0)
            if row.origin == row.incarnation:
                log.sent, log.last_sent_ts = row.highest or 0, row.last_sent_ts or 0
    return {
        name: _group(name, logs[name], origins[name] | set(logs[name])) for name in sorted(logs)
    }


def _group(name: str, logs: dict[str, LoggedReplica], origins: set[str]) -> LoggedGroup:
    ordered = sorted(origins)
    newest = {log.replica: "" for log in logs.values()}
    for log in logs.values():
        newest[log.replica] = max(newest[log.replica], log.incarnation)
        log.index = ordered.index(log.incarnation)
    for log in logs.values():
        log.current = newest[log.replica] == log.incarnation
    return LoggedGroup(name, dict(sorted(logs.items())), ordered)


def _highest(vectors: Iterable[dict[str, int]]) -> dict[str, int]:
    highest: dict[str, int] = {}
    for vector in vectors:
        for origin, counter in vector.items():
            highest[origin] = max(counter, highest.get(origin, 0))
    return highest
