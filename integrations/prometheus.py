"""Metrics for Prometheus (extra `prometheus`): the status of members, as families and as a page.

    from crdtcast.integrations.prometheus import page
    body = page([status(node)])                       # in the Trio thread

Counters end in `_total`, durations are seconds, sizes bytes. A member's metrics have the labels `node` and `group`,
those about a peer also `peer`.
"""

import platform
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version

from crdtcast.extras import lacks
from crdtcast.group.status import Status
from crdtcast.transport.peers import LinkPhase

try:
    from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ModuleNotFoundError as _missing:
    raise lacks("prometheus", _missing) from None

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_GAUGES = {
    "pending": "Messages waiting for their dependencies",
    "unstable": "Delivered messages not known to be delivered everywhere",
    "stability_lag": "Age of the oldest unstable message, in seconds",
    "store_bytes": "Bytes in memory of messages kept for repair",
    "spilled_bytes": "Bytes on disk of messages kept for repair",
    "held_bytes": "Bytes of all unstable messages, with the bookkeeping of each",
}
_NAMES = {"stability_lag": "stability_lag_seconds"}
_COUNTERS = {
    "sent": "Messages sent by this member",
    "delivered": "Messages of other members delivered",
    "refused_writes": "Writes refused because this member cannot take them now",
    "clock_drift_refused": "Timestamps of other members too far ahead of the clock",
}
_COMPARISON_GAUGES = {
    "differing": "Keys that differ from those of other members",
    "disputed": "Keys refused because the right value is unknown",
    "keys": "Keys compared in the last whole round",
    "left_out": "Keys that the last whole round left out",
}
_COMPARISON_COUNTERS = {
    "found": "Keys found changed directly in a server",
    "put_right": "Keys repaired",
    "rounds": "Whole rounds of comparing keys",
}
_REPAIRS = {
    "repeated": "Messages sent again",
    "duplicates": "Messages received again",
    "digests_sent": "Digests sent",
    "digests_received": "Digests received",
    "asked": "Digests sent that request an answer",
}


_JOURNAL_GAUGES = {
    "bytes": "Bytes of the journal",
    "grown": "Bytes in the journal after its snapshot",
}
_JOURNAL_COUNTERS = {
    "syncs": "Syncs of the journal",
    "sync_seconds": "Seconds spent syncing the journal",
}


class StatusCollector:
    """A collector of `prometheus_client` for these statuses, as of now.

    extra: further gauges, name -> sentence and value, with the labels `node` and `group`; the process may have no
        status yet.
    """

    def __init__(
        self,
        statuses: Iterable[Status],
        extra: Mapping[str, tuple[str, float]] | None = None,
        *,
        node: str = "",
        group: str = "",
    ) -> None:
        self._statuses = list(statuses)
        self._extra = extra or {}
        self._labels = [node, group]

    def collect(self) -> Iterator[Metric]:
        """All metrics, for the registry."""
        labels = ["node", "group"]
        for key, about in _GAUGES.items():
            gauge = GaugeMetricFamily(f"crdtcast_{_NAMES.get(key, key)}", about, labels=labels)
            for each in self._statuses:
                gauge.add_metric([each.node, each.group], getattr(each, key))
            yield gauge
        for key, about in _COUNTERS.items():
            counter = CounterMetricFamily(f"crdtcast_{key}", about, labels=labels)
            for each in self._statuses:
                counter.add_metric([each.node, each.group], getattr(each, key))
            yield counter
        for key, about in _REPAIRS.items():
            counter = CounterMetricFamily(f"crdtcast_repair_{key}", about, labels=labels)
            for each in self._statuses:
                counter.add_metric([each.node, each.group], getattr(each.repair, key))
            yield counter
        most = GaugeMetricFamily("crdtcast_held_most_bytes", "Limit of held bytes", labels=labels)
        for each in self._statuses:
            if each.most_bytes is not None:
                most.add_metric([each.node, each.group], each.most_bytes)
        yield most
        yield from self._of_journals()
        yield from self._of_members()
        yield from self._of_formats()
        yield from self._of_views()
        yield from self._of_comparison()
        yield from self._of_adoption()
        yield from self._of_peers()
        refused = CounterMetricFamily(
            "crdtcast_connections_refused", "Connections refused", labels=[*labels, "reason"]
        )
        for each in self._statuses:
            for reason, count in sorted(each.refused.items()):
                refused.add_metric([each.node, each.group, reason], count)
        yield refused
        for key, (about, value) in self._extra.items():
            gauge = GaugeMetricFamily(f"crdtcast_{key}", about, labels=labels)
            gauge.add_metric(self._labels, value)
            yield gauge

    def _of_journals(self) -> Iterator[Metric]:
        labels = ["node", "group"]
        for keys, kind in (
            (_JOURNAL_GAUGES, GaugeMetricFamily),
            (_JOURNAL_COUNTERS, CounterMetricFamily),
        ):
            for key, about in keys.items():
                family = kind(f"crdtcast_journal_{key}", about, labels=labels)
                for each in self._statuses:
                    if each.journal is not None and key in each.journal:
                        family.add_metric([each.node, each.group], each.journal[key])
                yield family

    def _of_members(self) -> Iterator[Metric]:
        labels = ["node", "group"]
        members = GaugeMetricFamily("crdtcast_members", "Members of the group", labels=labels)
        live = GaugeMetricFamily(
            "crdtcast_members_live", "Members heard, this one included", labels=labels
        )
        unheard = GaugeMetricFamily(
            "crdtcast_members_unheard",
            "Members admitted that have sent nothing yet",
            labels=labels,
        )
        for each in self._statuses:
            silent = {suspect.name for suspect in each.suspects}
            alive = sum(member.name not in silent for member in each.members)
            members.add_metric([each.node, each.group], len(each.members))
            live.add_metric([each.node, each.group], alive)
            unheard.add_metric([each.node, each.group], sum(m.unheard for m in each.members))
        yield from (members, live, unheard)

    def _of_formats(self) -> Iterator[Metric]:
        labels = ["node", "group"]
        level = GaugeMetricFamily("crdtcast_format_level", "Format level in use", labels=labels)
        for each in self._statuses:
            if each.format is not None:
                level.add_metric([each.node, each.group], each.format.level)
        yield level

    def _of_views(self) -> Iterator[Metric]:
        labels = ["node", "group"]
        epoch = GaugeMetricFamily("crdtcast_view_epoch", "Epoch of the view", labels=labels)
        voters = GaugeMetricFamily("crdtcast_voters", "Members with a vote", labels=labels)
        change = GaugeMetricFamily(
            "crdtcast_open_change_seconds",
            "Time since a change of members is open",
            labels=labels,
        )
        wanted = GaugeMetricFamily(
            "crdtcast_wanted_change_seconds",
            "Time since this member requested a change of members",
            labels=labels,
        )
        for each in self._statuses:
            if (view := each.view) is not None:
                key = [each.node, each.group]
                epoch.add_metric(key, view.epoch)
                voters.add_metric(key, len(view.voters))
                change.add_metric(key, 0.0 if view.change is None else view.change.since)
                wanted.add_metric(key, 0.0 if view.wanted is None else view.wanted.since)
        yield from (epoch, voters, change, wanted)

    def _of_adoption(self) -> Iterator[Metric]:
        labels = ["node", "group"]
        keys = GaugeMetricFamily(
            "crdtcast_adoption_keys", "Keys of a database that is being taken over", labels=labels
        )
        passed = GaugeMetricFamily(
            "crdtcast_adoption_passed",
            "Keys of it whose deadlines are in the index",
            labels=labels,
        )
        for each in self._statuses:
            if each.adoption is not None:
                keys.add_metric([each.node, each.group], each.adoption.keys)
                passed.add_metric([each.node, each.group], each.adoption.passed)
        yield from (keys, passed)

    def _of_comparison(self) -> Iterator[Metric]:
        labels = ["node", "group"]
        compared = [
            ([each.node, each.group], each.comparison)
            for each in self._statuses
            if each.comparison is not None
        ]
        for key, about in _COMPARISON_GAUGES.items():
            gauge = GaugeMetricFamily(f"crdtcast_compare_{key}", about, labels=labels)
            for label, found in compared:
                gauge.add_metric(label, getattr(found, key))
            yield gauge
        for key, about in _COMPARISON_COUNTERS.items():
            counter = CounterMetricFamily(f"crdtcast_compare_{key}", about, labels=labels)
            for label, found in compared:
                counter.add_metric(label, getattr(found, key))
            yield counter
        age = GaugeMetricFamily(
            "crdtcast_compare_round_age_seconds", "Time since the last whole round", labels=labels
        )
        for label, found in compared:
            if found.since is not None:
                age.add_metric(label, found.since)
        yield age

    def _of_peers(self) -> Iterator[Metric]:
        labels = ["node", "group", "peer"]
        up = GaugeMetricFamily("crdtcast_link_up", "Whether the link is up", labels=labels)
        queued = GaugeMetricFamily("crdtcast_link_queued_bytes", "Bytes waiting", labels=labels)
        sent = CounterMetricFamily("crdtcast_link_sent_bytes", "Bytes sent", labels=labels)
        received = CounterMetricFamily(
            "crdtcast_link_received_bytes", "Bytes received", labels=labels
        )
        dropped = CounterMetricFamily(
            "crdtcast_link_dropped_frames", "Frames dropped, repaired later", labels=labels
        )
        unheard = CounterMetricFamily(
            "crdtcast_link_dropped_whispers",
            "Whispers that made room for later ones",
            labels=labels,
        )
        reconnects = CounterMetricFamily(
            "crdtcast_link_reconnects", "Times the link was re-established", labels=labels
        )
        suspicion = GaugeMetricFamily(
            "crdtcast_suspicion_level", "Suspicion level of the member", labels=labels
        )
        holding = GaugeMetricFamily(
            "crdtcast_holds_back_seconds",
            "Time since the member holds stability back",
            labels=labels,
        )
        for each in self._statuses:
            for peer, link in each.links.items():
                key = [each.node, each.group, peer]
                up.add_metric(key, link.state is LinkPhase.UP)
                queued.add_metric(key, link.queued_bytes)
                sent.add_metric(key, link.bytes_sent)
                received.add_metric(key, link.bytes_received)
                dropped.add_metric(key, link.dropped_frames)
                unheard.add_metric(key, link.dropped_whispers)
                reconnects.add_metric(key, link.reconnects)
            for suspect in each.suspects:
                suspicion.add_metric([each.node, each.group, suspect.name], suspect.level)
            for holder in each.held_back_by:
                holding.add_metric([each.node, each.group, holder.name], holder.since)
        yield from (up, queued, sent, received, dropped, unheard, reconnects, suspicion, holding)


class _Build:
    """The program's version, as labels of a constant."""

    def collect(self) -> Iterator[Metric]:
        built = GaugeMetricFamily(
            "crdtcast_build_info", "The program and its platform", labels=["version", "python"]
        )
        built.add_metric([version("crdtcast"), platform.python_version()], 1)
        yield built


def page(
    statuses: Iterable[Status],
    extra: Mapping[str, tuple[str, float]] | None = None,
    *,
    node: str = "",
    group: str = "",
) -> bytes:
    """The response to a scrape of `/metrics`. See `StatusCollector`."""
    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(_Build())
    registry.register(StatusCollector(statuses, extra, node=node, group=group))
    return generate_latest(registry)
