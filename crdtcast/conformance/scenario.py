"""Scenario files: their format as values, read with the rules of YAML 1.2. This file runs nothing.

A scenario is a list of steps at named replicas and a list of expectations for the end.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from crdtcast.exceptions import UnusableInputError

if TYPE_CHECKING or not yaml.__with_libyaml__:
    from yaml import SafeLoader
else:
    from yaml import CSafeLoader as SafeLoader  # ten times as fast

LEVELS = ("must", "should", "choice")
LEAVING_THE_GROUP = ("cmd", "tx", "sync", "gc", "partition", "heal", "forget")
"""Kinds of steps after which another scenario can use the group. A replica that is forgotten comes back by itself."""
UNSET: Any = object()
"""Stands for "no reply is expected here", since null is a reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioStep:
    """One thing to do. `kind` is the key that names it; the other fields belong to some kinds only."""

    kind: str
    at: str = ""
    commands: tuple[tuple[bytes, ...], ...] = ()
    reply: Any = UNSET
    times: int = 1
    groups: tuple[tuple[str, ...], ...] = ()
    seconds: float = 0.0
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What must hold at the end: a command's reply, or a probe's."""

    command: tuple[bytes, ...] = ()
    probe: str = ""
    reply: Any = UNSET
    same: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A case: the replicas, the steps in order, the expected results and the reason for them."""

    id: str
    type: str
    level: str
    replicas: tuple[str, ...]
    steps: tuple[ScenarioStep, ...]
    expect: Mapping[str, tuple[Expectation, ...]] = field(default_factory=dict)
    why: str = ""
    rules: tuple[str, ...] = ()
    """House rules (docs/redis-rules.md) that it tests."""

    @property
    def joining(self) -> tuple[str, ...]:
        """Replicas that join during the scenario."""
        return tuple(step.at for step in self.steps if step.kind == "add")

    @property
    def changes_members(self) -> bool:
        """Whether its group needs changing membership."""
        return any(step.kind in ("add", "forget") for step in self.steps)

    @property
    def asks_gateways(self) -> bool:
        """Whether it expects something of a probe: some count since the gateway's start."""
        return any(each.probe for expectations in self.expect.values() for each in expectations)

    @property
    def leaves_the_group(self) -> bool:
        """Whether only the group's data is changed at the end: all gateways run, with the clocks as they were."""
        return all(step.kind in LEAVING_THE_GROUP for step in self.steps)


class Yaml12(SafeLoader):
    """PyYAML with the scalars of YAML 1.2: `no` and `on` are strings, and `hex` values stay text."""


Yaml12.yaml_implicit_resolvers = {}
Yaml12.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|)$"), None)
Yaml12.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), None)
Yaml12.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?[0-9]+$"), None)
Yaml12.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$"),
    None,
)


def construct_decimal(loader: Yaml12, node: yaml.ScalarNode) -> int:
    """An integer, always decimal: PyYAML would read a leading zero as octal."""
    return int(str(loader.construct_scalar(node)))


def construct_mapping(loader: Yaml12, node: yaml.MappingNode) -> dict[Any, Any]:
    """A mapping; `{hex: 0061}` keeps its digits."""
    if len(node.value) == 1 and node.value[0][0].value == "hex":
        return {"hex": str(node.value[0][1].value)}
    return loader.construct_mapping(node, deep=True)


Yaml12.add_constructor("tag:yaml.org,2002:int", construct_decimal)
Yaml12.add_constructor("tag:yaml.org,2002:map", construct_mapping)


def load_scenarios(path: Path) -> list[Scenario]:
    """All scenarios of a file, in order. Raises UnusableInputError, which names the invalid scenario."""
    try:
        with open(path, encoding="utf-8") as file:
            document = yaml.load(file, Yaml12)  # a subclass of SafeLoader
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UnusableInputError(f"cannot read {path} as a scenario file: {error}") from error
    if not isinstance(document, dict) or not isinstance(document.get("scenarios"), list):
        raise UnusableInputError(f"{path} is not a scenario file: it has no list named 'scenarios'")
    if document.get("version", 1) != 1:
        raise UnusableInputError(
            f"{path} has format version {document['version']}, but only version 1 is supported"
        )
    scenarios = []
    for number, entry in enumerate(document["scenarios"], 1):
        name = (
            entry.get("id", f"number {number}") if isinstance(entry, dict) else f"number {number}"
        )
        try:
            scenarios.append(parse_scenario(entry))
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise UnusableInputError(f"{path}, scenario {name}: {reason}") from error
    ids = [scenario.id for scenario in scenarios]
    for name in ids:
        if ids.count(name) > 1:
            raise UnusableInputError(f"{path}: there are two scenarios named {name}")
    return scenarios


def parse_scenario(entry: Any) -> Scenario:
    """One scenario from its YAML value. Raises KeyError, TypeError or ValueError if it is invalid."""
    if not isinstance(entry, dict):
        raise ValueError("a scenario must be a mapping")
    replicas = tuple(str(name) for name in entry["replicas"])
    if len(set(replicas)) != len(replicas) or not replicas:
        raise ValueError("replicas must be different names, at least one")
    level = str(entry.get("level", "must"))
    if level not in LEVELS:
        raise ValueError(f"invalid level {level!r}: choose one of {', '.join(LEVELS)}")
    joining = tuple(str(step["add"]) for step in entry["steps"] if "add" in step)
    known = {*replicas, *joining, "all"}
    expect = {}
    for name, items in (entry.get("expect") or {}).items():
        expect[known_name(name, known)] = tuple(parse_expectation(item) for item in items)
    return Scenario(
        id=str(entry["id"]),
        type=str(entry.get("type", "")),
        level=level,
        replicas=replicas,
        steps=tuple(parse_step(step, known) for step in entry["steps"]),
        expect=expect,
        why=str(entry.get("why", "")),
        rules=tuple(str(rule) for rule in entry.get("rules", ())),
    )


def parse_step(entry: Any, known: set[str]) -> ScenarioStep:
    """One step from its YAML value."""
    if not isinstance(entry, dict):
        raise ValueError(f"a step must be a mapping, not {entry!r}")
    if "cmd" in entry:
        return ScenarioStep(
            kind="cmd",
            at=known_name(entry["at"], known),
            commands=(parse_words(entry["cmd"]),),
            reply=entry.get("reply", UNSET),
            times=int(entry.get("times", 1)),
        )
    if "tx" in entry:
        return ScenarioStep(
            kind="tx",
            at=known_name(entry["at"], known),
            commands=tuple(parse_words(words) for words in entry["tx"]),
            reply=entry.get("reply", UNSET),
            times=int(entry.get("times", 1)),
        )
    if "clock" in entry:
        at = known_name(entry["clock"]["at"], known)
        return ScenarioStep(kind="clock", at=at, seconds=float(entry["clock"]["skew"]))
    if len(entry) != 1:
        raise ValueError(f"unknown step with the keys {', '.join(map(str, entry))}")
    ((kind, value),) = entry.items()
    if kind == "sync":
        members = () if value is True else (names_of(value, known),)
        return ScenarioStep(kind="sync", groups=members)
    if kind == "partition":
        return ScenarioStep(
            kind="partition", groups=tuple(names_of(group, known) for group in value)
        )
    if kind == "advance":
        return ScenarioStep(kind="advance", seconds=float(value))
    if kind in ("heal", "gc"):
        return ScenarioStep(kind=kind)
    if kind in ("stop", "start", "crash", "wipe", "forget", "add"):
        return ScenarioStep(kind=kind, at=known_name(value, known))
    if kind == "probe_action":
        return ScenarioStep(kind="probe_action", text=str(value))
    raise ValueError(f"unknown step {kind!r}")


def parse_expectation(entry: Any) -> Expectation:
    """One expectation from its YAML value."""
    if not isinstance(entry, dict) or ("cmd" in entry) == ("probe" in entry):
        raise ValueError(f"an expectation has either cmd or probe, not {entry!r}")
    if "reply" not in entry and not entry.get("same"):
        raise ValueError(f"an expectation needs reply or same: {entry!r}")
    return Expectation(
        command=parse_words(entry["cmd"]) if "cmd" in entry else (),
        probe=str(entry.get("probe", "")),
        reply=entry.get("reply", UNSET),
        same=bool(entry.get("same", False)),
    )


def parse_words(words: Any) -> tuple[bytes, ...]:
    """A command's words as bytes: text, a number, `{hex: ..}` or `{repeat: x, n: N}`."""
    if not isinstance(words, list) or not words:
        raise ValueError(f"a command must be a list of words, not {words!r}")
    return tuple(parse_word(word) for word in words)


def parse_word(word: Any) -> bytes:
    """One word of a command as bytes."""
    if isinstance(word, str):
        return word.encode()
    if isinstance(word, int) and not isinstance(word, bool):
        return b"%d" % word
    if isinstance(word, dict) and set(word) == {"hex"}:
        return bytes.fromhex(str(word["hex"]))
    if isinstance(word, dict) and set(word) == {"repeat", "n"}:
        return str(word["repeat"]).encode() * int(word["n"])
    raise ValueError(f"the word {word!r} of a command must be text, {{hex}} or {{repeat, n}}")


def known_name(name: Any, known: Iterable[str]) -> str:
    """Returns `name` if it is a replica. Raises ValueError if it is not."""
    if name not in known:
        raise ValueError(f"unknown replica {name!r}")
    return str(name)


def names_of(names: Any, known: Iterable[str]) -> tuple[str, ...]:
    """A list of replicas from its YAML value."""
    return tuple(known_name(name, known) for name in names)
