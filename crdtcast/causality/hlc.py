"""Hybrid logical clock: wall time that never goes back and respects causality, with bounded trust
in other clocks.

Pure; the wall clock is given. Kulkarni, Demirbas et al., "Logical physical clocks" (2014). The
bound is ours: one machine a year ahead must not win every conflict for a year.
"""

from collections.abc import Callable

LOGICAL_BITS = 16
_LOGICAL_MASK = (1 << LOGICAL_BITS) - 1


def hlc_ms(timestamp: int) -> int:
    """Milliseconds since the epoch of a timestamp: its upper 48 bits."""
    return timestamp >> LOGICAL_BITS


def _unheard(sender: str, ahead_ms: int) -> None:
    pass


class HLC:
    """Timestamps of 64 bits: 48 of milliseconds, 16 that count within one millisecond.

    clock_ms: wall clock, milliseconds since the epoch; may jump in either direction.
    max_drift_ms: how far another member's timestamp may be ahead of `clock_ms()`. A timestamp beyond is clamped to that
        bound, counted in `refused`, and passed to `on_ahead` with its sender and the milliseconds that it is ahead. The
        sent timestamp does not change: the receiver of a register's write decides from `observe`'s result what to do.
    """

    def __init__(self, clock_ms: Callable[[], int], max_drift_ms: int = 60_000) -> None:
        self._clock_ms = clock_ms
        self.max_drift_ms = max_drift_ms
        self.refused: int = 0
        self.latest: int = 0
        self.on_ahead: Callable[[str, int], None] = _unheard

    def now(self) -> int:
        """Return a timestamp above all that were returned or observed so far."""
        wall = max(0, self._clock_ms()) << LOGICAL_BITS
        # Counting past 16 bits runs into the next millisecond, which is still a rise.
        self.latest = wall if wall > self.latest else self.latest + 1
        return self.latest

    def observe(self, timestamp: int, sender: str = "") -> int:
        """Follow a timestamp in a message of the incarnation `sender`. Returns it, clamped to the bound."""
        bound = (max(0, self._clock_ms()) + self.max_drift_ms) << LOGICAL_BITS | _LOGICAL_MASK
        if timestamp > bound:
            self.refused += 1
            self.on_ahead(sender, hlc_ms(timestamp) - self._clock_ms())
            timestamp = bound
        if timestamp > self.latest:
            self.latest = timestamp
        return timestamp
