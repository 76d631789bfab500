"""pytest plugin: check your own CRDTs in your own tests, with the effort set on the command line.

It does nothing until a test uses its fixture `crdt`, and imports nothing of crdtcast before that.

    def test_poll(crdt):
        crdt.check(Poll, operations, expected)
        crdt.check_every_order(Poll, [("vote", "ann", "tea"), ("close",)], expected)
"""

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hypothesis import strategies as st

    from crdtcast.datatypes import PureOpCRDT
    from crdtcast.testing import EveryOrder
    from crdtcast.testing.crdt_check import Specification

_DEFAULTS = {"crdt_examples": "200", "crdt_members": "3", "crdt_actions": "30", "crdt_seed": "0"}

_USED = pytest.StashKey[list[int]]()
_SEED = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("crdtcast", "checks of replicated data types (fixture `crdt`)")
    options = [
        ("--crdt-examples", "N", "random schedules for each number of members"),
        ("--crdt-members", "N[,N…]", "numbers of replicas to check with"),
        ("--crdt-actions", "N", "most steps of a schedule"),
        ("--crdt-seed", "N", "seed of the schedules, or 'random' for a new one each time"),
    ]
    for option, metavar, text in options:
        name = option.removeprefix("--").replace("-", "_")
        group.addoption(option, dest=name, metavar=metavar, default=None, help=text)
        parser.addini(name, f"default of {option}", default=_DEFAULTS[name])


class CRDTChecks:
    """The value of the fixture `crdt`. Omitted arguments come from the command line (`--crdt-…`), then from the ini
    file (`crdt_…`).
    """

    def __init__(self, examples: int, members: Sequence[int], actions: int, seed: int) -> None:
        self.examples = examples
        self.members: tuple[int, ...] = tuple(members)
        self.actions = actions
        self.seed = seed
        self.used: bool = False

    def check(
        self,
        crdt: "type[PureOpCRDT[Any]]",
        operations: "st.SearchStrategy[Sequence[Any]]",
        specification: "Specification",
        *,
        examples: int | None = None,
        members: int | Sequence[int] | None = None,
        actions: int | None = None,
        seed: int | None = None,
    ) -> None:
        """Run random schedules for each number of members, as `crdtcast.testing.check_crdt`."""
        from crdtcast.testing import check_crdt

        self.used = True
        chosen = self.members if members is None else members
        for number in (chosen,) if isinstance(chosen, int) else chosen:
            check_crdt(
                crdt,
                operations,
                specification,
                members=number,
                examples=self.examples if examples is None else examples,
                actions=self.actions if actions is None else actions,
                seed=self.seed if seed is None else seed,
            )

    def check_every_order(
        self,
        crdt: "type[PureOpCRDT[Any]]",
        calls: Sequence[Sequence[Any]],
        specification: "Specification",
        *,
        operations: int = 3,
        members: int = 3,
    ) -> "EveryOrder":
        """Run every causal order of small cases, as `crdtcast.testing.check_every_order`."""
        from crdtcast.testing import check_every_order

        return check_every_order(crdt, calls, specification, operations=operations, members=members)


@pytest.fixture
def crdt(request: pytest.FixtureRequest) -> Iterator[CRDTChecks]:
    """Checks of a replicated data type against a specification: `crdt.check(…)`."""
    config = request.config
    checks = CRDTChecks(
        examples=_number(config, "crdt_examples"),
        members=[_count(part) for part in _chosen(config, "crdt_members").split(",")],
        actions=_number(config, "crdt_actions"),
        seed=_seed(config),
    )
    yield checks
    if checks.used:
        config.stash.setdefault(_USED, []).append(checks.seed)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the seeds that were used, so that a run can be repeated even if all has passed."""
    used: list[int] = config.stash.get(_USED, [])
    for seed in sorted(set(used)):
        terminalreporter.write_line(f"crdtcast: schedules from --crdt-seed={seed}")


def _chosen(config: pytest.Config, name: str) -> str:
    given = config.getoption(name)
    return str(config.getini(name) if given is None else given)


def _number(config: pytest.Config, name: str) -> int:
    return _count(_chosen(config, name), f"--{name.replace('_', '-')}")


def _count(text: str, option: str = "--crdt-members") -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise pytest.UsageError(f"{option}: {text!r} is not a number from 1")
    return number


def _seed(config: pytest.Config) -> int:
    if _SEED not in config.stash:
        text = _chosen(config, "crdt_seed")
        try:
            config.stash[_SEED] = (
                random.SystemRandom().getrandbits(32) if text == "random" else int(text)
            )
        except ValueError:
            raise pytest.UsageError(f"--crdt-seed: {text!r} is not a number or 'random'") from None
    return config.stash[_SEED]
