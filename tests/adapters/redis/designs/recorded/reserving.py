"""Engines that can reserve their next dot: the real ones, which stand still from then until the dot is used.

Standing still costs nothing that anybody waits for: messages and digests are taken in and digests go out, but nothing
is delivered and nothing of the engine's own is sent, as either would change what the reserved message comes after.
"""

from typing import TypeAlias

from crdtcast.engine import Engine, GroupEngine
from crdtcast.exceptions import LocalProtocolError
from crdtcast.messages import Delivery
from crdtcast.tags import Dot, Tag


class Reserving:
    """To be mixed into an engine."""

    me: str
    vector: dict[str, int]
    context: tuple[Dot, ...]
    reserved: Dot | None = None
    reserved_context: tuple[Dot, ...] = ()
    stands_still = True
    """False: the planted fault that its own operations go on."""

    def reserve(self, context: tuple[Dot, ...] | None = None) -> Dot:
        """The dot of the next message of this engine, which is to be sent by `use`, or given back.

        context: that of a reservation which a former process has made, to the byte: the same dots may stand in another
        order here.
        """
        self._refuse_if_reserved()
        self.reserved = Dot(self.me, self.vector[self.me] + 1)
        self.reserved_context = self.context if context is None else context
        if set(self.reserved_context) != set(self.context) and self.stands_still:
            raise LocalProtocolError(
                f"{self.me} has delivered other messages than those before {self.reserved}"
            )
        return self.reserved

    def use(self, payload: bytes) -> Tag:
        """Send the message that the dot was reserved for."""
        if self.stands_still and self.reserved != Dot(self.me, self.vector[self.me] + 1):
            raise LocalProtocolError(f"{self.me} has not reserved its next dot")
        self.reserved, self._using = None, self.stands_still
        try:
            return self.send(payload)
        finally:
            self._using = False

    _using = False

    def _take_context(self) -> tuple[Dot, ...]:
        return self.reserved_context if self._using else self.context

    def give_back(self) -> None:
        """Nothing is to be sent."""
        self.reserved = None

    def send(self, payload: bytes) -> Tag:
        """tcbroadcast."""
        raise NotImplementedError

    @property
    def still(self) -> bool:
        """Whether nothing of the engine's own may be sent now."""
        return self.reserved is not None and self.stands_still

    def _refuse_if_reserved(self) -> None:
        if self.still:
            raise LocalProtocolError(
                f"{self.reserved} is reserved: nothing else may be sent before"
            )


class FixedEngine(Reserving, Engine):
    """In a group with a fixed set of names."""

    def send(self, payload: bytes) -> Tag:  # type: ignore[override]
        self._refuse_if_reserved()
        return Engine.send(self, payload)

    def poll(self) -> Delivery | None:
        self._refuse_if_reserved()
        return super().poll()


class ChangingEngine(Reserving, GroupEngine):
    """In a group whose members come and go."""

    def send(self, payload: bytes) -> Tag:  # type: ignore[override]
        self._refuse_if_reserved()
        return GroupEngine.send(self, payload)

    def poll(self) -> Delivery | None:
        self._refuse_if_reserved()
        return super().poll()

    def _issue(self, operation) -> Tag:  # type: ignore[no-untyped-def]
        self._refuse_if_reserved()
        return super()._issue(operation)

    def _announce(self) -> None:
        if not self.still:
            super()._announce()

    def _sweep(self) -> None:
        if not self.still:
            super()._sweep()


AnyEngine: TypeAlias = FixedEngine | ChangingEngine
