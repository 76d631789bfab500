"""Scenarios of our own, played on real gateways and servers, and the house rules that they execute."""

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import pytest

from crdtcast.conformance.runner import Outcome, Result, Servers, run_scenario
from crdtcast.conformance.scenario import Scenario, load_scenarios

ROOT = Path(__file__).parents[2]
OWN = ROOT / "tests" / "data" / "scenarios" / "own.yaml"
RULES = ROOT / "docs" / "redis-rules.md"
SCENARIOS = load_scenarios(OWN)


FAULTS = {
    "ttl-evicted-renewal": "TTL l at a: expected -1",
}
"""Scenarios that fail, and how: to be mended. One that passes is to be taken off."""
AT_ONCE = 3
"""Scenarios that are played at the same time: each waits for its exchanges most of the time."""


@pytest.fixture(scope="module")
def playing(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Result]]]:
    """The results to come of the scenarios that were selected."""
    played = tmp_path_factory.mktemp("played")
    spare: Queue[Servers] = Queue()
    for _ in range(AT_ONCE):
        spare.put(Servers(tmp_path_factory.mktemp("servers"), "everysec"))

    def play(scenario: Scenario) -> Result:
        servers = spare.get()
        try:
            return run_scenario(scenario, servers, played / scenario.id, 60.0)
        finally:
            spare.put(servers)

    selected = {item.name for item in request.session.items}
    with ThreadPoolExecutor(AT_ONCE) as threads:
        yield {
            scenario.id: threads.submit(play, scenario)
            for scenario in SCENARIOS
            if f"test_scenario[{scenario.id}]" in selected
        }
    while not spare.empty():
        spare.get().stop()


@pytest.mark.process
@pytest.mark.parametrize("name", [scenario.id for scenario in SCENARIOS])
def test_scenario(name: str, playing: dict[str, Future[Result]]) -> None:
    result = playing[name].result()
    if name in FAULTS:
        assert result.outcome is Outcome.FAILED and FAULTS[name] in result.detail, result.detail
    else:
        assert result.outcome is Outcome.PASSED, result.detail


def test_each_house_rule_names_the_scenarios_that_execute_it() -> None:
    executing: dict[str, list[str]] = {}
    for scenario in SCENARIOS:
        for rule in scenario.rules:
            executing.setdefault(rule, []).append(scenario.id)
    text = RULES.read_text(encoding="utf-8")
    rules = re.findall(r"^\| \*\*(H\d+)\*\* \|", text, flags=re.MULTILINE)
    rows = re.findall(r"^\| (H\d+) \| (.*) \|$", text, flags=re.MULTILINE)
    named = {rule: re.findall(r"`([^`]+)`", cell) for rule, cell in rows}
    assert set(named) == set(rules) and all(named.values()), "a rule without a scenario"
    assert named == executing, f"{RULES.name} and {OWN.name} differ"
