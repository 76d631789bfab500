"""The bank's scenarios of every type that gateways take, deadlines, transactions, members: every must and should."""

from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from crdtcast.conformance.runner import ScenarioResult
from crdtcast.conformance.scenario import load_scenarios
from tests.conformance.playing import check, playing

BANK = Path(__file__).parents[1] / "data" / "scenarios" / "scenarios.yaml"
TYPES = (
    *(
        "counter",
        "string",
        "hash",
        "set",
        "zset",
        "ttl",
        "generic",
        "transaction",
        "membership",
        "gc",
    ),
    *("type-conflict", "robustness"),
)
SCENARIOS = [
    scenario
    for scenario in load_scenarios(BANK)
    if scenario.type in TYPES and scenario.level != "choice"
]
NOT_YET = {
    "type-conflict-then-del-is-clean": "RPUSH",
    "type-local-wrongtype-not-replicated": "LPUSH",
    "rob-duplicate-delivery": "RPUSH",
}
"""Scenarios that need a command which is refused, and that command. One that passes is to be taken off."""

pytestmark = [pytest.mark.process, pytest.mark.scenarios]


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[ScenarioResult]]]:
    selected = {item.name for item in request.session.items}
    wanted = [each for each in SCENARIOS if f"test_scenario[{each.id}]" in selected]
    with playing(wanted, tmp_path_factory.mktemp("bank")) as results:
        yield results


@pytest.mark.parametrize("name", [scenario.id for scenario in SCENARIOS])
def test_scenario(name: str, results: dict[str, Future[ScenarioResult]]) -> None:
    check(results[name].result(), {}, NOT_YET)
