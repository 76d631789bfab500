"""How much the operators of a campaign had to do: evictions they asked for, and second steps that these needed.

A second step is what an operator does after a run, on a whole network, because an eviction does not end by itself: by
force, or by starting a live member again in its own place. Forced evictions that the campaign itself draws are faults,
and not counted here.
"""

from collections import Counter
from typing import NamedTuple

ASKED, FORCED, REPLACED = "evict_asked", "second_forced", "second_replaced"
"""The counters of a run."""


class OperatorSteps(NamedTuple):
    """Sums over runs."""

    asked: int
    forced: int
    replaced: int

    @classmethod
    def of(cls, counts: Counter[str]) -> "OperatorSteps":
        """What the counters of runs say."""
        return cls(counts[ASKED], counts[FORCED], counts[REPLACED])

    @property
    def second(self) -> int:
        """All second steps."""
        return self.forced + self.replaced

    def as_json(self) -> dict[str, int]:
        """Keys of the JSON object of a campaign; they are there also where nothing happened."""
        return {
            ASKED: self.asked,
            "second_steps": self.second,
            FORCED: self.forced,
            REPLACED: self.replaced,
        }

    def __str__(self) -> str:
        return (
            f"{self.asked} evictions asked, {self.second} second steps"
            f" ({self.forced} forced, {self.replaced} replaced)"
        )
