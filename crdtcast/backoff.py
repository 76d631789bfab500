"""How long to wait before the next attempt. Pure: the random source is given, the clock is the
caller's.
"""

import random
from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Waits that double from `first` to `longest` seconds, each shortened by up to half at random.

    The jitter keeps a group whose member came back from knocking at its door all at once.
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
        """An attempt succeeded, or there is a reason to believe that the next one will."""
        self.attempts = 0
