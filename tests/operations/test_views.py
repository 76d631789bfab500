"""Log lines as JSON, the metrics page, and `crdtcast config check`."""

import importlib.metadata
import io
import json
import logging
import platform
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from crdtcast.cli import main
from crdtcast.group.status import (
    AdoptionStatus,
    BlameStatus,
    ChangeStatus,
    ComparisonStatus,
    FormatStatus,
    HolderStatus,
    MemberStatus,
    RepairStatus,
    Status,
    SuspectStatus,
    ViewStatus,
    WaitingStatus,
    WantStatus,
    as_json,
)
from crdtcast.integrations.prometheus import page
from crdtcast.service import json_log
from crdtcast.service.admin import top, views
from crdtcast.service.admin.administered import Departure
from crdtcast.service.admin.views import seconds, size
from crdtcast.service.json_log import JsonFormatter, log_to_stderr
from crdtcast.transport.peers import LinkPhase, LinkStatus

STATUS = Status(
    node="eu",
    group="shop",
    incarnation="eu.1",
    standing="member",
    address="127.0.0.1:1",
    caught_up=True,
    format=FormatStatus(1, 1),
    view=ViewStatus(
        41,
        "89ab",
        ("eu", "us"),
        ("asia",),
        ChangeStatus("us", "evict w", 42.0, ("asia",)),
        WantStatus(("w", "x"), ("x",), False, None, 43.0, ("us",)),
    ),
    members=(MemberStatus("eu", "eu.1", False, True, True, False, False, False, (1, 1)),),
    suspects=(SuspectStatus("us", 9.5, 1.0, 14.0),),
    held_back_by=(HolderStatus("us", "us.1", 13.0),),
    waiting=(WaitingStatus("us", "us.1", 30, 31),),
    blamed=(BlameStatus("us", "us.1", 32, "us.1 reports on itself"),),
    links={"us": LinkStatus(LinkPhase.DOWN, 2.0, "h:1", None, "gone", 10, 20, 0, 3, 4, 6)},
    refused={"secret": 2},
    sent=5,
    delivered=6,
    pending=7,
    unstable=8,
    stability_lag=1.5,
    store_bytes=900,
    spilled_bytes=901,
    held_bytes=1902,
    most_bytes=4000,
    repair=RepairStatus(1, 2, 3, 4, 5),
    vector={"eu.1": 5},
    refused_writes=29,
    clock_drift_refused=3,
    journal={"path": "j", "bytes": 31, "grown": 30, "syncs": 32, "sync_seconds": 0.5},
    comparison=ComparisonStatus(21, 22, 23, 24, 25, 26.5, 2700, 28),
    adoption=AdoptionStatus(51, 50),
)


def test_every_figure_is_on_the_metrics_page() -> None:
    text = page([STATUS], {"ready": ("Whether", 1.0)}, node="eu", group="shop").decode()
    found = {
        (sample.name, sample.labels.get("peer") or sample.labels.get("reason")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("node") == "eu" and sample.labels["group"] == "shop"
    }
    assert found == {
        ("crdtcast_members", None): 1,
        ("crdtcast_members_live", None): 1,
        ("crdtcast_members_unheard", None): 0,
        ("crdtcast_pending", None): 7,
        ("crdtcast_unstable", None): 8,
        ("crdtcast_stability_lag_seconds", None): 1.5,
        ("crdtcast_store_bytes", None): 900,
        ("crdtcast_spilled_bytes", None): 901,
        ("crdtcast_held_bytes", None): 1902,
        ("crdtcast_held_most_bytes", None): 4000,
        ("crdtcast_sent_total", None): 5,
        ("crdtcast_delivered_total", None): 6,
        ("crdtcast_refused_writes_total", None): 29,
        ("crdtcast_clock_drift_refused_total", None): 3,
        ("crdtcast_journal_bytes", None): 31,
        ("crdtcast_journal_grown", None): 30,
        ("crdtcast_journal_syncs_total", None): 32,
        ("crdtcast_journal_sync_seconds_total", None): 0.5,
        ("crdtcast_repair_repeated_total", None): 1,
        ("crdtcast_repair_duplicates_total", None): 2,
        ("crdtcast_repair_digests_sent_total", None): 3,
        ("crdtcast_repair_digests_received_total", None): 4,
        ("crdtcast_repair_asked_total", None): 5,
        ("crdtcast_connections_refused_total", "secret"): 2,
        ("crdtcast_format_level", None): 1,
        ("crdtcast_view_epoch", None): 41,
        ("crdtcast_voters", None): 2,
        ("crdtcast_open_change_seconds", None): 42,
        ("crdtcast_wanted_change_seconds", None): 43,
        ("crdtcast_compare_found_total", None): 21,
        ("crdtcast_compare_put_right_total", None): 22,
        ("crdtcast_compare_differing", None): 23,
        ("crdtcast_compare_disputed", None): 24,
        ("crdtcast_compare_rounds_total", None): 25,
        ("crdtcast_compare_round_age_seconds", None): 26.5,
        ("crdtcast_compare_keys", None): 2700,
        ("crdtcast_compare_left_out", None): 28,
        ("crdtcast_adoption_keys", None): 51,
        ("crdtcast_adoption_passed", None): 50,
        ("crdtcast_link_up", "us"): 0,
        ("crdtcast_link_queued_bytes", "us"): 0,
        ("crdtcast_link_sent_bytes_total", "us"): 10,
        ("crdtcast_link_received_bytes_total", "us"): 20,
        ("crdtcast_link_dropped_frames_total", "us"): 3,
        ("crdtcast_link_dropped_whispers_total", "us"): 6,
        ("crdtcast_link_reconnects_total", "us"): 4,
        ("crdtcast_suspicion_level", "us"): 9.5,
        ("crdtcast_holds_back_seconds", "us"): 13,
        ("crdtcast_ready", None): 1,
    }


def test_metrics_page_describes_program_and_process() -> None:
    text = page([]).decode()
    versions = (
        f'python="{platform.python_version()}",version="{importlib.metadata.version("crdtcast")}"'
    )
    assert f"crdtcast_build_info{{{versions}}} 1.0" in text
    assert "process_resident_memory_bytes " in text and "process_start_time_seconds " in text


def test_readable_status_shows_remedies_and_disk_use() -> None:
    text = views.status({**as_json(STATUS), "ready": True, "standing": "disputed"})
    assert "901 B on disk, 47 % of the most" in text and "journal path j" in text
    assert "DISPUTED" in text and "`crdtcast surrender`" in text
    assert "SUSPECT us: silent for 14 s" in text and "HOLDS BACK us: since 13 s" in text
    assert "WAITS us: 30 messages, 31 B, wait for missing ones" in text
    assert "REFUSED us: 32 times, last: us.1 reports on itself" in text


def test_members_view_shows_voters_open_changes_and_requests() -> None:
    found = as_json(STATUS)
    member = found["members"][0] | {"suspect": None, "holds_back_since": None}
    shown = {"standing": "disputed", "view": found["view"], "members": [member]}
    learner = member | {"name": "asia", "votes": False, "evicting": True}
    text = views.members(shown | {"members": [member, learner]})
    for said in (
        "view 41 (89ab): voters eu, us; learners asia",
        "OPEN: us asks to evict w, since 42 s; waits for asia",
        "REQUESTED by this node: evict w, evict x by force, since 43 s; waits for us",
        "DISPUTED: ",
        "learner: no vote yet, being evicted",
    ):
        assert said in text, text
    assert "voters eu, us" in views.status(found | {"ready": True, "waits_for": None})


def test_departure_says_left_or_left_and_not_confirmed() -> None:
    found = {"left": "eu.1", "confirmed": True, "waits_for": []}
    assert views.departure(found).startswith("left: eu.1")
    found |= {"confirmed": False, "waits_for": ["us", "w"]}
    assert views.departure(found).startswith("left, not confirmed: the group has decided that eu.1")
    assert "us, w will learn it" in views.departure(found)
    kept, gone = Departure(True, False, ("us",)), Departure(False, False, ("us",))
    assert Departure().warning(60) is None
    assert str(kept.warning(60)).startswith("left, not confirmed, waited 60 s for us: ")
    assert str(gone.warning(60)).startswith("did not leave, waited 60 s for us: ")


def test_member_without_comparison_or_level_omits_those_metrics() -> None:
    bare = page([replace(STATUS, comparison=None, format=None)]).decode()
    assert "crdtcast_compare_keys{" not in bare
    assert "crdtcast_format_level{" not in bare
    young = replace(STATUS, comparison=ComparisonStatus(0, 0, 0, 0, 0, None, 0, 0))
    assert "crdtcast_compare_round_age_seconds{" not in page([young]).decode()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((0, 0, 0, 0, 0, None, 0, 0), "keys compared: the first round is not complete yet"),
        ((0, 0, 0, 0, 3, 61.4, 2700, 0), "keys compared: 2,700 in the last round, 1 min 1 s ago"),
        ((0, 0, 0, 0, 3, 5, 9, 7), "9 in the last round, 5.0 s ago, 7 left out"),
        ((2, 1, 1, 0, 3, 5, 9, 0), "; changed directly in the server 2, repaired 1; 1 DIFFER"),
        ((2, 0, 1, 1, 3, 5, 9, 0), "1 DISPUTED: `crdtcast repair KEY --from NAME`"),
        (
            (0, 0, 0, 0, 3, 5, 9, 0, {"list": 1200, "deadlines": 2}),
            "5.0 s ago; not replicated: deadlines 2, list 1,200",
        ),
    ],
)
def test_status_and_top_show_the_result_of_comparisons(found: tuple[Any, ...], said: str) -> None:
    shown = as_json(replace(STATUS, comparison=ComparisonStatus(*found))) | {"ready": True}
    assert said in views.status(shown)
    screen = Console(file=io.StringIO(), width=200)
    screen.print(top.view(shown, None, 1.0))
    assert isinstance(screen.file, io.StringIO)
    text = screen.file.getvalue()
    assert said in text and "format level 1" in text


def test_status_shows_the_growth_of_the_journal() -> None:
    text = views.status({**as_json(STATUS), "ready": True, "journal": {"path": "j", "grown": 2048}})
    assert "journal path j, grown 2.0 KiB" in text
    bare = views.status({**as_json(STATUS), "ready": True, "journal": None})
    assert "journal none: in memory only" in bare


def test_any_log_line_is_one_json_object() -> None:
    stream = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        log_to_stderr("eu", "info", as_json=True, stream=stream)
        logger = logging.getLogger("crdtcast.test")
        logger.info("two\nlines, %s", "ünïcode", extra={"peer": "us", "level": "kept", "odd": {1}})
        logger.debug("too quiet")
        try:
            raise ValueError("bug")
        except ValueError:
            logger.exception("unexpected")
    finally:
        root.handlers[:], root.level = before
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["message"] == "two\nlines, ünïcode"
    assert (first["level"], first["node"], first["peer"], first["odd"]) == (
        "info",
        "eu",
        "us",
        "{1}",
    )
    assert first["logger"] == "crdtcast.test"
    assert first["time"].endswith("+00:00")
    assert second["level"] == "error"
    assert "ValueError: bug" in second["traceback"]
    assert JsonFormatter is json_log.JsonFormatter


@pytest.fixture
def log_restored() -> Iterator[None]:
    """What a command does to the process's log is undone."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before


@pytest.mark.usefixtures("log_restored")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["node", "--name", "eu"], "--founders, --found and --join are missing"),
        (["node", "--name", "eu", "--found", "--when-full", "panic"], "choose refuse or evict"),
        (["redis", "--name", "eu", "--state-dir", "/x", "--peer", "us"], "'us' is not a peer"),
        (
            ["witness", "--name", "eu", "--join", "h:1", "--listen", "0.0.0.0:1"],
            "set --advertise",
        ),
    ],
)
def test_fatal_error_is_json_if_logs_are_json(words: list[str], said: str) -> None:
    ended = CliRunner().invoke(main, [*words, "--log-json"])
    line = json.loads(ended.stderr.splitlines()[-1])
    assert (ended.exit_code, line["level"], line["node"]) == (2, "critical", "eu")
    assert said in line["message"]
    plain = CliRunner().invoke(main, words)
    assert (plain.exit_code, plain.stderr[:10]) == (2, "crdtcast: ") and said in plain.stderr


@pytest.mark.usefixtures("log_restored")
def test_unexpected_error_is_json_with_traceback_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(*anything: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("trio.run", run)
    ended = CliRunner().invoke(main, ["node", "--name", "eu", "--found", "--log-json"])
    line = json.loads(ended.stderr.splitlines()[-1])
    assert (ended.exit_code, line["level"]) == (1, "critical")
    assert "ZeroDivisionError: a bug" in line["traceback"]


def test_version_shows_program_formats_and_packages() -> None:
    told = CliRunner().invoke(main, ["version"]).stdout
    assert told.startswith(f"crdtcast {importlib.metadata.version('crdtcast')} (Python ")
    found = json.loads(CliRunner().invoke(main, ["version", "--json"]).stdout)
    assert found["formats"].keys() >= {"wire", "journal", "event_log", "level", "gateway_metadata"}
    assert found["packages"]["trio"] == importlib.metadata.version("trio")


def test_config_check_shows_values_and_their_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "eu.toml"
    file.write_text('name = "eu"\nfound = true\nlog_level = "debug"\n')
    monkeypatch.setenv("CRDTCAST_LOG_LEVEL", "error")
    monkeypatch.setenv("CRDTCAST_LISTN", "x")
    good = CliRunner().invoke(main, ["config", "check", str(file)])
    assert good.exit_code == 0
    assert f'name = "eu"  # {file}' in good.stdout
    assert 'log_level = "error"  # environment' in good.stdout
    assert 'group = "default"  # default' in good.stdout
    assert good.stderr == "note: CRDTCAST_LISTN is set but unused: did you mean CRDTCAST_LISTEN?\n"
    file.write_text('nmae = "eu"\nfound = true\nkeepalive_interval = "soon"')
    bad = CliRunner().invoke(main, ["config", "check", str(file)])
    assert bad.exit_code == 2
    assert [line[:12] for line in bad.stderr.splitlines()] == [
        "error: unkno",
        "error: keepa",
        "error: name ",
        "note: CRDTCA",
    ]
    shown = json.loads(CliRunner().invoke(main, ["config", "check", str(file), "--json"]).stdout)
    (tmp_path / "redis.toml").write_text('name = "eu"\nstate_dir = "/state"\n')
    other = CliRunner().invoke(main, ["config", "check", str(tmp_path / "redis.toml")])
    assert other.exit_code == 2 and "it sets state_dir): add --redis" in other.stderr
    assert shown["ok"] is False and len(shown["wrong"]) == 3
    assert shown["options"]["found"] == {"value": True, "from": str(file)}


def test_durations_and_sizes_for_people() -> None:
    assert [seconds(v) for v in (None, 1.25, 61.4, 3700, 200_000)] == [
        "-",
        "1.2 s",
        "1 min 1 s",
        "1 h 1 min",
        "2 d 7 h",
    ]
    assert [size(v) for v in (5, 2048, 3 * 2**30)] == ["5 B", "2.0 KiB", "3.0 GiB"]


@pytest.mark.parametrize(
    ("format_", "reads", "said"),
    [
        (FormatStatus(1, 1), {"eu": 1, "us": 1}, "format level 1"),
        (
            FormatStatus(1, 1),
            {"eu": 2, "us": 1},
            "format level 1; some members read 2: upgrade us to",
        ),
        (FormatStatus(1, 1), {"eu": 2, "us": 2}, "all members read 2: `crdtcast raise`"),
        (
            FormatStatus(1, 2),
            {"eu": 2, "us": 2},
            "format level 1; 2 comes into force when all members",
        ),
        (FormatStatus(2, 2), {"eu": 2, "us": 2}, "format level 2"),
    ],
)
def test_format_level_line_names_the_members_to_upgrade(
    format_: FormatStatus, reads: dict[str, int], said: str
) -> None:
    members = tuple(
        MemberStatus(name, f"{name}.1", False, True, True, False, False, True, (1, highest))
        for name, highest in reads.items()
    )
    found = as_json(replace(STATUS, format=format_, members=members)) | {"ready": True}
    line = next(line for line in views.status(found).splitlines() if "format level" in line)
    assert said in line
    assert ("raise" in line) is ("raise" in said)
