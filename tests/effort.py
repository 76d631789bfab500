"""How much the tests try: one dial, `CRDTCAST_EFFORT`, for the examples of Hypothesis and for the seeds of random runs.

`ci`, the default: a quarter of the count that a test names, the same ones in every run, sizes that prove the same in
less time, and no test that is marked `slow`.
`release`: twenty times the count, full sizes, and the slow tests.
`fuzz`: as `release`, with seeds and examples that no run had before. The end of the output tells the seed that they
begin at; `CRDTCAST_SEED` repeats it.
"""

import math
import os
import random
from collections.abc import Collection, Iterator, MutableMapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

EFFORTS = {"ci": Fraction(1, 4), "release": Fraction(20), "fuzz": Fraction(20)}
"""How many times the count that a test names is tried."""
EFFORT_VARIABLE = "CRDTCAST_EFFORT"
SEED_VARIABLE = "CRDTCAST_SEED"


@dataclass(frozen=True)
class Effort:
    """One position of the dial."""

    name: str
    first_seed: int = 0

    def of(self, count: int) -> int:
        """How many examples or seeds are tried where a test names `count`: one at least."""
        return math.ceil(count * EFFORTS[self.name])

    @property
    def runs_slow(self) -> bool:
        """Whether tests that are marked `slow` run."""
        return self.name != "ci"

    def __str__(self) -> str:
        seed = f", {SEED_VARIABLE}={self.first_seed}" if self.first_seed else ""
        return f"{EFFORT_VARIABLE}={self.name}{seed}"


def chosen(environment: MutableMapping[str, str]) -> Effort:
    """The effort that the environment asks for. The first seed of `fuzz` is put into it, for child processes.

    Raises ValueError if it names no effort, or the seed is not a number.
    """
    name = environment.get(EFFORT_VARIABLE) or "ci"
    if name not in EFFORTS:
        raise ValueError(f"{EFFORT_VARIABLE}={name!r}: choose from {', '.join(EFFORTS)}")
    if name == "fuzz" and not environment.get(SEED_VARIABLE):
        environment[SEED_VARIABLE] = str(random.SystemRandom().randrange(1, 2**31))
    seed = environment.get(SEED_VARIABLE) or "0"
    if not seed.isdecimal():
        raise ValueError(f"{SEED_VARIABLE}={seed!r}: give a whole number from 0")
    return Effort(name, int(seed))


EFFORT = chosen(os.environ)


class Seeds(Collection[int]):
    """The seeds of a test, in a loop or as its parameters. A failing test tells the last one that it took."""

    taken: ClassVar[int | None] = None

    def __init__(self, count: int, first: int) -> None:
        self._seeds = range(first, first + count)

    def __iter__(self) -> Iterator[int]:
        for seed in self._seeds:
            Seeds.taken = seed
            yield seed

    def __len__(self) -> int:
        return len(self._seeds)

    def __contains__(self, seed: object) -> bool:
        return seed in self._seeds


def seeds(count: int, *, first: int = 0) -> Seeds:
    """The seeds of a random test, as many of `count` as the effort asks for."""
    return Seeds(EFFORT.of(count), first + EFFORT.first_seed)


def search(within: int, *, first: int = 0) -> Seeds:
    """The seeds that something is looked for at until it is found: half of `within` do in `ci`."""
    return Seeds(size(ci=within // 2, release=20 * within), first + EFFORT.first_seed)


def examples(count: int) -> int:
    """How many of `count` examples the effort asks Hypothesis for."""
    return EFFORT.of(count)


def size(*, ci: int, release: int) -> int:
    """How large a test is, or how long it goes on, where one size in `ci` proves the same as more in a release."""
    return release if EFFORT.runs_slow else ci


def first_seed() -> int:
    """The seed of a test with a single random run."""
    (seed,) = Seeds(1, EFFORT.first_seed)
    return seed
