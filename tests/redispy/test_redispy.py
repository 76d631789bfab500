"""redis-py's own tests against a gateway: what fails is on the list, for the reason given, and nothing else fails."""

import os
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from crdtcast.adapters.redis.cluster import LocalCluster
from tests.adapters.redis.command_reference import names_on
from tests.effort import EFFORT
from tests.redispy import suite

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "redis-commands.md"
LIST = Path(__file__).with_name("expected.toml")


@dataclass(frozen=True)
class Entry:
    """A command that differs, how that shows in a failing test, and what the page says of it; without `sentence`, that
    it is refused.

    A test without its parameters stands for all of them.
    """

    command: str
    shows: str
    sentence: str
    tests: tuple[str, ...]

    def covers(self, test: str) -> bool:
        """Whether the test is on this entry's list."""
        return test in self.tests or test.partition("[")[0] in self.tests


def entries() -> list[Entry]:
    """The list, as it is kept."""
    return [
        Entry(
            row["command"],
            row.get("shows", f"crdtcast: command '{row['command']}"),
            row.get("sentence", ""),
            tuple(row["tests"]),
        )
        for row in tomllib.loads(LIST.read_text())["differs"]
    ]


def mistakes(listed: list[Entry], outcomes: dict[str, suite.Outcome]) -> list[str]:
    """What the list says otherwise than the run."""
    wrong = []
    for test, outcome in outcomes.items():
        covering = [entry for entry in listed if entry.covers(test)]
        errors = "\n".join(outcome.errors).replace("\\'", "'")
        if outcome.result == "passed" and covering:
            wrong.append(f"{test} is on the list, and passes: take it off")
        elif outcome.result != "failed":
            continue  # what is skipped depends on the server's version and on the protocol
        elif not covering:
            wrong.append(f"{test} fails, and is not on the list:\n{errors}")
        elif not any(entry.shows in errors for entry in covering):
            commands = ", ".join(entry.command for entry in covering)
            wrong.append(f"{test} fails otherwise than by {commands}:\n{errors}")
    names = set(outcomes) | {test.partition("[")[0] for test in outcomes}
    files = {test.partition("::")[0] for test in outcomes}
    wrong += [
        f"{test} is on the list, and there is no such test"
        for entry in listed
        for test in entry.tests
        if test.partition("::")[0] in files and test not in names
    ]
    return wrong


def test_every_listed_reason_stands_in_the_docs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    refused = set(names_on("\n".join(row for row in rows if "| refused |" in row)))
    for entry in entries():
        if entry.sentence:
            assert entry.sentence in page, f"{PAGE.name} does not say: {entry.sentence}"
        else:
            names = {entry.command, entry.command.partition(" ")[0]}
            assert names & refused, f"{PAGE.name} does not refuse {entry.command}"


@pytest.mark.parametrize(
    ("result", "error", "tests", "finding"),
    [
        ("failed", "crdtcast: command 'SET' is not", ("f::t",), []),
        ("failed", "crdtcast: command 'SET' is not", ("f::t[1]",), []),
        ("passed", "", ("f::t",), ["take it off"]),
        ("skipped", "", ("f::t",), []),
        ("failed", "crdtcast: command 'SET' is not", (), ["not on the list"]),
        ("failed", "AssertionError", ("f::t",), ["otherwise than by SET"]),
        ("passed", "", ("f::gone",), ["no such test"]),
        ("passed", "", ("other::gone",), []),
        ("passed", "", (), []),
    ],
)
def test_a_list_that_differs_from_the_run_is_found(
    result: str, error: str, tests: tuple[str, ...], finding: list[str]
) -> None:
    listed = [Entry("SET", "crdtcast: command 'SET'", "", tests)]
    found = mistakes(listed, {"f::t[1]": suite.Outcome(result, [error])})
    assert len(found) == len(finding), found
    assert all(part in text for part, text in zip(finding, found, strict=True))


@pytest.mark.process
@pytest.mark.redispy
def test_every_redispy_failure_is_documented(tmp_path: Path) -> None:
    try:
        suite.prepared()
    except suite.NotAvailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    files = suite.WHOLE if EFFORT.runs_slow else suite.CORE
    listed, wrong = entries(), []
    with LocalCluster(tmp_path, ["eu", "us"], group="redispy") as cluster:
        for protocol in (2, 3):
            told = tmp_path / f"outcomes-{protocol}"
            outcomes = suite.run(cluster["eu"].gateway.port, protocol, files, told)
            cluster.wait_equal(["eu", "us"], quiet=False, timeout=60)
            print_counts(protocol, outcomes)
            wrong += [f"RESP{protocol}: {text}" for text in mistakes(listed, outcomes)]
    assert not wrong, "\n".join(wrong)


def print_counts(protocol: int, outcomes: dict[str, suite.Outcome]) -> None:
    """How many tests passed, failed and were skipped, and why those."""
    counts = Counter(outcome.result for outcome in outcomes.values())
    assert counts["passed"], "no test of redis-py passed: was anything run?"
    print(f"redis-py {suite.VERSION}, RESP{protocol}: {dict(counts)}")
    skipped = (outcome for outcome in outcomes.values() if outcome.result == "skipped")
    for reason, count in Counter(outcome.errors[0] for outcome in skipped).most_common():
        print(f"  skipped {count}: {reason}")
