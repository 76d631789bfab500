"""What the audit does not judge, it says; it never calls it fine, and accuses nobody for it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from crdtcast.eventlog.format import EventKind
from crdtcast.exceptions import UnusableInputError
from tests.integrations.spark_logs import changing, made_up, partly_judged, run, without
from tests.logcheck.event_logs import write_logs

pytest.importorskip("pyspark")

from crdtcast.integrations.spark.cli import audit

pytestmark = [pytest.mark.process, pytest.mark.spark]


def test_missing_log_blames_no_replica(everything: Any) -> None:
    result = everything.result
    accused = {finding.group for finding in result.verdict.findings}
    assert accused & partly_judged().keys() == {"faulty"}
    assert any("absent" in note and "no log of r03" in note for note in result.notes)


def test_groups_whose_members_change_are_named_and_left_out(everything: Any) -> None:
    result = everything.result
    judged = result.groups.keys() & partly_judged().keys()
    assert sorted(judged) == ["absent", "faulty", "silent", "whole"]
    (note,) = [note for note in result.notes if "members change" in note]
    assert "changing-evict, changing-join, changing-left" in note and "crdtcast check" in note


def test_a_check_without_lines_is_not_judged(everything: Any) -> None:
    result = everything.result
    (note,) = [note for note in result.notes if "Group silent: not enough lines" in note]
    assert "convergence (STATE lines) and garbage (STABLE or GC lines)" in note
    assert result.not_judged == {}  # other groups have such lines


def test_zipped_segments_are_read_as_others(everything: Any) -> None:
    result, logs = everything.result, everything.logs
    assert len(list(logs.glob("whole*.gz"))) == len(list(logs.glob("whole*.jsonl"))) == 2
    assert len(result.groups["whole"].logs) == 4 and result.torn == 0


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_check_without_any_lines_is_not_reported_as_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_logs(
        tmp_path / "logs",
        without(made_up("silent"), EventKind.STATE, EventKind.STABLE, EventKind.GC, EventKind.STOP),
    )
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # it takes the session that is there
    words = [str(tmp_path / "logs"), "--out", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(audit, words)
    assert done.exit_code == 0, done.output
    assert "not checked: convergence, garbage" in done.stderr
    assert set(json.loads(done.stdout.splitlines()[-1])["not_judged"]) == {"convergence", "garbage"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("not checked:") == 2 and "not checked: no log has a STATE line" in page


def test_only_groups_whose_members_change_are_no_audit(spark: Any, tmp_path: Path) -> None:
    write_logs(tmp_path / "logs", changing("moving", EventKind.JOIN))
    with pytest.raises(UnusableInputError, match=r"^Group moving: .* use crdtcast check .*logs$"):
        run(spark, str(tmp_path / "logs"), str(tmp_path / "out"))
