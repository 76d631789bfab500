"""What moves one engine's messages, whatever its links are like: flush, ticks, and turns for the
application.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from crdtcast.engine.core import Core
from crdtcast.ticking import Ticking


def no_work() -> None:
    """An application that is not there yet."""


class Driving(ABC):
    """Subclasses have the engine and the links.

    on_work: called whenever something may be deliverable or stable, or a tick has passed.
    hold: while it is set, all stays in the engine; for those who sync first. on_held: called then,
        whenever something may want to leave.
    """

    def __init__(self, interval: float | None, on_work: Callable[[], None] = no_work) -> None:
        self.hold = False
        self.on_held: Callable[[], None] = no_work
        self.on_work = on_work
        self.ticking = Ticking(interval, self.driven, self._tick)

    @abstractmethod
    def driven(self) -> Core:
        """The present engine."""

    @abstractmethod
    def transmit(self) -> None:
        """Move what the engine wants sent to the links' queues, unless that has to wait."""

    @abstractmethod
    def relieve(self) -> None:
        """Stop reading from peers, or read on, as the application keeps up."""

    @abstractmethod
    def ended(self, error: Exception) -> None:
        """The application has failed: its node ends, with that error."""

    def flush(self) -> None:
        """Move what the engine wants sent to the links' queues. Never blocks; does nothing while
        `hold` is set.
        """
        self.ticking.stir()
        self._flush()

    def after(self) -> None:
        """The engine has changed: answers out, then the application's turn."""
        self.ticking.stir()
        self.offer_work()

    def offer_work(self) -> None:
        """Answers out, then the application's turn."""
        self._flush()
        try:
            self.on_work()
        except Exception as error:
            # The application's error, not the peer's whose frame we happen to be at.
            self.ended(error)
        self.relieve()

    def _flush(self) -> None:
        self.relieve()
        if self.hold:
            self.on_held()
        else:
            self.transmit()

    def _tick(self) -> None:
        self.driven().tick()
        self.offer_work()
