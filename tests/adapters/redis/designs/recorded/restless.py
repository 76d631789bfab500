"""A planted fault: engines that note what they have reserved, and go on as if they had not."""

from crdtcast.causality.tags import Dot, Tag
from crdtcast.engine import Engine, GroupEngine, Reservation
from crdtcast.engine.core import Core


class _Restless(Core):
    _noted: Reservation | None = None

    @property
    def reserved(self) -> Reservation | None:
        return self._noted

    def reserve(self, context: tuple[Dot, ...] | None = None) -> Dot:
        dot = Dot(self.me, self.vector[self.me] + 1)
        self._noted = Reservation(dot, self.context if context is None else context)
        return dot

    def use(self, payload: bytes) -> Tag:
        self._noted = None
        return self.send(payload)

    def give_back(self) -> None:
        self._noted = None


class RestlessEngine(_Restless, Engine):
    """In a group with a fixed set of names."""


class RestlessGroupEngine(_Restless, GroupEngine):
    """In a group whose members come and go."""
