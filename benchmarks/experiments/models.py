"""How long packets take, and how long members wait between sends: models as values, in milliseconds.

Those of G. Younes, *Dynamic End-to-End Reliable Causal Delivery Middleware for Geo-Replicated Services*, 2023, 8.1, and
a lognormal one. A model draws from the `Random` it is given and keeps no state, so a seed fixes a run.
"""

import math
import random
from dataclasses import dataclass, field
from typing import Protocol

from crdtcast.exceptions import ConfigurationError

WEIBULL_SHAPE = 2.0
WEIBULL_SCALE = 0.15


class LatencyModel(Protocol):
    """Time on the way from one member to another; members are numbered from 0."""

    def draw(self, chance: random.Random, sender: int, receiver: int) -> float:
        """Milliseconds that one packet takes."""
        ...


class SendModel(Protocol):
    """Time between two sends of one member."""

    def draw(self, chance: random.Random) -> float:
        """Milliseconds until the next send."""
        ...

    @property
    def mean_ms(self) -> float:
        """The interval it is made for, about the mean of what it draws."""
        ...


@dataclass(frozen=True, slots=True)
class FixedLatency:
    """Every packet takes `ms`."""

    ms: float

    def __post_init__(self) -> None:
        _require_positive("a latency", self.ms)

    def draw(self, chance: random.Random, sender: int, receiver: int) -> float:
        """Always `ms`."""
        return self.ms


@dataclass(frozen=True, slots=True)
class MatrixLatency:
    """Row: sender, column: receiver. The diagonal is never used. Raises ConfigurationError unless it is square."""

    rows: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.rows):
                raise ConfigurationError(
                    f"row {number} of the latency matrix has {len(row)} entries: {len(self.rows)}"
                    " rows need as many columns"
                )
            for receiver, ms in enumerate(row):
                if receiver != number:
                    _require_positive(f"the latency from member {number} to {receiver}", ms)

    @classmethod
    def parse(cls, text: str) -> "MatrixLatency":
        """From a file's lines of numbers with commas between them, as the thesis's programs read it."""
        try:
            rows = tuple(
                tuple(map(float, line.split(","))) for line in text.splitlines() if line.strip()
            )
        except ValueError as error:
            raise ConfigurationError(f"the latency matrix holds no number: {error}") from None
        return cls(rows)

    def draw(self, chance: random.Random, sender: int, receiver: int) -> float:
        """The entry of the pair."""
        return self.rows[sender][receiver]


@dataclass(frozen=True, slots=True)
class WeibullLatency:
    """B (1 + W), cut at B (1 + 3 scale): W has the Weibull distribution of this shape and scale.

    base_ms: B, the least a packet takes; the mean is 1.133 B with the usual shape and scale (see `with_mean`).
    """

    base_ms: float
    shape: float = WEIBULL_SHAPE
    scale: float = WEIBULL_SCALE

    def __post_init__(self) -> None:
        _require_positive("the base of a latency", self.base_ms)
        _require_positive("the shape of a latency", self.shape)
        _require_positive("the scale of a latency", self.scale)

    @classmethod
    def with_mean(cls, ms: float) -> "WeibullLatency":
        """The one whose packets take `ms` on average, the cut aside (it moves the mean by less than 0.01 %)."""
        return cls(ms / (1 + WEIBULL_SCALE * math.gamma(1 + 1 / WEIBULL_SHAPE)))

    @property
    def longest_ms(self) -> float:
        """Where it is cut."""
        return self.base_ms * (1 + 3 * self.scale)

    def draw(self, chance: random.Random, sender: int, receiver: int) -> float:
        """At least the base, at most `longest_ms`."""
        ms = self.base_ms * (1 + chance.weibullvariate(self.scale, self.shape))
        return min(ms, self.longest_ms)


@dataclass(frozen=True, slots=True)
class LognormalLatency:
    """Long-tailed: the logarithm is normal. `sigma` is its standard deviation, half of the packets beat `median_ms`."""

    median_ms: float
    sigma: float = 0.5

    def __post_init__(self) -> None:
        _require_positive("the median of a latency", self.median_ms)
        _require_positive("the sigma of a latency", self.sigma)

    def draw(self, chance: random.Random, sender: int, receiver: int) -> float:
        """Anything above 0."""
        return self.median_ms * chance.lognormvariate(0, self.sigma)


@dataclass(frozen=True, slots=True)
class SlowLink:
    """One pair of members whose packets always take `slow_ms`, both ways; all others are `usual`."""

    usual: LatencyModel
    slow_ms: float
    pair: frozenset[int] = field(default=frozenset((0, 1)))

    def __post_init__(self) -> None:
        _require_positive("the latency of a slow link", self.slow_ms)

    def draw(self, chance: random.Random, sender: int, receiver: int) -> float:
        """`slow_ms` on the slow link."""
        if sender in self.pair and receiver in self.pair:
            return self.slow_ms
        return self.usual.draw(chance, sender, receiver)


@dataclass(frozen=True, slots=True)
class FixedInterval:
    """A send every `mean_ms`."""

    mean_ms: float

    def __post_init__(self) -> None:
        _require_positive("an interval between sends", self.mean_ms)

    def draw(self, chance: random.Random) -> float:
        """Always `mean_ms`."""
        return self.mean_ms


@dataclass(frozen=True, slots=True)
class PoissonInterval:
    """Sends at random at a constant rate, -ln(U) `mean_ms` apart, cut at 4 `mean_ms`."""

    mean_ms: float

    def __post_init__(self) -> None:
        _require_positive("an interval between sends", self.mean_ms)

    def draw(self, chance: random.Random) -> float:
        """At most four times the mean."""
        return min(chance.expovariate(1) * self.mean_ms, 4 * self.mean_ms)


def _require_positive(what: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise ConfigurationError(f"{what} is {value:g}: it must be a number above 0")
