"""What `crdtcast check` reads, and how it ends: exit codes, one line for what is no log."""

import gzip
import json
import os
from pathlib import Path
from random import Random

import pytest
import trio
from click.testing import CliRunner, Result

from crdtcast import cli, open_replica
from crdtcast.datatypes import AWSet
from crdtcast.eventlog.check import Problem, check_logs
from crdtcast.eventlog.format import COLUMNS, SCHEMA_VERSION
from tests.logcheck.event_logs import Logs, Settings, line, make_up, write_logs
from tests.logcheck.log_faults import plant


def right_logs() -> Logs:
    return make_up(Settings(replicas=3, messages=40, seed=31))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.main, ["check", *map(os.fspath, map(str, arguments))])


def test_right_logs_end_with_0_and_counters(tmp_path: Path) -> None:
    logs = right_logs()
    write_logs(tmp_path / "deep" / "inside", logs)
    result = run(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    counters = json.loads(result.stdout.splitlines()[-1])
    assert counters["events"] == sum(map(len, logs.values()))
    assert (counters["violations"], counters["messages"], counters["logs"]) == (0, 40, 3)
    assert result.stdout.startswith("right: ")


def test_first_wrong_event_is_shown_with_its_neighbours(tmp_path: Path) -> None:
    logs = right_logs()
    planted = plant("drop", logs, 1)
    write_logs(tmp_path, logs)
    result = run(tmp_path, "--json")
    assert result.exit_code == 1
    *text, last = result.stdout.splitlines()
    first = json.loads(last)["first"][0]
    assert text[0] == f"{first['problem']}: {first['sentence']}"
    assert first["time"].endswith("UTC") and first["file"] in text[1]
    assert planted.about in first["others"]
    number = first["line"]
    shown = [int(line.split()[1 if line[2] == ">" else 0]) for line in text[5:16]]
    assert shown == list(range(number - 5, number + 6))
    assert text[10].startswith(f"  > {number:>6}  ")
    assert f"{planted.about} is sent:" in text, "and the message that proves it"


def test_truncated_log_is_named_unless_checked_live(tmp_path: Path) -> None:
    logs = right_logs()
    behind = sorted(logs)[0]
    del logs[behind][len(logs[behind]) // 2 :]
    write_logs(tmp_path, logs)
    first = check_logs([tmp_path]).violations[0]
    assert first.problem in (Problem.GHOST, Problem.UNSAFE_STABLE)
    assert f"the log of {behind} ends" in first.sentence and first.peers == (behind,)
    assert check_logs([tmp_path], live=True).violations == ()


def test_torn_last_line_is_not_a_violation(tmp_path: Path) -> None:
    logs = make_up(Settings(replicas=3, messages=40, seed=31, killed=1))
    write_logs(tmp_path, logs)
    killed = tmp_path / sorted(os.listdir(tmp_path))[0]
    with open(killed, "ab") as file:
        file.write(b'{"version":1,"group":"g","repl')
    killed.rename(f"{killed}.open")
    result = run(tmp_path)
    assert result.exit_code == 0 and "1 torn lines" in result.stderr


def test_lines_that_are_missing_in_the_middle_are_a_violation(tmp_path: Path) -> None:
    write_logs(tmp_path, right_logs())
    segment = tmp_path / sorted(os.listdir(tmp_path))[0]
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([*lines[:20], b"{torn\n", *lines[23:]]))
    first = check_logs([tmp_path]).violations[0]
    assert (first.problem, first.place.line) == (Problem.LOG, 22)
    assert "lacks its events 21 to 23" in first.sentence


def test_gzipped_segments_are_read_also_if_one_ends_too_early(tmp_path: Path) -> None:
    write_logs(tmp_path, right_logs())
    for name in sorted(os.listdir(tmp_path)):
        plain = tmp_path / name
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    result = check_logs([tmp_path])
    assert (result.violations, result.counts["messages"]) == ((), 40)
    cut = sorted(tmp_path.iterdir())[0]
    whole = cut.read_bytes()
    cut.write_bytes(whole[: len(whole) // 3])
    result = check_logs([tmp_path])
    assert result.counts["torn"] >= 1 and result.violations


def test_segments_are_one_log_and_files_may_be_named(tmp_path: Path) -> None:
    logs = right_logs()
    files = []
    for incarnation, events in logs.items():
        for place in range(0, len(events), 50):
            path = tmp_path / f"{incarnation}--{place:04}.jsonl"
            path.write_text("".join(line(e) + "\n" for e in events[place : place + 50]))
            files.append(path)
    assert check_logs(files).violations == ()
    assert check_logs(files).counts["logs"] == 3


def test_several_groups_are_checked_each_for_itself(tmp_path: Path) -> None:
    for group in ("one", "two"):
        logs = make_up(Settings(group=group, replicas=2, messages=20, seed=5))
        if group == "two":
            plant("stable-twice", logs, 1)
        write_logs(tmp_path, logs)
    result = check_logs([tmp_path])
    assert {v.group for v in result.violations} == {"two"}
    assert (result.counts["groups"], result.counts["messages"]) == (2, 40)


EVENT = line(next(iter(right_logs().values()))[0])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "does not exist"),
        ({}, "no event logs in"),
        ({"notes.txt": "hello\n"}, "no *.jsonl"),
        ({"x.jsonl": "not json\n"}, "x.jsonl has no event"),
        ({"x.jsonl": '{"some":"other"}\n'}, "x.jsonl has no event"),
        ({"x.jsonl.gz": "not gzip\n"}, "cannot read"),
        (
            {"x.jsonl": EVENT.replace('"version":1', f'"version":{SCHEMA_VERSION + 1}') + "\n"},
            "schema version 2",
        ),
        (
            {"x.jsonl": EVENT + "\n" + EVENT.replace("r00.", "r09.") + "\n"},
            "keep each log in separate files",
        ),
    ],
)
def test_unusable_input_is_one_line_and_exit_code_2(
    tmp_path: Path, content: dict[str, str] | None, words: str
) -> None:
    logs = tmp_path / "logs"
    if content is not None:
        logs.mkdir()
        for name, text in content.items():
            (logs / name).write_text(text)
    result = run(logs)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("crdtcast check: ") and words in result.stderr
    assert result.stderr.count("\n") == 1


def test_foreign_file_is_noted_among_logs_and_refused_alone(tmp_path: Path) -> None:
    write_logs(tmp_path, right_logs())
    foreign = tmp_path / "metrics.jsonl"
    foreign.write_text('{"cpu":1}\n')
    result = run(tmp_path)
    assert result.exit_code == 0 and "metrics.jsonl has no events" in result.stderr
    result = run(foreign)
    assert result.exit_code == 2 and "is not an event log" in result.stderr


ODD = [None, True, -1, 2**70, 1.5, "", "{", "[1", '["a"]', "\ud800", [], [1], [[]], {}, {"a": "x"}]
ODD += [[{"origin": 1, "counter": "x"}], [{"origin": "a", "counter": -1}], {"origin": "a"}]


@pytest.mark.parametrize("column", COLUMNS)
def test_odd_column_value_is_judged_or_the_line_is_rejected(tmp_path: Path, column: str) -> None:
    write_logs(tmp_path, make_up(Settings(replicas=2, messages=6, seed=31)))
    random = Random(column)
    files = sorted(tmp_path.iterdir())
    for odd in random.sample(ODD, 8):
        file = random.choice(files)
        lines = file.read_text().splitlines()
        at = random.randrange(len(lines))
        odd_lines = [
            *lines[:at],
            json.dumps({**json.loads(lines[at]), column: odd}),
            *lines[at + 1 :],
        ]
        file.write_text("".join(f"{each}\n" for each in odd_lines))
        result = run(tmp_path)
        assert result.exit_code in (0, 1, 2) and isinstance(result.exception, SystemExit | None)
        file.write_text("".join(f"{each}\n" for each in lines))


@pytest.mark.parametrize("line", [b'{"deps":' + b"[" * 100_000, b'{"seq":' + b"9" * 5000 + b"}"])
def test_unreadable_line_does_not_crash_the_check(tmp_path: Path, line: bytes) -> None:
    write_logs(tmp_path, right_logs())
    with open(min(tmp_path.iterdir()), "ab") as log:
        log.write(line + b"\n")
    assert run(tmp_path).exit_code in (0, 1)


def test_damaged_gzip_file_is_read_up_to_the_damage(tmp_path: Path) -> None:
    write_logs(tmp_path, right_logs())
    file = min(tmp_path.iterdir())
    packed = bytearray(gzip.compress(file.read_bytes()))
    file.unlink()
    for at in range(10, len(packed), 97):
        damaged = bytearray(packed)
        damaged[at] ^= 0x55
        (tmp_path / (file.name + ".gz")).write_bytes(damaged)
        result = run(tmp_path)
        assert result.exit_code in (0, 1, 2) and isinstance(result.exception, SystemExit | None)


def test_a_member_without_a_log_is_noted(tmp_path: Path) -> None:
    logs = right_logs()
    del logs[sorted(logs)[0]]
    write_logs(tmp_path, logs)
    result = check_logs([tmp_path])
    assert result.violations == ()
    assert any("no log of r00" in note for note in result.notes)


def test_logs_of_real_replicas_pass(tmp_path: Path) -> None:
    async def main() -> None:
        logs, founders = tmp_path / "logs", {"eu": None, "us": None}
        async with (
            open_replica(
                "eu",
                founders=founders,
                journal=tmp_path / "eu",
                event_logs=logs,
                digest_interval=0.01,
            ) as eu,
            open_replica(
                "us",
                founders={**founders, "eu": eu.address},
                journal=tmp_path / "us",
                event_logs=logs,
                digest_interval=0.01,
            ) as us,
        ):
            with trio.fail_after(30):
                for number in range(20):
                    for replica in (eu, us):
                        await replica.object("cart", AWSet).add(f"{replica.name}{number}")
                for _ in range(2):
                    for replica in (eu, us):
                        await replica.wait_quiet()

    trio.run(main)
    result = check_logs([tmp_path / "logs"])
    assert result.violations == ()
    assert result.counts["messages"] == 40 and result.counts["deliveries"] == 40
    assert result.counts["unstable"] == 0
