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
    assert lines[0].startswith("FAIL              wrong-on-purpose (counter, must,")
    assert "at the end, GET n at a: expected '6', got '5'" in lines[0]
    assert "shows the difference and this line" in lines[1]
    assert "LPUSH k v at a" in next(line for line in lines if "refused" in line)
    assert "probe colour" in shown


def test_a_file_that_cannot_be_used_is_exit_code_2(tmp_path: Path) -> None:
    done = crdtcast("conformance", str(tmp_path / "absent.yaml"))
    assert done.returncode == 2
    assert done.stderr.startswith("crdtcast: ")
    assert done.stderr.count("\n") == 1
