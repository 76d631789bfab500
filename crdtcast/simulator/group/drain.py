"""Lets a simulated group settle: the network heals, and an operator acts, until all is quiet.

The operator evicts dead members if the living are a majority; otherwise it brings the dead back. It lets in machines
that are outside. It replaces a living victim whose eviction no majority can conclude. Of two sides that have forcibly
evicted each other it keeps one. Then `crdtcast.simulator.group.verdict` judges.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from crdtcast.causality.member_id import base_of, name_of
from crdtcast.engine.membership import Standing
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.group import crashes, entry, upgrades
from crdtcast.simulator.group.base_world import BaseWorld
from crdtcast.simulator.group.machine import Machine, MachinePhase

ROUNDS = 500
PATIENCE = 60
"""Rounds after which the operator acts on an eviction that is still open, or on a dispute."""
MAX_SPARES = 4
"""Limit on new machines that replace dead ones."""
STANDSTILL = 300
"""Rounds without any change after which a run is judged as it is."""
RAISE_EVERY = 10
"""Rounds between two attempts to raise the format level, if programs were upgraded."""
EXCHANGES = 300
RETURNS = 60
"""How often members may be stopped in a run; more counts as an endless loop."""

ASKED, FORCED, REPLACED = "evict_asked", "second_forced", "second_replaced"
"""Counters of a run: see `OperatorSteps`."""


class OperatorSteps(NamedTuple):
    """How much the operators of a campaign had to do, summed over runs: evictions, and second steps that these needed.

    A second step is needed after a run, on a whole network, if an eviction does not end by itself: the operator uses
    force, or restarts a live member in its own place. Forced evictions that the campaign itself draws are faults, and
    do not count.
    """

    asked: int
    forced: int
    replaced: int

    @classmethod
    def of(cls, counts: Counter[str]) -> "OperatorSteps":
        """The steps in the counters of runs."""
        return cls(counts[ASKED], counts[FORCED], counts[REPLACED])

    @property
    def second(self) -> int:
        """All second steps."""
        return self.forced + self.replaced

    def as_json(self) -> dict[str, int]:
        """Keys of a campaign's JSON object, also where they are 0."""
        return {
            ASKED: self.asked,
            "second_steps": self.second,
            FORCED: self.forced,
            REPLACED: self.replaced,
        }

    def __str__(self) -> str:
        return (
            f"{self.asked} evictions asked, {self.second} second steps"
            f" ({self.forced} forced, {self.replaced} replaced)"
        )


class Drain:
    """Lets one group settle, in `rounds` rounds."""

    def __init__(self, world: BaseWorld) -> None:
        self.world = world
        self.rounds: int = 0
        self._since = 0  # the round since which the same evictions and disputes are open
        self._open: object = None
        self._spares = 0
        self._upgrades = False
        self._forced = False
        self._sends_again = True
        self._still = 0  # rounds without any change
        self._last: object = None

    def run(self) -> None:
        """Run until everything is settled, or nothing changes any more."""
        world = self.world
        self._upgrades = any(world.counts[verb] for verb in ("upgrades", "downgrades"))
        if self._upgrades and not world.settling:
            upgrades.replace_all(world)
        world.settling = True
        for _ in self._rounds(ROUNDS):
            lagging = self._upgrades and upgrades.lagging(world)
            if (self.settled() and not lagging) or self._stands_still():
                break

    def calm(self, rounds: int) -> None:
        """Let `rounds` rounds pass without faults in the middle of a run. In them no former operation is sent again."""
        self._sends_again = False
        for _ in self._rounds(rounds):
            pass

    def _rounds(self, limit: int) -> Iterator[int]:
        world = self.world
        for a, b in world.wires.blocked:
            world.wires.unblock(a, b)
        for self.rounds in range(1, limit + 1):
            self.exchange()
            self._attend()
            for machine in self._up():
                world.apply(("tick", machine.name))
            self.exchange()
            yield self.rounds

    def _stands_still(self) -> bool:
        """Whether nothing has changed for so long that nothing will, not even through the operator."""
        last = [
            (m.phase, m.number, m.running.standing, m.running.view, sum(m.running.vector.values()))
            if m.up
            else m.phase
            for m in self.world.machines.values()
        ]
        self._still = self._still + 1 if last == self._last else 0
        self._last = last
        return self._still > STANDSTILL

    def _up(self) -> list[Machine]:
        return [machine for machine in self.world.machines.values() if machine.up]

    def exchange(self) -> None:
        """Let all packets arrive and be taken, until nothing is in flight. Raises Failure if this never ends."""
        world = self.world
        for _ in range(EXCHANGES):
            for machine in self._up():
                self._take(machine)
            busy = world.wires.busy
            if not busy:
                return
            for pair in busy:
                while pair in world.wires.flights:
                    world.apply(("net", *pair, 0))
        raise Failure("noise", f"packets beget packets: {world.wires.flights}")

    def _take(self, machine: Machine) -> None:
        world, name = self.world, machine.name
        while machine.up and machine.running.has_deliverable() and world.apply(("poll", name)):
            pass
        while machine.up and machine.running.has_stable() and world.apply(("stable", name)):
            pass
        while self._sends_again and machine.up and world.apply(("reissue", name)):
            pass
        if machine.up and (machine.held or machine.running.standing is Standing.LEFT):
            world.apply(("sync", name))

    # The operator

    def _attend(self) -> None:
        world = self.world
        self._dial()
        active = [m for m in world.living() if m.active]
        contacts = self._contacts(active)
        if not contacts:
            self._revive_one()
            return
        for machine in list(world.machines.values()):
            if (machine.stopped and not machine.ghost) or self.wants_in(machine):
                self._let_in(machine, contacts)
        if world.counts["stopped"] > RETURNS:
            raise Failure("unrest", "members are told that they have ended, again and again")
        self._bury(active)
        if self._upgrades and self.rounds % RAISE_EVERY == 0:
            for machine in upgrades.lagging(world)[:1]:
                world.apply(("raise", machine.name))
        outside = [m.name for m in world.machines.values() if self.wants_in(m)]
        state = [(m.name, sorted(m.running.victims), m.running.standing) for m in active], outside
        unsettled = outside or any(
            m.running.victims or m.running.standing is not Standing.MEMBER for m in active
        )
        if state != self._open or not unsettled:
            self._open, self._since = state, self.rounds
        elif self.rounds - self._since > PATIENCE:
            self._since = self.rounds
            self._decide(active)

    @staticmethod
    def _contacts(active: list[Machine]) -> list[Machine]:
        """The contacts that the operator names to machines outside: a victim only if there is no other member.

        A victim may not know that it is one, and members that it lets in are cut off together with it.
        """
        holders = [m for m in active if not m.witness]
        victims = set().union(*(m.running.victims for m in active))
        return [m for m in holders if m.me not in victims] or holders

    def _dial(self) -> None:
        world = self.world
        up = self._up()
        for place, machine in enumerate(up):
            if machine.ghost and machine.running.standing in (Standing.EVICTED, Standing.LEFT):
                crashes.lay_to_rest(world, machine)
                continue
            for other in up[place + 1 :]:
                if machine.up and other.up and not world.wires.connected(machine.name, other.name):
                    world.connect(machine.name, other.name)

    @staticmethod
    def wants_in(machine: Machine) -> bool:
        """Whether this machine is outside, and has asked to join or was a member before."""
        waits = machine.asked or machine.replaces or machine.parked
        return machine.phase is MachinePhase.OUTSIDE and bool(waits)

    def _let_in(self, machine: Machine, contacts: list[Machine]) -> None:
        names = [m.name for m in contacts]
        if machine.asked in names:
            names.remove(machine.asked)
            names.insert(0, machine.asked)
        for name in names:
            if self.world.apply(("join", machine.name, name)):
                return
        if machine.bulk is not None and self.rounds % 20 == 0:
            machine.bulk = None  # too much has changed since this copy: start again

    def _revive_one(self) -> None:
        for name, machine in sorted(self.world.machines.items()):
            if machine.phase is MachinePhase.DEAD and machine.commits:
                self.world.apply(("revive", name))
                return

    def _bury(self, active: list[Machine]) -> None:
        """Evict members without a process, if the living are a majority; otherwise bring one of them back."""
        world = self.world
        holders = [m for m in active if not m.witness]
        known = [m for m in holders if m.me in m.running.established]
        first = next((m for m in known if m.me not in m.running.victims), holders[0])
        living = {m.me for m in world.living()}
        returning_bases = {m.base for m in world.machines.values() if self.wants_in(m)}
        engine = first.running
        replaced = engine.state().replaced
        absent = [
            member
            for member in sorted({*engine.members, *engine.waits_for()})
            if member not in living
            and base_of(member) not in returning_bases
            and base_of(member) not in replaced
        ]
        to_replace = {x for m in world.machines.values() if self.wants_in(m) for x in m.replaces}
        absent = [member for member in absent if member not in to_replace]
        if not absent:
            return
        voters = first.running.view.voters
        voting = [m for m in world.living() if m.me in voters]
        if 2 * len(voting) > len(voters) and not all(m.witness for m in active):
            for member in absent:
                if member not in first.running.victims:
                    world.apply(("evict", first.name, member))
            return
        if self.rounds % 10:
            return
        for name, machine in sorted(world.machines.items()):
            if machine.phase is MachinePhase.DEAD and name in map(name_of, absent):
                world.apply(("revive", name))
                return
        if self._spares < MAX_SPARES and not self.rounds % 30:
            self._spares += 1
            world.apply(("replace", f"spare{self._spares}", absent[0], first.name))

    def _decide(self, active: list[Machine]) -> None:
        """Nothing changes any more: replace a living victim, or keep one side of a dispute."""
        world = self.world
        victims = set().union(*(m.running.victims for m in active))
        split = [m for m in active if m.running.standing is Standing.SPLIT]
        if split:
            self._end_one_line(active, split)
            return
        disputed = [m for m in active if m.running.standing is Standing.DISPUTED]
        if disputed:
            holders = [m for m in active if not m.witness]
            free = [m for m in holders if m.me not in m.running.victims and m not in disputed]
            chosen = (free or holders)[0].running
            members = chosen.members.keys() - chosen.victims
            world.counts["disputed"] += 1
            for machine in disputed:
                if machine.me not in members:
                    world.apply(("surrender", machine.name))
            return
        contacts = [
            m
            for m in active
            if m.me not in victims and not m.witness and m.me in m.running.established
        ]
        living_victims = [m for m in active if m.me in victims]
        leaving = [m for m in world.living() if m.running.standing is Standing.LEAVING]
        living_victims += [m for m in leaving if m.me in victims]
        if contacts:
            group = contacts[0].running.members
            strangers = [m for m in active if m.me not in group]
            for stranger in strangers:
                # Let in by a member that had been cut off before: only it takes itself for a member.
                entry.stop(world, stranger)
                world.counts["limbo"] += 1
                world.counts[REPLACED] += 1
            if not strangers and living_victims:
                entry.stop(world, living_victims[0])
                world.counts["replaced_alive"] += 1
                world.counts[REPLACED] += 1
            for machine in world.machines.values():
                if self.wants_in(machine):  # it must not replace a member that stays after all
                    names = {m.me for m in contacts}
                    machine.replaces = tuple(x for x in machine.replaces if x not in names)
            return
        # No member is left that could let others in: the operator makes the first one continue by force.
        holders = [m for m in active if not m.witness]
        first = next((m for m in holders if m.me not in victims), holders[0])
        sound = set() if self._forced else {m.me for m in active} - victims
        self._forced = True
        for other in sorted(first.running.members.keys() - sound - {first.me}):
            world.counts[FORCED] += world.apply(("force", first.name, other))

    def _end_one_line(self, active: list[Machine], split: list[Machine]) -> None:
        """Members follow two changes of one epoch: those outside of the view of most members surrender."""
        world = self.world
        sides = Counter(m.running.view.name for m in active if not m.witness)
        kept = max(sides, key=lambda name: (sides[name], name))
        world.counts["split_views"] += 1
        for machine in split:
            if machine.running.view.name != kept:
                world.apply(("surrender", machine.name))

    # The end

    def settled(self) -> bool:
        """Whether the group is complete and quiet."""
        world = self.world
        living = world.living()
        names = {m.me for m in living}
        return (
            not world.wires.flights
            and not any(m.up and m.ghost for m in world.machines.values())
            and not any(self.wants_in(m) for m in world.machines.values())
            and all(
                m.running.quiet
                and not m.running.is_unsure
                and m.running.has_told_all
                and m.active
                and m.running.standing is Standing.MEMBER
                and not m.parked
                and not m.held
                and not m.running.victims
                and not m.running.ended
                and names == m.running.members.keys() == m.running.view.voters
                for m in living
            )
        )
