"""The clock of a gateway."""

import time


class Clock:
    """The wall clock. For tests, an administrator may move it."""

    def __init__(self) -> None:
        self.offset_ms = 0

    def ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000 + self.offset_ms

    def us(self) -> int:
        """Microseconds since the epoch."""
        return time.time_ns() // 1000 + self.offset_ms * 1000
