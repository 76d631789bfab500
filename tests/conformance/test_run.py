"""Scenarios played on real gateways and servers: what passes, what fails and how, what is not
supported.
"""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from crdtcast.conformance.cli import conformance
from crdtcast.conformance.runner import ScenarioOutcome, run_scenario
from crdtcast.conformance.scenario import load_scenarios
from crdtcast.conformance.stage import Stage
from tests.preloaded import crdtcast

pytestmark = pytest.mark.process

SCENARIOS = """
version: 1
scenarios:
- id: wrong-on-purpose
  type: counter
  level: must
  replicas: [a, b]
  steps:
  - {at: a, cmd: [INCRBY, n, '5'], reply: 5}
  - {sync: true}
  expect:
    all:
    - {cmd: [GET, n], reply: '6'}
  why: A scenario that fails shows the difference and this line.
- id: nothing-is-delivered-between-syncs
  type: set
  level: must
  replicas: [a, b, c]
  steps:
  - {at: a, cmd: [SADD, s, x]}
  - {at: b, cmd: [SCARD, s], reply: 0}
  - {sync: [a, b]}
  - {at: b, cmd: [SCARD, s], reply: 1}
  - {at: c, cmd: [SCARD, s], reply: 0}
  - {at: b, cmd: [SADD, s, y]}
  - {at: a, cmd: [SCARD, s], reply: 1}
  - {partition: [[a], [b, c]]}
  - {sync: true}
  - {at: c, cmd: [SMEMBERS, s], reply: {unordered: [x, y]}}
  - {at: a, cmd: [SCARD, s], reply: 1}
  - {heal: true}
  - {sync: true}
  expect:
    all:
    - {cmd: [SMEMBERS, s], same: true}
    a:
    - {cmd: [SCARD, s], reply: 2}
    - {probe: replication_state, reply: in-sync}
    - {probe: metadata_entries_for_key_s, reply: 0}
    - {probe: type_conflicts_total, reply: 0}
    - {probe: 'GET s in every numbered db, as a map', reply: {not: []}}
    - {probe: unstable, reply: 0}
- id: ends-and-returns
  type: counter
  level: must
  replicas: [a, b]
  steps:
  - {at: a, cmd: [INCRBY, n, '1']}
  - {crash: a}
  - {at: a, cmd: [INCRBY, n, '2'], reply: 3}
  - {stop: b}
  - {at: a, cmd: [INCRBY, n, '4'], reply: 7}
  - {start: b}
  - {at: b, cmd: [INCRBY, n, '8'], reply: 8}
  expect:
    a:
    - {probe: ops_not_yet_acked_by_b, reply: {between: [1, 3]}}
    - {probe: replication_state, reply: {not: in-sync}}
    - {probe: p99_command_latency_ms, reply: {between: [1, 30000]}}
    b:
    - {cmd: [GET, n], reply: '8'}
    - {probe: 'GET n in every numbered db, as a map', reply: [0, '8']}
- id: merges-after-that
  type: counter
  level: must
  replicas: [a, b]
  steps:
  - {at: a, cmd: [INCRBY, n, '1']}
  - {stop: b}
  - {at: a, cmd: [INCRBY, n, '4'], reply: 5}
  - {start: b}
  - {at: b, cmd: [INCRBY, n, '10']}
  - {sync: true}
  expect:
    all:
    - {cmd: [GET, n], reply: '15'}
- id: refused
  type: string
  level: should
  replicas: [a]
  steps:
  - {at: a, cmd: [LPUSH, k, v]}
- id: refusing-is-fine
  type: string
  level: should
  replicas: [a]
  steps:
  - {at: a, cmd: [LPUSH, k, v], reply: {any_of: [OK, {error: ERR}]}}
  - {advance: 5}
  - {clock: {at: a, skew: 60}}
- id: probe-unknown
  type: other
  level: choice
  replicas: [a]
  steps:
  - {gc: true}
  expect:
    a:
    - {probe: colour, reply: green}
"""


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def run(file: Path, *options: str) -> tuple[int, list[str], dict[str, int]]:
    """The command, in this process: so its gateways are forked from one that has imported the program."""
    done = CliRunner().invoke(conformance, [str(file), "--json", *options])
    *lines, last = done.stdout.splitlines()
    return done.exit_code, lines, json.loads(last)


def test_all_kinds_of_outcomes(tmp_path: Path) -> None:
    file = tmp_path / "scenarios.yaml"
    file.write_text(SCENARIOS)
    code, lines, totals = run(file)
    shown = "\n".join(lines)
    assert (code, totals) == (1, {"passed": 4, "failed": 1, "unsupported": 2}), shown
    place = next(number for number, line in enumerate(lines) if "wrong-on-purpose" in line)
    wrong, why = lines[place : place + 2]
    assert wrong.startswith("FAIL              wrong-on-purpose (counter, must,")
    assert "at the end, GET n at a: expected '6', got '5'" in wrong
    assert "shows the difference and this line" in why
    assert "LPUSH k v at a" in next(line for line in lines if "refused" in line)
    assert "probe colour" in shown


COUNTING = """
- id: ID
  type: counter
  level: must
  replicas: [a, b]
  steps:
  - {at: a, cmd: [INCRBY, n, '5'], reply: 5}
  - {at: b, cmd: [SET, only-here, x, EX, '50'], reply: OK}
  expect:
    a:
    - {cmd: [GET, n], reply: REPLY}
    - {cmd: [GET, only-here], reply: null}
"""


def test_gateways_are_kept_and_their_data_is_not(tmp_path: Path) -> None:
    """Those of a scenario that failed are not kept."""
    file = tmp_path / "scenarios.yaml"
    cases = (("one", "'5'"), ("two", "'5'"), ("three", "'6'"), ("four", "'5'"))
    file.write_text(
        "scenarios:" + "".join(COUNTING.replace("ID", i).replace("REPLY", r) for i, r in cases)
    )
    stage, groups, outcomes = Stage(tmp_path / "stage", "no"), [], []
    try:
        for scenario in load_scenarios(file):
            outcomes.append(run_scenario(scenario, stage, 60.0).outcome)
            groups.append(sorted(path.name for path in stage.directory.glob("group-*")))
    finally:
        stage.stop()
    passed, failed = ScenarioOutcome.PASSED, ScenarioOutcome.FAILED
    assert outcomes == [passed, passed, failed, passed]
    assert groups == [["group-1"], ["group-1"], [], ["group-2"]]
    assert not list(stage.directory.glob("group-*"))


def test_a_file_that_cannot_be_used_is_exit_code_2(tmp_path: Path) -> None:
    done = crdtcast("conformance", str(tmp_path / "absent.yaml"))
    assert done.returncode == 2
    assert done.stderr.startswith("crdtcast: ")
    assert done.stderr.count("\n") == 1
