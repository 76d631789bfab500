"""One simulated member: an engine, its journal, and the rule for when its outbox may leave.

IMMEDIATE: the outbox is held until `sync`, which saves the state and releases everything. DECLARED: the outbox leaves
at once; `sync` saves the state as a *commit* and declares the previous commit durable, so that digests lag behind.
A crash then loses everything since some commit that is at least as new as the declared one.
"""

from dataclasses import dataclass

from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.messages import Transmit
from crdtcast.engine import Durability, Engine, EngineCounters, EngineState


@dataclass(frozen=True, slots=True)
class BaselineCommit:
    """A saved state, and the number of the application's events up to it."""

    state: EngineState
    position: int


class BaselineHost:
    """A member and its journal. Incarnations have numbers instead of times, so that runs are deterministic."""

    def __init__(
        self, name: str, names: tuple[str, ...], durability: Durability, engine_type: type[Engine]
    ) -> None:
        self.name = name
        self.names = names
        self.durability = durability
        self.engine_type = engine_type
        self.life: int = 1
        self.incarnations: int = 1
        self.engine: Engine = engine_type(new_incarnation(name, 1, 0), names, durable=durability)
        self.commits: list[BaselineCommit] = [BaselineCommit(self.engine.state(), 0)]
        self.held: list[Transmit] = []
        self.ended_counters: list[EngineCounters] = []

    def release(self) -> list[Transmit]:
        """The effects that may leave now."""
        effects = self.engine.take_outbox()
        if self.durability is Durability.DECLARED:
            return effects
        self.held += effects
        return []

    def sync(self, position: int) -> list[Transmit]:
        """Save the state. Returns the effects that may leave because of that."""
        commit = BaselineCommit(self.engine.state(), position)
        if self.durability is Durability.DECLARED:
            # The previous commit, not this one: a journal that syncs in the background lags behind.
            self.engine.mark_durable(self.commits[-1].state.vector)
            self.commits = [self.commits[-1], commit]
            return self.engine.take_outbox()
        self.held += self.engine.take_outbox()
        self.commits = [commit]
        released, self.held = self.held, []
        return released

    def settle(self) -> None:
        """DECLARED: what is committed becomes durable (the background sync has caught up)."""
        if self.durability is Durability.DECLARED:
            self.engine.mark_durable(self.commits[-1].state.vector)
            self.commits = self.commits[-1:]

    def intact(self, position: int) -> bool:
        """Whether the journal holds everything, so that the same incarnation may continue."""
        last = self.commits[-1]
        return last.position == position and last.state == self.engine.state()

    def crash(self, which: int, position: int, *, recover: bool) -> int:
        """Die and restart from a commit. Returns the position of that commit.

        which: the number of the commit, counted from the durable one.
        recover: whether the process outlived its journal's server, and hands over what the server lost.
        """
        same = self.intact(position)
        commit = self.commits[-1] if same else self.commits[min(which, len(self.commits) - 1)]
        old = self.engine
        self.ended_counters.append(old.counters())
        self.life += 1
        self.held = []
        me = old.me
        if not same:
            self.incarnations += 1
            me = new_incarnation(self.name, self.incarnations, 0, previous=old.me)
        self.engine = self.engine_type(me, self.names, state=commit.state, durable=self.durability)
        if recover and not same and self.durability is Durability.DECLARED:
            for message in old.state().unstable:
                self.engine.receive(old.me, message)
        # The new incarnation is saved before it sends anything. If the outbox is held, nothing else is needed.
        self.commits = [BaselineCommit(self.engine.state(), commit.position)]
        return commit.position
