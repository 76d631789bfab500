"""How late this process is, which tells whether the machine was fast enough for what was asked of it."""

import trio

_STEP = 0.05
TOO_LATE = 0.25
"""The share of its time for which a task that sleeps waits for its turn, from which on nothing that took too long is
held against anybody.
"""
WORST = 20.0
"""Seconds of one wait that are as much."""


class Lateness:
    """Measured by a task that sleeps. worst: seconds that it was late once; share: of all its time."""

    def __init__(self) -> None:
        self.worst: float = 0.0
        self._late = 0.0
        self._measured = 0.0

    async def measure(self) -> None:
        """For ever."""
        while True:
            before = trio.current_time()
            await trio.sleep(_STEP)
            took = trio.current_time() - before
            self.note(took - _STEP, took)

    def note(self, late: float, took: float) -> None:
        """A step that took so many seconds was so late."""
        self.worst = max(self.worst, late)
        self._late += late
        self._measured += took

    @property
    def share(self) -> float:
        """0 on a machine that has nothing else to do, 1 where nothing gets on."""
        return self._late / self._measured if self._measured else 0.0

    @property
    def too_slow(self) -> bool:
        """Whether what took too long may be the machine's fault."""
        return self.share > TOO_LATE or self.worst > WORST
