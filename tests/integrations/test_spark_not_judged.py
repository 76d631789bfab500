"""What the audit does not judge, it says; it never calls it fine, and accuses nobody for it."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from crdtcast.eventfiles import Event, Kind
from crdtcast.exceptions import UnusableInputError
from crdtcast.testing.eventlogs import Logs, Settings, make_up, write_logs
from crdtcast.testing.logfaults import plant

pytest.importorskip("pyspark")

from crdtcast.integrations.spark.audit import Result, run
from crdtcast.integrations.spark.cli import audit

pytestmark = [pytest.mark.process, pytest.mark.spark]


def made_up(group: str, **options: Any) -> Logs:
    return make_up(Settings(group=group, replicas=4, messages=24, seed=4, **options))


def without(logs: Logs, *kinds: Kind) -> Logs:
    """The same, where nobody tells lines of these kinds."""
    for incarnation, log in logs.items():
        told = [event for event in log if event.kind not in kinds]
        logs[incarnation] = [replace(event, seq=seq) for seq, event in enumerate(told, 1)]
    return logs


def changing(group: str, kind: Kind) -> Logs:
    """A member joins, leaves or is evicted by the first message, and the last log lacks the second half."""
    logs = made_up(group)
    first = next(event for event in next(iter(logs.values())) if event.kind == Kind.SEND)
    for incarnation, log in logs.items():
        told: list[Event] = []
        for event in log:
            told.append(event)
            if (event.kind, event.origin, event.counter) == (
                Kind.SEND,
                first.origin,
                first.counter,
            ):
                told.append(replace(event, kind=kind, deps=None, object=None, op=None))
        logs[incarnation] = [replace(event, seq=seq) for seq, event in enumerate(told, 1)]
    last = sorted(logs)[-1]
    del logs[last][len(logs[last]) // 2 :]
    return logs


@pytest.fixture(scope="module")
def audited(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Path]:
    directory = tmp_path_factory.mktemp("not-judged")
    absent = made_up("absent")
    del absent[sorted(absent)[-1]]
    faulty = made_up("faulty")
    plant("drop", faulty, 1)
    groups = [
        absent,
        without(made_up("silent"), Kind.STATE, Kind.STABLE, Kind.GC, Kind.STOP),
        *(
            changing(f"changing-{kind.lower()}", kind)
            for kind in (Kind.JOIN, Kind.LEAVE, Kind.EVICT)
        ),
        made_up("whole"),
        faulty,
    ]
    for logs in groups:
        write_logs(directory / "logs", logs)
    for number, path in enumerate(sorted((directory / "logs").iterdir())):
        if number % 2:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    return run(spark, str(directory / "logs"), str(directory / "out")), directory / "logs"


def test_a_missing_log_accuses_nobody(audited: Any) -> None:
    result, _ = audited
    assert {finding.group for finding in result.verdict.findings} == {"faulty"}
    assert any("absent" in note and "no log of r03" in note for note in result.notes)


def test_groups_whose_members_change_are_named_and_left_out(audited: Any) -> None:
    result, _ = audited
    assert sorted(result.groups) == ["absent", "faulty", "silent", "whole"]
    (note,) = [note for note in result.notes if "come and go" in note]
    assert "changing-evict, changing-join, changing-leave" in note and "crdtcast check" in note


def test_a_check_without_lines_is_not_judged(audited: Any) -> None:
    result, _ = audited
    (note,) = [note for note in result.notes if "Group silent: without lines" in note]
    assert "convergence (STATE lines) and garbage (STABLE or GC lines)" in note
    assert result.not_judged == {}  # other groups have such lines


def test_zipped_segments_are_read_as_others(audited: Any) -> None:
    result, logs = audited
    assert len(list(logs.glob("whole*.gz"))) == len(list(logs.glob("whole*.jsonl"))) == 2
    assert len(result.groups["whole"].logs) == 4 and result.torn == 0


@pytest.mark.usefixtures("spark")
def test_what_no_group_has_lines_for_is_never_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_logs(
        tmp_path / "logs", without(made_up("silent"), Kind.STATE, Kind.STABLE, Kind.GC, Kind.STOP)
    )
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # it takes the session that is there
    words = [str(tmp_path / "logs"), "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(audit, words)
    assert done.exit_code == 0, done.output
    assert "not judged: convergence, garbage" in done.stderr
    assert set(json.loads(done.stdout.splitlines()[-1])["not_judged"]) == {"convergence", "garbage"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("not judged:") == 2 and "not judged: no log has a STATE line" in page


def test_only_groups_whose_members_change_are_no_audit(spark: Any, tmp_path: Path) -> None:
    write_logs(tmp_path / "logs", changing("moving", Kind.JOIN))
    with pytest.raises(UnusableInputError, match=r"^Group moving: .* use crdtcast check .*logs$"):
        run(spark, str(tmp_path / "logs"), str(tmp_path / "out"))
