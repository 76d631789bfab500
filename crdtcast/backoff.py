"""How long to wait before the next attempt. Pure: the caller gives the random source and keeps the clock."""

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Waits that double from `first` to `longest` seconds, each shortened by up to half at random.

    Jitter avoids a thundering herd when a member returns.
    """

    rng: random.Random
    first: float = 0.05
    longest: float = 2.0
    attempts: int = field(default=0, init=False)

    def next_delay(self) -> float:
        """Seconds to wait after one more failed attempt."""
        # The exponent is capped: 2.0 ** 2000 would overflow after some hours.
        delay = min(self.longest, self.first * 2.0 ** min(self.attempts, 32))
        self.attempts += 1
        return delay * (0.5 + self.rng.random() / 2)

    def reset(self) -> None:
        """Start again with `first`: an attempt succeeded, or the next one probably will."""
        self.attempts = 0
