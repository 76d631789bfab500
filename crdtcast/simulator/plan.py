"""The plan of a campaign: seeds, members, faults, engine. From options or from a TOML file with the same words."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from crdtcast.exceptions import ConfigurationError, UnusableInputError
from crdtcast.simulator.campaign import GroupOutcome, run_group_seed
from crdtcast.simulator.campaigns import Campaign, RunLimits, campaign
from crdtcast.simulator.faults import DEFAULT, Faults

MAX_MEMBERS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A campaign with everything chosen.

    engine: your own class, `module:Class` (see `group_world`); None: the real engine.
    members: numbers of founders; each run draws one of them.
    campaign: a name of `CAMPAIGNS`, with its faults and limits.
    faults, limits: if given, these replace those of the campaign.
    """

    seeds: range = range(100)
    members: range = range(3, 7)
    engine: str | None = None
    campaign: str | None = None
    faults: tuple[str, ...] | None = None
    limits: Mapping[str, int] | None = None
    witnesses: int | None = None

    def __post_init__(self) -> None:
        self._chosen()
        if not 1 <= self.members[0] <= self.members[-1] <= MAX_MEMBERS:
            raise ConfigurationError(f"members must be 1 to {MAX_MEMBERS}")

    def _chosen(self) -> Campaign:
        chosen = Campaign(faults=Faults()) if self.campaign is None else campaign(self.campaign)
        if self.faults is not None or self.campaign is None:
            names = DEFAULT if self.faults is None else self.faults
            chosen = replace(chosen, faults=Faults.named(names))
        if self.limits is not None:
            known = {field.name for field in fields(RunLimits)}
            if unknown := sorted(set(self.limits) - known):
                raise ConfigurationError(
                    f"unknown limit {unknown[0]!r}: choose from {', '.join(sorted(known))}"
                )
            chosen = replace(chosen, limits=replace(chosen.limits, **self.limits))
        if self.witnesses is not None:
            chosen = replace(chosen, witnesses=self.witnesses)
        return chosen

    def run(self, seed: int, logs: Path | None = None) -> GroupOutcome:
        """One run.

        logs: a directory; the event logs of the run get a directory in it.
        """
        where = None if logs is None else logs / f"seed-{seed}"
        return run_group_seed(seed, self._chosen(), self.members, engine=self.engine, logs=where)


def parse_range(text: str | int) -> range:
    """The range of `FIRST:LAST`, both included, or of one number. Raises ConfigurationError if it is neither."""
    first, colon, last = str(text).partition(":")
    try:
        numbers = range(int(first), int(last if colon else first) + 1)
    except ValueError:
        raise ConfigurationError(
            f"{text!r} is not FIRST:LAST: write one number, or two with the smaller one first, such as 3:6"
        ) from None
    if not numbers:
        raise ConfigurationError(
            f"{text!r} is an empty range: the smaller number comes first, {last}:{first}"
        )
    return numbers


def load_plan(path: Path) -> dict[str, Any]:
    """The fields of a plan in a TOML file: seeds, members, engine, campaign, faults, witnesses, [limits].

    Raises UnusableInputError if the file is not TOML, or has other keys.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnusableInputError(f"cannot read {path} as TOML: {error}") from error
    known = {field.name for field in fields(RunPlan)}
    if unknown := sorted(set(document) - known):
        raise UnusableInputError(
            f"{path}: unknown key {unknown[0]!r}: choose from {', '.join(sorted(known))}"
        )
    chosen: dict[str, Any] = dict(document)
    for key in ("seeds", "members"):
        if key in chosen:
            chosen[key] = parse_range(chosen[key])
    if "faults" in chosen:
        chosen["faults"] = _names(path, chosen["faults"])
    limits = chosen.get("limits", {})
    if not isinstance(limits, dict) or not all(isinstance(n, int) for n in limits.values()):
        raise UnusableInputError(f"{path}: [limits] holds numbers, such as evictions = 2")
    return chosen


def _names(path: Path, given: Any) -> tuple[str, ...]:
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return tuple(str(name) for name in given)
    raise UnusableInputError(f'{path}: faults is a list, such as ["loss", "join"]')
