"""What an observer of an object is told: the value, and how it came from the one that it was told before."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, Generic, Protocol, TypeVar

from crdtcast.datatypes.differences import Difference
from crdtcast.exceptions import EndedError, LocalProtocolError, TypeClashError
from crdtcast.short_repr import shown

T = TypeVar("T")
V_co = TypeVar("V_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Observed(Generic[V_co]):
    """A value of an object, and the steps to it.

    changes: from the value told before; empty for the first one.
    local: whether only operations of this replica led to it.

    A message takes effect as a whole, so the changes of a batch are in one of these. An observer that is slow is told
    several messages in one: it gets every value in the end, never one twice, and holds one value at most.
    """

    value: V_co
    changes: tuple[Difference, ...]
    local: bool


class Look(Generic[V_co]):
    """Makes what is told from successive looks at an object. Not for several tasks."""

    def __init__(self, see: "See[V_co]") -> None:
        self._see = see
        self._before: Any = None
        self._begun: bool = False
        self.revision: int = 0
        """What was told, or was not worth it, is that of this revision."""
        self._told_at: int = 0

    def look(self) -> Observed[V_co] | None:
        """What there is to tell now, the same until it is `taken`; None if nothing."""
        self.revision = self._see.revision
        now = self._see.value
        if not self._begun:
            return Observed(now, (), False)
        changes = self._see.differences(self._before, now)
        return Observed(now, changes, not self._see.remotely(self._told_at)) if changes else None

    def taken(self, told: Observed[Any], revision: int) -> None:
        """The observer has it. revision: of the look."""
        self._begun = True
        self._before, self._told_at = told.value, revision


class See(Protocol[V_co]):
    """An object, as an observer sees it."""

    @property
    def value(self) -> V_co: ...
    @property
    def revision(self) -> int:
        """Rises with each message that takes effect at this replica."""

    def remotely(self, since: int) -> bool:
        """Whether another replica's operation on the object has taken effect after that revision, or may have."""

    def differences(self, before: Any, after: Any) -> tuple[Difference, ...]:
        """The steps from one value to another one."""


def check_callback(callback: object) -> None:
    """Raises LocalProtocolError if it cannot be told anything: it waits for a call of its own, or is none."""
    if not callable(callback) or iscoroutinefunction(callback):
        raise LocalProtocolError(
            f"{shown(callback)} is not a callback: give a function of one argument, and no `async def`"
        )


async def tell(
    told: AsyncIterator[T], callback: Callable[[T], object], logger: logging.Logger
) -> None:
    """Call it with each of them, until the replica ends. An error of the callback is logged, and ends this; so is one
    of the object, which may lose its name to another type. Neither is an error of the replica.
    """
    while True:
        try:
            each = await anext(told)
        except EndedError:
            return
        except TypeClashError as error:
            logger.warning("a callback is told no more: %s: %r", error, callback)
            return
        except Exception:
            logger.exception(
                "an object cannot be observed: a callback is told no more: %r", callback
            )
            return
        try:
            callback(each)
        except Exception:
            logger.exception("a callback has failed: it is told no more: %r", callback)
            return


class Observer(Generic[V_co]):
    """What there is to tell, as it comes: an async iterator, for one task. A cancelled wait loses nothing: ask again.

    No generator: a loop over it may be left in any way, and there is nothing to close.
    """

    def __init__(self, see: See[V_co], changed: Callable[[int], Awaitable[None]]) -> None:
        """changed: returns when the object has changed since a revision."""
        self._look: Look[V_co] = Look(see)
        self._changed = changed

    def __aiter__(self) -> "Observer[V_co]":
        return self

    async def __anext__(self) -> Observed[V_co]:
        look = self._look
        while (told := look.look()) is None:
            await self._changed(look.revision)
        look.taken(told, look.revision)
        return told
