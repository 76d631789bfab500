"""How a group with a hostile member settles: the actions of its operators."""

from collections.abc import Callable

from crdtcast.causality.member_id import base_of
from crdtcast.engine.membership import Standing
from crdtcast.simulator.group.base_world import BaseWorld
from crdtcast.simulator.group.drain import FORCED, Drain
from crdtcast.simulator.group.machine import Machine


class HostileDrain(Drain):
    """An operator who knows that the hostile member must go, and all members without a machine.

    liar: the machine of the hostile member.
    of_the_liar: runs what happens in its process, and tolerates errors there.
    """

    def __init__(
        self,
        world: BaseWorld,
        liar: Machine,
        of_the_liar: Callable[[Callable[[], object]], bool],
    ) -> None:
        super().__init__(world)
        self._liar = liar
        self._of_the_liar = of_the_liar
        self._alone = 0  # how often a machine had to continue without all others

    def _bury(self, active: list[Machine]) -> None:
        world = self.world
        holders = [m for m in active if not m.witness]
        known = [m for m in holders if m.me in m.running.established] or holders
        first = next((m for m in known if m.me not in m.running.victims), known[0])
        for member in self._strange(first):
            if member not in first.running.victims:
                world.apply(("evict", first.name, member))

    def settled(self) -> bool:
        """Also no member is left that the hostile member has named as replaced: such members are evicted in time."""
        replaced = {base for m in self.world.living() for base in m.running.outline().replaced}
        return super().settled() and not any(base_of(m.me) in replaced for m in self.world.living())

    def _take(self, machine: Machine) -> None:
        if machine is not self._liar:
            super()._take(machine)
        else:
            self._of_the_liar(lambda: super(HostileDrain, self)._take(machine))

    def _strange(self, machine: Machine) -> list[str]:
        """All members except honest machines that run or are about to come back."""
        world = self.world
        honest = {m.me for m in world.living()}
        back = {m.base for m in world.machines.values() if self.wants_in(m)}
        members = sorted({*machine.running.members, *machine.running.waits_for()})
        return [x for x in members if x not in honest and base_of(x) not in back]

    def _decide(self, active: list[Machine]) -> None:
        """First evict by force the members that are not honest machines. If that does not help, one machine after the
        other continues without all others, since the first may have accepted what these refuse. If there are no strange
        members, act as in any run.
        """
        victims = set().union(*(m.running.victims for m in active))
        able = [m for m in active if m.me not in victims] or active
        first = able[0]
        forced = {x for x, force in first.running.wants.victims.items() if force}
        strange = self._strange(first)
        disputed = any(m.running.standing is Standing.DISPUTED for m in active)
        if disputed or not strange:
            super()._decide(active)
        elif not_yet := [member for member in strange if member not in forced]:
            self._force(first, not_yet)
        else:
            self._alone += 1
            last = able[self._alone % len(able)]
            self._force(last, sorted(last.running.members.keys() - {last.me}))

    def _force(self, machine: Machine, members: list[str]) -> None:
        for member in members:
            self.world.counts[FORCED] += self.world.apply(("force", machine.name, member))
