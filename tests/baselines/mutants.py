"""Engines with one rule of the protocol dropped. A campaign that does not catch them all is too weak."""

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
    """Late adoption dropped: a digest counts before all that its sender had sent has been delivered here."""

    stability_type: ClassVar[type[NamedRows]] = _EagerStability


class _UnnamedStability(NamedRows):
    def names_all_current(self, vector: Vector) -> bool:
        return True


class UnnamedRows(Engine):
    """Rows count although their senders may not have turned away from the incarnations that have ended."""

    stability_type: ClassVar[type[NamedRows]] = _UnnamedStability


class _ForgetfulStability(NamedRows):
    def delivered_what_had_ended(self, vector: Vector) -> bool:
        return True


class EndedForgotten(Engine):
    """Rows count before what their senders had taken from ended incarnations has been delivered here."""

    stability_type: ClassVar[type[NamedRows]] = _ForgetfulStability


class FixedNoAsking(Engine):
    """Nobody is asked: one lost last digest leaves a message unstable for ever."""

    def _ask(self) -> None:
        self._evaluate()


class FixedNoContext(Engine):
    """Messages do not say what they depend on, beyond the one before."""

    def _take_context(self) -> tuple[Dot, ...]:
        super()._take_context()
        return ()


class FixedSelfishRepair(Engine):
    """Members repair only what they have sent themselves."""

    def _repair(self, peer: Peer, vector: Vector) -> None:
        everything = self._store.by_origin
        self._store.by_origin = {o: kept for o, kept in everything.items() if o == self.me}
        super()._repair(peer, vector)
        self._store.by_origin = everything


class NoRepair(Engine):
    """What was lost stays lost."""

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
    """Undelivered messages of ended incarnations are kept, though nobody may have delivered them in time."""

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
