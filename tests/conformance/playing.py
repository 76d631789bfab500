"""Scenarios of a file of tests, some at the same time, each when it is asked for."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

from crdtcast.conformance.runner import ScenarioOutcome, ScenarioResult, run_scenario
from crdtcast.conformance.scenario import Scenario
from crdtcast.conformance.stage import Stage, in_order

AT_ONCE = 3
"""Scenarios that are played at the same time: each waits for its exchanges most of the time."""
PATIENCE = 60.0


@contextmanager
def playing(
    scenarios: Sequence[Scenario], directory: Path
) -> Iterator[dict[str, Future[ScenarioResult]]]:
    """The results to come, by the scenario's id."""
    spare: Queue[Stage] = Queue()
    for number in range(AT_ONCE):
        spare.put(Stage(directory / f"stage-{number}", "everysec"))

    def play(scenario: Scenario) -> ScenarioResult:
        stage = spare.get()
        try:
            return run_scenario(scenario, stage, PATIENCE)
        finally:
            spare.put(stage)

    try:
        with ThreadPoolExecutor(AT_ONCE) as threads:
            yield {each.id: threads.submit(play, each) for each in in_order(scenarios)}
    finally:
        while not spare.empty():
            spare.get().stop()


def check(result: ScenarioResult, faults: dict[str, str], not_yet: dict[str, str]) -> None:
    """That a scenario passes, or else ends as a list of those that do not says: a text that its difference has."""
    name = result.scenario.id
    shows = faults.get(name) or not_yet.get(name)
    if shows is None:
        assert result.outcome is ScenarioOutcome.PASSED, result.detail
        return
    assert result.outcome is not ScenarioOutcome.PASSED, f"{name} passes: take it off the list"
    expected = ScenarioOutcome.FAILED if name in faults else ScenarioOutcome.UNSUPPORTED
    assert result.outcome is expected and shows in result.detail, result.detail
