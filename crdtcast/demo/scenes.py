"""The demo's course: start, write everywhere with one region cut off for a while, clean up, compare, audit.

Only the plan is fixed; every figure in the result was measured or counted in this run.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from crdtcast.adapters.redis.cluster import LocalCluster
from crdtcast.child_processes import start_child
from crdtcast.demo import corpus, plan, verify
from crdtcast.demo.load import Load, Stream
from crdtcast.demo.verify import Content, MetadataLeft
from crdtcast.exceptions import ServerError

REGIONS = ("eu", "us", "asia")
CUT_OFF = "asia"
REMOVER = "eu"
BATCH = 64
CONNECTIONS = 2
LOOK_EVERY = 0.1
CUT_AT, HEAL_AT = 0.3, 0.6


class SceneView(Protocol):
    """Where the progress is shown."""

    def scene(self, text: str) -> None:
        """A scene begins."""

    def note(self, text: str) -> None:
        """Something happened in the scene."""

    def busy(self) -> None:
        """A long step without progress figures is running."""

    def progress(self, done: Mapping[str, int], total: Mapping[str, int]) -> None:
        """How many commands were answered in each region, and how many there are."""


@dataclass(frozen=True, slots=True)
class AuditFigures:
    """What the audit counted and measured over all replicas. Lags are in seconds, of the slowest replica."""

    events: int
    messages: int
    deliveries: int
    median_lag: float
    p99_lag: float


@dataclass(slots=True)
class SceneOutcome:
    """The result. `differences` are lines for people; empty if all is well."""

    operations: dict[str, int] = field(default_factory=dict)
    operations_while_cut_off: int = 0
    write_seconds: float = 0.0
    seconds: float = 0.0
    convergence_seconds: float = 0.0
    stability_seconds: float = 0.0
    contents: dict[str, Content] = field(default_factory=dict)
    metadata: dict[str, MetadataLeft] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    audit: str = "skipped"
    figures: AuditFigures | None = None
    report: Path | None = None

    @property
    def ok(self) -> bool:
        """Whether all data and metadata are as expected, and the audit found nothing."""
        beyond = verify.metadata_beyond(self.metadata.values())
        return (
            not self.differences and self.audit in ("clean", "skipped") and not any(beyond.values())
        )


class Demo:
    """One run of the demo in the directory `scratch`, with about `words` words."""

    def __init__(self, scratch: Path, words: int, view: SceneView, timeout: float) -> None:
        self.scratch = scratch
        self.view = view
        self.timeout = timeout
        self.logs: Path = scratch / "logs"
        self.outcome: SceneOutcome = SceneOutcome()
        self.began: float = time.monotonic()
        view.scene("Reading the standard library's source files")
        self.thirds: list[list[str]] = corpus.thirds(words)
        self.clean_up: plan.CleanUp = plan.plan_clean_up(self.thirds)
        self.expected: plan.Expected = plan.expected(self.thirds, self.clean_up)

    def run(self, *, audit_to: Path | None) -> SceneOutcome:
        """Run all scenes. audit_to: directory for the audit's results; None skips the audit."""
        self.view.scene("Starting three servers, each with its gateway")
        cluster = LocalCluster(
            self.scratch, REGIONS, group="demo", log_directory=self.logs, appendfsync="everysec"
        )
        with cluster:
            for region in cluster:
                self.view.note(
                    f"{region.name}: server on port {region.server.port}, clients connect to the "
                    f"gateway on port {region.gateway.port}"
                )
            try:
                self.write_everywhere(cluster)
                self.clean(cluster)
                self.compare(cluster)
            except ServerError as error:
                raise ServerError("; ".join([str(error), *cluster.obituaries()])) from error
            self.view.scene("Stopping gateways and servers")
        if audit_to is not None:
            self.audit(audit_to)
        self.outcome.seconds = time.monotonic() - self.began
        return self.outcome

    def write_everywhere(self, cluster: LocalCluster) -> None:
        """Count all words, a third in each region; one region is cut off for part of the time."""
        self.view.scene(f"Counting words in all three regions; {CUT_OFF} is cut off for a while")
        streams = {
            name: Stream(cluster[name].gateway.port, plan.counting(words, BATCH))
            for name, words in zip(REGIONS, self.thirds, strict=True)
        }
        total = {
            name: len(words) - (-len(words) // BATCH)
            for name, words in zip(REGIONS, self.thirds, strict=True)
        }
        at_cut: int | None = None
        healed = False
        with self.timed_load(streams) as load:
            ended = False
            while not ended:
                ended = load.wait(LOOK_EVERY)
                self.view.progress({name: s.operations for name, s in streams.items()}, total)
                share = load.operations / max(1, sum(total.values()))
                if at_cut is None and (share >= CUT_AT or ended):
                    cluster.isolate(CUT_OFF)
                    at_cut = streams[CUT_OFF].operations
                    self.view.note(f"{CUT_OFF} is cut off, and continues to take writes")
                elif at_cut is not None and not healed and (share >= HEAL_AT or ended):
                    self.heal(cluster, streams[CUT_OFF].operations - at_cut)
                    healed = True
        if not healed:
            self.heal(cluster, streams[CUT_OFF].operations - (at_cut or 0))
        self.view.note("waiting until all three hold the same data, and know it")
        cluster.wait_equal(REGIONS, quiet=True, timeout=self.timeout)

    def heal(self, cluster: LocalCluster, taken: int) -> None:
        """Reconnect the isolated region. taken: writes that it took meanwhile."""
        self.outcome.operations_while_cut_off += taken
        cluster.rejoin(CUT_OFF)
        self.view.note(f"{CUT_OFF} is reconnected; it took {taken:,} writes meanwhile")

    def clean(self, cluster: LocalCluster) -> None:
        """Remove words in one region, while another, cut off, adds some of them again."""
        removed, kept = len(self.clean_up.removed), len(self.clean_up.kept)
        self.view.scene(
            f"{REMOVER} removes {removed:,} words, while {CUT_OFF}, cut off again, adds {kept:,} "
            "of them again"
        )
        cluster.isolate(CUT_OFF)
        words = {
            REMOVER: plan.removing(self.clean_up.removed, BATCH),
            CUT_OFF: plan.counting(plan.counting_again(self.clean_up), BATCH),
        }
        (third,) = set(REGIONS) - set(words)
        words[third] = plan.counting(self.clean_up.elsewhere, BATCH)
        streams = {
            name: Stream(cluster[name].gateway.port, batches) for name, batches in words.items()
        }
        with self.timed_load(streams) as load:
            while not load.wait(LOOK_EVERY):
                pass
        self.heal(cluster, streams[CUT_OFF].operations)
        healed = time.monotonic()
        cluster.wait_equal(REGIONS, quiet=False, timeout=self.timeout)
        self.outcome.convergence_seconds = time.monotonic() - healed
        self.view.note(
            f"all three had delivered the same messages {self.outcome.convergence_seconds:.2f} s "
            "after that"
        )
        cluster.wait_equal(REGIONS, quiet=True, timeout=self.timeout)
        self.outcome.stability_seconds = time.monotonic() - healed

    @contextmanager
    def timed_load(self, streams: Mapping[str, Stream]) -> Iterator[Load]:
        """Clients that write `streams`; afterwards the result has their operations and time."""
        began = time.monotonic()
        with Load(streams, CONNECTIONS) as load:
            yield load
        self.outcome.write_seconds += time.monotonic() - began
        for name, stream in streams.items():
            so_far = self.outcome.operations.get(name, 0)
            self.outcome.operations[name] = so_far + stream.operations

    def compare(self, cluster: LocalCluster) -> None:
        """Read all three servers; compare them with each other and with the exact counts."""
        self.view.scene("Comparing the servers with each other and with the exact counts")
        outcome = self.outcome
        digests = {}
        for region in cluster:
            outcome.contents[region.name] = verify.read_content(region.server.port)
            outcome.metadata[region.name] = verify.metadata_left(region)
            told = json.loads(region.command("VERIFY"))
            digests[region.name] = told["keys"], told["digest"]
        outcome.differences = verify.between_regions(outcome.contents)
        outcome.differences += verify.digests_differ(digests)
        for name, content in outcome.contents.items():
            outcome.differences += verify.differences(name, content, self.expected)

    def audit(self, directory: Path) -> None:
        """Check the event logs in a child process, which starts a Java process."""
        self.view.scene("Auditing the event logs with Spark")
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("findings.json", "report.html"):  # of an earlier run
            (directory / name).unlink(missing_ok=True)
        words = [sys.executable, "-m", "crdtcast", "audit", str(self.logs), "--out", str(directory)]
        with open(self.scratch / "audit.log", "wb") as log:
            process = start_child(words, stdout=log, stderr=subprocess.STDOUT)
        try:
            while (code := process.poll()) is None:
                self.view.busy()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_EVERY)
        finally:
            end_group(process)
        findings = directory / "findings.json"
        if code in (0, 1) and findings.exists():  # a crash of Python is code 1, too
            self.outcome.audit = "clean" if code == 0 else "findings"
            self.outcome.figures = audit_figures(json.loads(findings.read_text()))
        else:
            self.outcome.audit = "failed"
        if self.outcome.audit != "clean":
            told = (self.scratch / "audit.log").read_text(errors="replace").splitlines()
            self.outcome.differences += [f"audit: {line}" for line in told[-10:]]
        report = directory / "report.html"
        self.outcome.report = report if report.exists() else None


def audit_figures(told: Mapping[str, Any]) -> AuditFigures:
    """The figures of one group's audit, from its findings.json."""
    (group,) = told["groups"].values()
    lags = told["stability_lag_seconds"]
    return AuditFigures(
        told["lines"],
        group["messages"],
        group["deliveries"],
        max((lag["median"] for lag in lags), default=0.0),
        max((lag["p99"] for lag in lags), default=0.0),
    )


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a child that still runs, with its children: `start_child` put them into one session."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def summary(outcome: SceneOutcome) -> dict[str, object]:
    """The outcome as one JSON object."""
    return {
        "ok": outcome.ok,
        "operations": sum(outcome.operations.values()),
        "seconds": round(outcome.seconds, 3),
        "write_seconds": round(outcome.write_seconds, 3),
        "convergence_seconds": round(outcome.convergence_seconds, 3),
        "stability_seconds": round(outcome.stability_seconds, 3),
        "operations_while_cut_off": outcome.operations_while_cut_off,
        "metadata_left": verify.metadata_beyond(outcome.metadata.values()),
        "audit": outcome.audit,
        "report": str(outcome.report) if outcome.report else None,
        "differences": len(outcome.differences),
    }
