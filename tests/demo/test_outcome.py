"""The demo's verdict: good only if nothing differs, nothing is left, and the audit has nothing to
say.
"""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from crdtcast.demo.scenes import REGIONS, AuditFigures, SceneOutcome, audit_figures, summary
from crdtcast.demo.screen import Screen, print_result
from crdtcast.demo.verify import CONSTANT_BYTES, Content, MetadataLeft


def outcome(**changes: Any) -> SceneOutcome:
    content = Content({"word": 2}, frozenset(("word",)), ())
    return SceneOutcome(
        operations=dict.fromkeys(REGIONS, 1000),
        write_seconds=2.0,
        contents=dict.fromkeys(REGIONS, content),
        metadata=dict.fromkeys(REGIONS, MetadataLeft(0, 0, 3, CONSTANT_BYTES)),
        **changes,
    )


LEFT = MetadataLeft(keys=1, bytes=64, constant_keys=3, constant_bytes=400)


@pytest.mark.parametrize(
    ("found", "ok"),
    [
        (outcome(), True),
        (outcome(audit="clean"), True),
        (outcome(audit="findings"), False),
        (outcome(audit="failed"), False),
        (outcome(differences=["eu: count:x is 1, should be 2"]), False),
    ],
)
def test_verdict(found: SceneOutcome, ok: bool) -> None:
    assert found.ok is ok
    assert summary(found)["ok"] is ok


def test_metadata_that_is_left_spoils_the_verdict() -> None:
    found = outcome()
    found.metadata["us"] = LEFT
    assert not found.ok
    assert summary(found)["metadata_left"] == {"keys": 1, "bytes": 64}


def test_the_summary_is_one_json_object_with_the_promised_fields() -> None:
    found = outcome(audit="clean", report=Path("report.html"), seconds=12.3456)
    told = json.loads(json.dumps(summary(found)))
    assert told["operations"] == 3000
    assert told["seconds"] == 12.346
    assert told["report"] == "report.html"
    promised = "ok operations seconds convergence_seconds metadata_left audit report"
    assert set(promised.split()) <= told.keys()


def test_the_table_shows_every_region_and_the_first_differences() -> None:
    found = outcome(differences=[f"difference {number}" for number in range(25)])
    text = io.StringIO()
    print_result(found, Console(file=text, width=100))
    for expected in (*REGIONS, "difference 9", "and 15 more", "NOT correct"):
        assert expected in text.getvalue()
    assert "difference 10" not in text.getvalue()


def test_the_audit_s_figures_are_those_of_the_slowest_replica() -> None:
    told = {
        "lines": 900,
        "groups": {"demo": {"messages": 20, "deliveries": 60}},
        "stability_lag_seconds": [
            {"replica": "eu", "median": 0.1, "p99": 0.5, "longest": 1.0},
            {"replica": "us", "median": 0.2, "p99": 0.3, "longest": 0.4},
        ],
    }
    figures = audit_figures(told)
    assert figures == AuditFigures(900, 20, 60, 0.2, 0.5)
    text = io.StringIO()
    print_result(outcome(audit="clean", figures=figures), Console(file=text, width=200))
    assert "900 events, 20 messages, 60 deliveries" in text.getvalue()


def test_notes_appear_while_bars_are_shown() -> None:
    screen = Screen()
    text = io.StringIO()
    screen.console = Console(file=text, width=80)
    screen.scene("Counting")
    screen.progress({"eu": 1}, {"eu": 2})
    screen.note("something happened")
    screen.progress({"eu": 2}, {"eu": 2})
    screen.close()
    assert "something happened" in text.getvalue()
    assert "2/2" in text.getvalue()
