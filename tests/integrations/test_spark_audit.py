"""The audit against made-up logs: silent on clean ones, exact on planted faults.

Many groups go into one audit, because the number of Spark jobs, not of groups, takes the time.
"""

import itertools
import json
import random
import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from crdtcast.eventfiles import Event, Kind
from crdtcast.eventlog import EventLog
from crdtcast.exceptions import UnusableInputError
from crdtcast.tags import Dot, Tag
from crdtcast.testing.eventlogs import Logs, Settings, line, make_up, write_logs
from crdtcast.testing.logfaults import FAULTS, Planted, pasts, plant
from tests.effort import seeds

pytest.importorskip("pyspark")

from crdtcast.integrations.spark import report
from crdtcast.integrations.spark.audit import Result, run
from crdtcast.integrations.spark.cli import audit

pytestmark = [pytest.mark.process, pytest.mark.spark]

HASTY = seeds(2)
LINE = line(next(iter(make_up(Settings()).values()))[0]) + "\n"

CLEAN = [
    Settings(group="three", replicas=3, messages=80, seed=1),
    Settings(group="alone", replicas=1, messages=10, seed=2, cuts=0),
    Settings(group="five", replicas=5, messages=120, seed=3, cuts=3, killed=2),
    Settings(group="restarts", replicas=3, messages=80, seed=5, restarts=4),
    *(
        Settings(
            group=f"ended-{seed}",
            replicas=4,
            messages=80,
            seed=seed,
            restarts=1,
            supersedes=3,
            cuts=2,
        )
        for seed in seeds(1, first=6)
    ),
    *(
        Settings(
            group=f"killed-{seed}",
            replicas=4,
            messages=60,
            seed=seed,
            at_rest=False,
            restarts=1,
            supersedes=1,
        )
        for seed in seeds(1, first=9)
    ),
]


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
            if event.kind == Kind.STABLE:
                later = [e.dot for e in log[place:] if e.kind == Kind.DELIVER]
                if any(event.dot not in past[d] and d not in past[event.dot] for d in later):
                    early.add((event.replica, str(event.dot)))
    return early


def hasty(seed: int) -> Logs:
    """Logs in which many STABLE lines have moved to an earlier place, after the delivery."""
    settings = Settings(
        group=f"hasty-{seed}", replicas=4, messages=40, seed=seed, cuts=2, supersedes=seed % 2
    )
    logs = make_up(settings)
    draw = random.Random(seed)
    for incarnation, log in logs.items():
        for _ in range(12):
            told = [p for p, e in enumerate(log) if e.kind == Kind.STABLE]
            if not told:
                continue
            place = draw.choice(told)
            delivered = [
                p
                for p, e in enumerate(log[:place])
                if e.kind in (Kind.SEND, Kind.DELIVER) and e.dot == log[place].dot
            ]
            if delivered:
                log.insert(draw.randint(delivered[0] + 1, place), log.pop(place))
        logs[incarnation] = [replace(event, seq=seq) for seq, event in enumerate(log, 1)]
    return logs


def raised(group: str) -> Logs:
    """Clean logs in which somebody raises the format level: with its first message, as far as the audit can tell."""
    logs = make_up(Settings(group=group, replicas=3, messages=40, seed=9))
    first = next(event for event in next(iter(logs.values())) if event.kind == Kind.SEND)
    for incarnation, log in logs.items():
        told: list[Event] = []
        for event in log:
            level = 1 if event.kind in (Kind.START, Kind.VIEW) else None
            told.append(replace(event, level=level))
            about = (event.origin, event.counter) == (first.origin, first.counter)
            if about and event.kind in (Kind.SEND, Kind.DELIVER):
                told.append(
                    replace(event, kind=Kind.RAISE, deps=None, object=None, op=None, level=2)
                )
            elif about and event.kind == Kind.STABLE:
                told.append(replace(event, kind=Kind.LEVEL, level=2))
        logs[incarnation] = [replace(event, seq=seq) for seq, event in enumerate(told, 1)]
    return logs


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit")


@pytest.fixture(scope="module")
def everything(spark: Any, directory: Path) -> tuple[Result, dict[str, Planted]]:
    """One audit of all clean groups, all planted faults and all hasty groups: its time goes into the number of logs."""
    groups = [make_up(settings) for settings in CLEAN]
    planted: dict[str, Planted] = {}
    for name in FAULTS:
        logs = make_up(Settings(group=name, replicas=3, messages=30, seed=1, cuts=2))
        planted[name] = plant(name, logs, 1)
        groups.append(logs)
    groups += [hasty(seed) for seed in HASTY]
    groups.append(cut_off("cut-off"))
    groups.append(raised("raised"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "MOST_GROUPS", 2)  # a figure takes as long as the checks of a group
        result = audited(spark, directory, groups)
    return result, planted


@pytest.mark.parametrize("settings", CLEAN, ids=lambda settings: settings.group)
def test_clean_logs_stay_silent(everything: Any, settings: Settings) -> None:
    result, _ = everything
    assert found(result, settings.group) == [], settings


def test_lines_of_the_format_level_stay_silent(everything: Any) -> None:
    kinds = [event.kind for log in raised("raised").values() for event in log]
    assert kinds.count(Kind.RAISE) == kinds.count(Kind.LEVEL) == 3
    assert found(everything[0], "raised") == []


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_where_it_is_and_nothing_else(everything: Any, name: str) -> None:
    """(One of each kind; `test_faults_in_many_groups` has ten.)"""
    result, planted = everything
    fault = planted[name]
    assert found(result, name) == [(fault.check, fault.replica, fault.about)]


@pytest.mark.parametrize("seed", HASTY)
def test_stability_agrees_with_its_definition(everything: Any, seed: int) -> None:
    result, _ = everything
    early = {
        (f.replica, f.dot)
        for f in result.verdict.findings
        if f.group == f"hasty-{seed}" and f.problem.startswith("early")
    }
    assert early == early_by_definition(hasty(seed))


def test_every_finding_reads_as_a_sentence(everything: Any) -> None:
    result, _ = everything
    for finding in result.verdict.findings:
        assert finding.replica in finding.text and "None" not in finding.text, finding


def test_results_are_written(everything: Any, spark: Any, directory: Path) -> None:
    result, _ = everything
    summary = json.loads((directory / "out" / "findings.json").read_text())
    assert summary == json.loads(json.dumps(result.summary()))
    assert not summary["clean"] and summary["suppressed"]["stability"] > 0
    assert spark.read.parquet(str(directory / "out" / "findings")).count() > len(
        summary["findings"]
    )
    events = spark.read.parquet(str(directory / "out" / "events"))
    assert events.count() == result.lines and {"group", "replica"} <= set(events.columns)


def test_the_report_tells_all_and_needs_nothing_else(everything: Any, directory: Path) -> None:
    result, _ = everything
    page = (directory / "out" / "report.html").read_text()
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


def cut_off(group: str) -> Logs:
    """The logs as they are while being written: one replica's ends much earlier."""
    logs = make_up(Settings(group=group, replicas=3, messages=40, seed=21))
    behind = sorted(logs)[0]
    del logs[behind][len(logs[behind]) // 4 :]
    return logs


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
    result, _ = everything
    told = {(f.problem, f.replica) for f in result.verdict.findings if f.group == "cut-off"}
    assert ("missing at the end", "r00") in told
    # What its log does not show was sent all the same.
    assert {problem for problem, replica in told if replica != "r00"} == {"never sent"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        ({}, "no event logs"),
        ({"x.jsonl": "not json\n"}, "none of its lines is an event"),
        ({"x.jsonl": '{"version":2,"group":"g"}\n'}, "none of its lines is an event"),
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
