"""The audit against made-up logs: silent on clean ones, exact on planted faults.

Many groups go into one audit, because the number of Spark jobs, not of groups, takes the time.
"""

import itertools
import json
import re
from html import escape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from crdtcast.causality.tags import Dot, Tag
from crdtcast.eventlog.format import EventKind
from crdtcast.eventlog.writer import EventLog
from crdtcast.exceptions import UnusableInputError
from tests.integrations.spark_logs import CLEAN, HASTY, cut_off, hasty, raised, run
from tests.logcheck.event_logs import Logs, Settings, line, make_up, write_logs
from tests.logcheck.log_faults import FAULTS, Planted, pasts, plant

pytest.importorskip("pyspark")

from crdtcast.integrations.spark.cli import audit
from crdtcast.integrations.spark.result import Result

pytestmark = [pytest.mark.process, pytest.mark.spark]

LINE = line(next(iter(make_up(Settings()).values()))[0]) + "\n"


def audited(spark: Any, directory: Path, groups: list[Logs], **options: Any) -> Result:
    for logs in groups:
        write_logs(directory / "logs", logs)
    return run(spark, str(directory / "logs"), str(directory / "out"), **options)


def found(result: Result, group: str) -> list[tuple[str, str, str]]:
    return [
        (f.check, f.replica, f.dot or f.object or "")
        for f in result.verdict.findings
        if f.group == group
    ]


def early_by_definition(logs: Logs) -> set[tuple[str, str]]:
    """(replica, message) told stable with a concurrent message still to be delivered there."""
    past = pasts(logs)
    early: set[tuple[str, str]] = set()
    for log in logs.values():
        for place, event in enumerate(log):
            if event.kind == EventKind.STABLE:
                later = [e.dot for e in log[place:] if e.kind == EventKind.DELIVER]
                if any(event.dot not in past[d] and d not in past[event.dot] for d in later):
                    early.add((event.replica, str(event.dot)))
    return early


@pytest.mark.parametrize("settings", CLEAN, ids=lambda settings: settings.group)
def test_clean_logs_stay_silent(everything: Any, settings: Settings) -> None:
    result = everything.result
    assert found(result, settings.group) == [], settings


def test_lines_of_the_format_level_stay_silent(everything: Any) -> None:
    kinds = [event.kind for log in raised("raised").values() for event in log]
    assert kinds.count(EventKind.VIEW) == 3
    assert found(everything.result, "raised") == []


@pytest.mark.parametrize("name", FAULTS)
def test_audit_finds_exactly_the_planted_fault(everything: Any, name: str) -> None:
    """(One of each kind; `test_faults_in_many_groups` has ten.)"""
    result, fault = everything.result, everything.planted[name]
    assert found(result, name) == [(fault.check, fault.replica, fault.about)]


@pytest.mark.parametrize("seed", HASTY)
def test_stability_agrees_with_its_definition(everything: Any, seed: int) -> None:
    result = everything.result
    early = {
        (f.replica, f.dot)
        for f in result.verdict.findings
        if f.group == f"hasty-{seed}" and f.problem.startswith("early")
    }
    assert early == early_by_definition(hasty(seed))


def test_every_finding_reads_as_a_sentence(everything: Any) -> None:
    result = everything.result
    for finding in result.verdict.findings:
        assert finding.replica in finding.text and "None" not in finding.text, finding


def test_results_are_written(everything: Any, spark: Any) -> None:
    result = everything.result
    summary = json.loads((everything.out / "findings.json").read_text())
    assert summary == json.loads(json.dumps(result.summary()))
    assert not summary["clean"] and summary["suppressed"]["stability"] > 0
    assert spark.read.parquet(str(everything.out / "findings")).count() > len(summary["findings"])
    events = spark.read.parquet(str(everything.out / "events"))
    assert events.count() == result.lines and {"group", "replica"} <= set(events.columns)


def test_the_report_tells_all_and_needs_nothing_else(everything: Any) -> None:
    result = everything.result
    page = (everything.out / "report.html").read_text()
    assert page.index(f"{len(result.verdict.findings)} findings") < page.index("<svg")
    assert page.count("<svg") >= 3
    for finding in result.verdict.findings[:20]:
        assert escape(finding.text) in page
    outside = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?!#)[^\"')\s]+", page)
    assert outside == []
    assert not re.search(r"<script|<link|@import", page)


def write_real_logs(directory: Path) -> None:
    """Two replicas' logs from the writer itself: one ends in a torn line, without a STOP."""
    a, b = "a.0000000000000001", "b.0000000000000001"
    logs = {
        name: EventLog(
            directory,
            group="real",
            replica=name,
            incarnation=f"{name}.0000000000000001",
            clock_us=itertools.count(1_700_000_000_000_000, 1000).__next__,
        )
        for name in ("a", "b")
    }
    for log in logs.values():
        log.start({}, ["a", "b", "absent"])
    logs["a"].send(Tag(Dot(a, 1)))
    logs["b"].deliver(Dot(a, 1))
    logs["b"].send(Tag(Dot(b, 1), (Dot(a, 1),)))
    logs["a"].deliver(Dot(b, 1))
    for log in logs.values():
        for dot in (Dot(a, 1), Dot(b, 1)):
            log.stable(dot)
        log.state("k", {b: 1}, "d1")
        log.gc(500, 100, 0)
    logs["a"].stop(unstable=0)
    logs["b"].flush()
    (segment,) = directory.glob("*.open")
    with open(segment, "ab") as torn:
        torn.write(b'{"version":1,"group":"real","repl')


@pytest.mark.usefixtures("spark")
def test_a_fault_in_logs_still_being_written_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_real_logs(tmp_path / "logs" / "nested")
    write_logs(tmp_path / "logs", cut_off("live"))
    faulty = make_up(Settings(group="faulty", messages=20, seed=1))
    fault = plant("drop", faulty, 1)
    write_logs(tmp_path / "logs", faulty)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # it takes the session that is there
    words = [str(tmp_path / "logs"), "--out", str(tmp_path / "out"), "--live", "--json"]
    done = CliRunner().invoke(audit, words)
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout.splitlines()[-1])
    findings = [(f["group"], f["check"], f["replica"]) for f in told["findings"]]
    assert findings == [("faulty", "order", fault.replica)]
    assert (told["clean"], told["torn_lines"], told["live"]) == (False, 1, True)
    assert Path(told["report"]).is_file()
    notes = " ".join(told["notes"])
    assert "1 torn lines" in notes and "no log of absent" in notes and "still being" in notes


def test_a_log_that_ends_too_early_is_found_when_logs_are_whole(everything: Any) -> None:
    result = everything.result
    told = {(f.problem, f.replica) for f in result.verdict.findings if f.group == "cut-off"}
    assert ("missing at the end", "r00") in told
    # What its log does not show was sent all the same.
    assert {problem for problem, replica in told if replica != "r00"} == {"never sent"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot read"),
        ({}, "no event logs"),
        ({"x.jsonl": "not json\n"}, "no line is an event"),
        ({"x.jsonl": '{"version":2,"group":"g"}\n'}, "no line is an event"),
        ({"x.jsonl": LINE.replace('"version":1', '"version":2')}, "schema version 2"),
    ],
)
def test_unusable_input_is_named(
    spark: Any, tmp_path: Path, content: dict[str, str] | None, words: str
) -> None:
    logs = tmp_path / "logs"
    if content is not None:
        logs.mkdir()
        for name, text in content.items():
            (logs / name).write_text(text)
    with pytest.raises(UnusableInputError, match=words):
        run(spark, str(logs), str(tmp_path / "out"))


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "messages"), [(20, 120), (64, 600)])
def test_many_replicas_are_clean(spark: Any, tmp_path: Path, replicas: int, messages: int) -> None:
    logs = make_up(Settings(group="many", replicas=replicas, messages=messages, seed=replicas))
    assert audited(spark, tmp_path, [logs]).verdict.clean


@pytest.mark.slow
def test_faults_in_many_groups(spark: Any, tmp_path: Path) -> None:
    planted: dict[str, Planted] = {}
    groups = []
    for name in FAULTS:
        for seed in range(100, 110):
            group = f"{name}-{seed}"
            settings = Settings(group=group, replicas=3 + seed % 3, messages=90, seed=seed, cuts=2)
            logs = make_up(settings)
            try:
                planted[group] = plant(name, logs, seed)
            except IndexError:  # these logs have no place for it
                continue
            groups.append(logs)
    assert len(planted) > 8 * len(FAULTS)
    result = audited(spark, tmp_path, groups)
    wrong = {
        group: (fault, found(result, group))
        for group, fault in planted.items()
        if found(result, group) != [(fault.check, fault.replica, fault.about)]
    }
    assert wrong == {}


@pytest.mark.slow
def test_clean_groups_of_many_kinds_stay_silent(spark: Any, tmp_path: Path) -> None:
    groups = [
        make_up(
            Settings(
                group=f"clean-{seed}",
                replicas=2 + seed % 4,
                messages=60,
                seed=seed,
                cuts=seed % 3,
                restarts=seed % 4,
                supersedes=seed % 5,
                killed=seed % 2,
                at_rest=seed % 6 != 0,
            )
        )
        for seed in range(200, 320)
    ]
    result = audited(spark, tmp_path, groups)
    assert result.verdict.findings == ()
