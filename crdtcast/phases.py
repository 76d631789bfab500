"""Lifecycles as tables: an event moves the phase as the table says; nothing else does."""

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

from crdtcast.exceptions import TransitionError

P = TypeVar("P", bound=Enum)
E = TypeVar("E", bound=Enum)


class Lifecycle(Generic[P, E]):
    """One present phase, and the table that moves it."""

    def __init__(self, table: Mapping[tuple[P, E], P], start: P) -> None:
        self._table = table
        self._phase = start

    @property
    def phase(self) -> P:
        """The present phase."""
        return self._phase

    def move(self, event: E) -> P:
        """Move to the phase that this event leads to. Raises TransitionError, and stays, if it leads nowhere."""
        try:
            self._phase = self._table[self._phase, event]
        except KeyError:
            raise TransitionError(
                f"no transition from {self._phase.name} by {event.name}"
            ) from None
        return self._phase
