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
    max_drift_ms: how far a timestamp of somebody else may lie ahead of `clock_ms()` and still be
        followed. One beyond is clamped to that bound, counted in `refused`, and told to
        `on_ahead`: whom it came from, and how many milliseconds it is ahead. What was *sent* is not
        changed: it is for the receiver of a register's write to decide what a refused timestamp is
        worth, from `observe`'s result.
    """

    def __init__(self, clock_ms: Callable[[], int], max_drift_ms: int = 60_000) -> None:
        self._clock_ms = clock_ms
        self.max_drift_ms = max_drift_ms
        self.refused = 0
        self.latest = 0
        self.on_ahead: Callable[[str, int], None] = _unheard

    def now(self) -> int:
        """A timestamp above every one given or observed so far."""
        wall = max(0, self._clock_ms()) << LOGICAL_BITS
        # Counting past 16 bits runs into the next millisecond, which is still a rise.
        self.latest = wall if wall > self.latest else self.latest + 1
        return self.latest

    def observe(self, timestamp: int, sender: str = "") -> int:
        """Follow a timestamp that came with a message of the incarnation `sender`; returns it, clamped to
        the bound if it was beyond.
        """
        bound = (max(0, self._clock_ms()) + self.max_drift_ms) << LOGICAL_BITS | _LOGICAL_MASK
        if timestamp > bound:
            self.refused += 1
            self.on_ahead(sender, hlc_ms(timestamp) - self._clock_ms())
            timestamp = bound
        if timestamp > self.latest:
            self.latest = timestamp
        return timestamp
