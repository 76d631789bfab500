"""Scenarios of our own, played on real gateways and servers, and the house rules that they execute."""

import re
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from crdtcast.conformance.runner import ScenarioResult
from crdtcast.conformance.scenario import load_scenarios
from tests.conformance.playing import check, playing

ROOT = Path(__file__).parents[2]
OWN = ROOT / "tests" / "data" / "scenarios" / "own.yaml"
RULES = ROOT / "docs" / "redis-rules.md"
SCENARIOS = load_scenarios(OWN)


FAULTS: dict[str, str] = {}
"""Scenarios that fail, and how: to be mended. One that passes is to be taken off."""


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[ScenarioResult]]]:
    selected = {item.name for item in request.session.items}
    wanted = [each for each in SCENARIOS if f"test_scenario[{each.id}]" in selected]
    with playing(wanted, tmp_path_factory.mktemp("own")) as results:
        yield results


@pytest.mark.process
@pytest.mark.scenarios
@pytest.mark.parametrize("name", [scenario.id for scenario in SCENARIOS])
def test_scenario(name: str, results: dict[str, Future[ScenarioResult]]) -> None:
    check(results[name].result(), FAULTS, {})


def test_each_house_rule_lists_its_scenarios() -> None:
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
