"""How late this process is: it tells whether the machine was fast enough for the load."""

import trio

_STEP = 0.05
TOO_LATE = 0.25
"""The share of its time for which a sleeping task waits for its turn. Above it, what took too long does not count as a
failure.
"""
WORST = 20.0
"""Seconds of a single wait that have the same effect."""


class Lateness:
    """Measured by a task that sleeps. worst: most seconds that it was late at once; share: of all its time."""

    def __init__(self) -> None:
        self.worst: float = 0.0
        self._late = 0.0
        self._measured = 0.0

    async def measure(self) -> None:
        """Runs until it is cancelled."""
        while True:
            before = trio.current_time()
            await trio.sleep(_STEP)
            took = trio.current_time() - before
            self.note(took - _STEP, took)

    def note(self, late: float, took: float) -> None:
        """Count a step of `took` seconds that was `late` seconds late."""
        self.worst = max(self.worst, late)
        self._late += late
        self._measured += took

    @property
    def share(self) -> float:
        """0 on an idle machine, 1 where nothing makes progress."""
        return self._late / self._measured if self._measured else 0.0

    @property
    def too_slow(self) -> bool:
        """Whether what took too long may be the machine's fault."""
        return self.share > TOO_LATE or self.worst > WORST
