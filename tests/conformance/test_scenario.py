"""Scenario files: the format, word by word, and one clear error for what is not in it."""

from pathlib import Path

import pytest

from crdtcast.conformance.cli import chosen
from crdtcast.conformance.runner import connected
from crdtcast.conformance.scenario import UNSET, Scenario, ScenarioStep, load_scenarios, parse_word
from crdtcast.exceptions import UnusableInputError

BANK = Path(__file__).parents[1] / "data" / "scenarios" / "scenarios.yaml"

HEAD = "version: 1\nscenarios:\n- id: one\n  type: set\n  level: must\n  replicas: [a, b]\n"


def load(tmp_path: Path, steps: str, expect: str = "{}") -> Scenario:
    file = tmp_path / "scenario.yaml"
    file.write_text(f"{HEAD}  steps:\n{steps}\n  expect: {expect}\n")
    (scenario,) = load_scenarios(file)
    return scenario


def only_step(tmp_path: Path, step: str) -> ScenarioStep:
    (parsed,) = load(tmp_path, f"  - {step}").steps
    return parsed


def test_the_whole_bank_can_be_read() -> None:
    scenarios = load_scenarios(BANK)
    assert len({scenario.id for scenario in scenarios}) == len(scenarios) > 50
    assert {scenario.level for scenario in scenarios} == {"must", "should", "choice"}
    assert all(scenario.expect for scenario in scenarios)


@pytest.mark.parametrize(
    ("step", "parsed"),
    [
        (
            "{at: a, cmd: [SADD, s, {hex: '0061'}, {repeat: xy, n: 2}, 7], reply: 3, times: 2}",
            ScenarioStep(
                kind="cmd",
                at="a",
                commands=((b"SADD", b"s", b"\x00a", b"xyxy", b"7"),),
                reply=3,
                times=2,
            ),
        ),
        ("{at: a, cmd: [GET, k]}", ScenarioStep(kind="cmd", at="a", commands=((b"GET", b"k"),))),
        (
            "{at: b, cmd: [GET, k], reply: null}",
            ScenarioStep(kind="cmd", at="b", commands=((b"GET", b"k"),), reply=None),
        ),
        (
            "{at: a, tx: [[SET, k, v], [GET, k]]}",
            ScenarioStep(kind="tx", at="a", commands=((b"SET", b"k", b"v"), (b"GET", b"k"))),
        ),
        ("{sync: true}", ScenarioStep(kind="sync")),
        ("{sync: [a, b]}", ScenarioStep(kind="sync", groups=(("a", "b"),))),
        ("{partition: [[a], [b]]}", ScenarioStep(kind="partition", groups=(("a",), ("b",)))),
        ("{heal: true}", ScenarioStep(kind="heal")),
        ("{advance: 30}", ScenarioStep(kind="advance", seconds=30)),
        ("{clock: {at: b, skew: -0.5}}", ScenarioStep(kind="clock", at="b", seconds=-0.5)),
        ("{crash: a}", ScenarioStep(kind="crash", at="a")),
        ("{forget: a}", ScenarioStep(kind="forget", at="a")),
        ("{gc: true}", ScenarioStep(kind="gc")),
        ("{probe_action: deliver twice}", ScenarioStep(kind="probe_action", text="deliver twice")),
    ],
)
def test_steps(tmp_path: Path, step: str, parsed: ScenarioStep) -> None:
    assert only_step(tmp_path, step) == parsed


def test_no_reply_and_a_null_reply_are_different(tmp_path: Path) -> None:
    assert only_step(tmp_path, "{at: a, cmd: [GET, k]}").reply is UNSET
    assert only_step(tmp_path, "{at: a, cmd: [GET, k], reply: null}").reply is None


@pytest.mark.parametrize(
    "word", ["y", "n", "no", "on", "yes", "off", "inf", "1e3", "0x10", "1_000"]
)
def test_bare_words_that_older_yaml_would_convert_are_text(tmp_path: Path, word: str) -> None:
    step = only_step(tmp_path, f"{{at: a, cmd: [SADD, s, {word}]}}")
    assert step.commands == ((b"SADD", b"s", word.encode()),)


@pytest.mark.parametrize("digits", ["0061", "65cc81", "00", "12e4"])
def test_hex_keeps_its_digits_without_quotes(tmp_path: Path, digits: str) -> None:
    step = only_step(tmp_path, f"{{at: a, cmd: [SADD, s, {{hex: {digits}}}]}}")
    assert step.commands[0][2] == bytes.fromhex(digits)


def test_large_words_expand() -> None:
    assert parse_word({"repeat": "k", "n": 70_000}) == b"k" * 70_000


@pytest.mark.parametrize(
    ("steps", "expect", "complaint"),
    [
        ("  - {at: c, cmd: [GET, k]}", "{}", "unknown replica 'c'"),
        ("  - {at: a, cmd: []}", "{}", "list of words"),
        ("  - {at: a, cmd: [SET, k, 1.5]}", "{}", "1.5"),
        ("  - {cmd: [GET, k]}", "{}", "'at' is missing"),
        ("  - {jump: true}", "{}", "unknown step 'jump'"),
        ("  - {stop: a, start: a}", "{}", "unknown"),
        ("  - {sync: true}", "{all: [{cmd: [GET, k]}]}", "needs reply or same"),
        ("  - {sync: true}", "{all: [{reply: 1}]}", "either cmd or probe"),
        ("  - {sync: true}", "{z: [{cmd: [GET, k], reply: 1}]}", "unknown replica 'z'"),
    ],
)
def test_unknown_scenario_field_is_named(
    tmp_path: Path, steps: str, expect: str, complaint: str
) -> None:
    with pytest.raises(UnusableInputError, match="scenario one") as caught:
        load(tmp_path, steps, expect)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("text", ["", "a: [", "scenarios: 3", "version: 2\nscenarios: []", "[]"])
def test_invalid_scenario_file_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(UnusableInputError):
        load_scenarios(file)


def test_missing_scenario_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnusableInputError, match="cannot read"):
        load_scenarios(tmp_path / "absent.yaml")


def test_options_narrow_the_choice() -> None:
    scenarios = load_scenarios(BANK)
    both = chosen(scenarios, [], ["set", "counter"], ["must"])
    assert both
    assert {(one.type, one.level) for one in both} == {("set", "must"), ("counter", "must")}
    assert [one.id for one in chosen(scenarios, ["ctr-sum-three"], [], [])] == ["ctr-sum-three"]
    with pytest.raises(UnusableInputError, match="nonsense"):
        chosen(scenarios, ["nonsense"], [], [])


def test_connected_parts() -> None:
    names = ("a", "b", "c", "d", "e")
    assert set(connected(names, [("a", "b"), ("b", "d")])) == {("a", "b", "d")}
    assert set(connected(names, [("a", "b"), ("c", "e")])) == {("a", "b"), ("c", "e")}
    assert list(connected(names, [])) == []
