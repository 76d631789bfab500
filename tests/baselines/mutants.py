"""Engines of fixed members with one rule of the protocol dropped. A campaign must catch them all."""

from typing import ClassVar

from crdtcast.causality.tags import Dot, Vector
from crdtcast.engine import Engine
from crdtcast.engine.digest_vector import Told
from crdtcast.engine.peer import Peer
from crdtcast.engine.superseded_rows import NamedRows


class _EagerStability(NamedRows):
    def delivered_what_it_had_sent(self, peer: Peer, vector: Vector) -> bool:
        return True


class FixedEagerAdoption(Engine):
    """Late adoption dropped: a digest counts before all that its sender had sent is delivered here."""

    stability_type: ClassVar[type[NamedRows]] = _EagerStability


class _UnnamedStability(NamedRows):
    def names_all_current(self, vector: Vector) -> bool:
        return True


class UnnamedRows(Engine):
    """Rows count although their senders may still accept messages of ended incarnations."""

    stability_type: ClassVar[type[NamedRows]] = _UnnamedStability


class _ForgetfulStability(NamedRows):
    def delivered_what_had_ended(self, vector: Vector) -> bool:
        return True


class EndedForgotten(Engine):
    """Rows count before what their senders had delivered of ended incarnations is delivered here."""

    stability_type: ClassVar[type[NamedRows]] = _ForgetfulStability


class FixedNoAsking(Engine):
    """No member is asked: one lost last digest leaves a message unstable forever."""

    def _ask(self) -> None:
        self._evaluate()


class FixedNoContext(Engine):
    """Messages do not name what they depend on, except the previous message of their sender."""

    def _take_context(self) -> tuple[Dot, ...]:
        super()._take_context()
        return ()


class FixedSelfishRepair(Engine):
    """Members repair only their own messages."""

    def _repair(self, peer: Peer, vector: Vector) -> None:
        everything = self._store.by_origin
        self._store.by_origin = {o: kept for o, kept in everything.items() if o == self.me}
        super()._repair(peer, vector)
        self._store.by_origin = everything


class NoRepair(Engine):
    """Lost messages are not repaired."""

    def _repair(self, peer: Peer, vector: Vector) -> None:
        pass


class _Boaster(Told):
    @property
    def durable(self) -> dict[str, int]:
        return self._vector


class TellsUnsynced(Engine):
    """Digests cover what a crash can take back."""

    told_type: ClassVar[type[Told]] = _Boaster


class KeepsUndelivered(Engine):
    """Undelivered messages of ended incarnations are kept, though no current member may have delivered them in time."""

    def _purge_ended(self) -> None:
        pass


MUTANTS: dict[str, type[Engine]] = {
    mutant.__name__: mutant
    for mutant in (
        FixedEagerAdoption,
        UnnamedRows,
        EndedForgotten,
        FixedNoAsking,
        FixedNoContext,
        FixedSelfishRepair,
        NoRepair,
        TellsUnsynced,
        KeepsUndelivered,
    )
}
