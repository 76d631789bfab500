"""How a group with a hostile member settles: what its operators do."""

from typing import TYPE_CHECKING

from crdtcast.causality.member_id import base_of
from crdtcast.engine.membership import Standing
from crdtcast.simulator.group.drain import Drain
from crdtcast.simulator.group.machine import Machine
from crdtcast.simulator.operator_steps import FORCED

if TYPE_CHECKING:
    from crdtcast.simulator.hostile.world import HostileWorld


class HostileDrain(Drain):
    """An operator who knows that the hostile member, and all whom no machine runs for, are to go."""

    world: "HostileWorld"
    _alone = 0  # how many machines were told to go on without all others

    def _bury(self, active: list[Machine]) -> None:
        world = self.world
        holders = [m for m in active if not m.witness]
        known = [m for m in holders if m.me in m.running.established] or holders
        first = next((m for m in known if m.me not in m.running.victims), known[0])
        for member in self._strange(first):
            if member not in first.running.victims:
                world.apply(("evict", first.name, member))

    def settled(self) -> bool:
        """Also nobody is left whom the hostile member has named as replaced: it is put out by and by."""
        replaced = {base for m in self.world.living() for base in m.running.outline().replaced}
        return super().settled() and not any(base_of(m.me) in replaced for m in self.world.living())

    def _take(self, machine: Machine) -> None:
        if machine is not self.world.liar:
            super()._take(machine)
        else:
            self.world.of_the_liar(lambda: super(HostileDrain, self)._take(machine))

    def _strange(self, machine: Machine) -> list[str]:
        """The members that are no honest machine which runs or is about to come back."""
        world = self.world
        honest = {m.me for m in world.living()}
        back = {m.base for m in world.machines.values() if self.wants_in(m)}
        members = sorted({*machine.running.members, *machine.running.waits_for()})
        return [x for x in members if x not in honest and base_of(x) not in back]

    def _decide(self, active: list[Machine]) -> None:
        """First those go by force who are no honest machine. If that does not help, one machine goes on without all
        others: the first may have accepted what those do not take. If nobody is strange, as in any run.
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
