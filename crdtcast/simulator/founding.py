"""A simulated group that its machines found together, by the founding round (`crdtcast.engine.founding`).

At first no process runs. A process that starts with an empty journal takes part in the round. Its links keep
announcements in order, and lose them only when the link itself is lost. Once it has begun, it is a member like any
other; if the group has begun without it, it joins in its name's place. The actions of `crdtcast.simulator.group.world`
all work; `link`, `cut`, `mute`, `crash` and `die` also apply to processes in the round. Additional actions:

    memory X     X keeps no journal: all is gone with its process, and it takes part in the round again
    found X n    X's process starts with nothing, on a clock that has gone back by n
    hear A B     A's next announcement on its link with B arrives there

Judged in addition to what is judged in any run: no two groups have members at the same time, no member is replaced by
its own process, and in the end all machines of the list are in the group.
"""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from crdtcast.causality.member_id import base_of, name_of, new_incarnation
from crdtcast.engine.founding import Announcement, Begun, FoundingRound, Late
from crdtcast.engine.group import GroupEngine
from crdtcast.engine.membership import MemberInfo
from crdtcast.simulator.campaigns import Campaign
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.group import crashes
from crdtcast.simulator.group.application import SimulatedApplication
from crdtcast.simulator.group.drain import Drain
from crdtcast.simulator.group.machine import Machine, MachinePhase
from crdtcast.simulator.group.observer import RunObserver
from crdtcast.simulator.group.scheduler import GroupScheduler
from crdtcast.simulator.group.world import GroupWorld
from crdtcast.simulator.oracle import Checker, OracleSnapshot
from crdtcast.simulator.schedule import Action

_CLOCK = 100
"""The time of all clocks at first."""

Said: TypeAlias = Announcement | str
"""A founder's announcement, or the id of the group of a member."""


@dataclass(slots=True)
class FoundingLine:
    """One direction of a founder's link: what was sent last, and what has not arrived yet, in order."""

    last: Said | None = None
    flight: deque[Said] = field(default_factory=deque)


class FoundingDrain(Drain):
    """The operator also starts the processes of all founders; if there is no member, also those of dead founders."""

    world: "FoundingWorld"

    def run(self) -> None:
        super().run()
        world = self.world
        if (world.living() or not world.group) and (late := world.outside_of_group()):
            raise Failure("unfounded", f"{', '.join(late)} never begin, and never hear of a group")

    def exchange(self) -> None:
        super().exchange()
        while busy := self.world.said():
            for pair in busy:
                while self.world.apply(("hear", *pair)):
                    pass
            super().exchange()

    def _attend(self) -> None:
        world = self.world
        for name in world.founders:
            machine = world.machines[name]
            if not world.has_members() and machine.phase is MachinePhase.DEAD:
                world.apply(("revive", name))
            if world.may_found(machine):
                world.apply(("found", name, 0))
        self._dial()
        self.exchange()
        super()._attend()

    def _dial(self) -> None:
        super()._dial()
        for pair in self.world.unlinked():
            self.world.connect(*pair)

    def settled(self) -> bool:
        return super().settled() and not self.world.outside_of_group()


class FoundingWorld(GroupWorld):
    """A group that has not begun yet.

    round_type: the class of the founding round, the real one or your own.
    """

    def __init__(
        self,
        founders: tuple[str, ...],
        witnesses: tuple[str, ...] = (),
        engine_type: type[GroupEngine] = GroupEngine,
        observer: RunObserver | None = None,
        round_type: type[FoundingRound] = FoundingRound,
    ) -> None:
        super().__init__(founders, witnesses, engine_type, observer)
        self.round_type = round_type
        self.rounds: dict[str, FoundingRound] = {}
        """By name, of the machines in `MachinePhase.FOUNDING`."""
        self.lines: dict[tuple[str, str], FoundingLine] = {}
        """Links with a founder at one end or both; those between two members are in `wires`."""
        self.group: str = ""
        """The id of the group that has begun."""
        self.in_memory: set[str] = set()
        self._first: tuple[MemberInfo, ...] = ()
        self._late: set[str] = set()
        self._clocks = dict.fromkeys(founders, _CLOCK)

    def begin(self) -> None:
        """Start nothing: the group begins in its founding round."""

    def new_drain(self) -> "FoundingDrain":
        """See `GroupWorld`."""
        return FoundingDrain(self)

    # Looking in

    def may_found(self, machine: Machine) -> bool:
        """Whether no process runs on this founder's machine, and the next one starts without any state."""
        knows = machine.asked or machine.replaces or machine.parked
        return machine.phase is MachinePhase.OUTSIDE and machine.name in self.founders and not knows

    def outside_of_group(self) -> list[str]:
        """Founders whose group has not begun, and that are not dead."""
        machines = [self.machines[name] for name in self.founders]
        return [m.name for m in machines if m.phase is MachinePhase.FOUNDING or self.may_found(m)]

    def has_members(self) -> bool:
        """Whether a member's process runs, or a journal exists to start one from."""
        return any((m.up or m.commits) and not m.ghost for m in self.machines.values())

    def said(self) -> list[tuple[str, str]]:
        """Pairs with an announcement that can arrive."""
        blocked = set(self.wires.blocked)
        return [pair for pair, line in self.lines.items() if line.flight and pair not in blocked]

    def unlinked(self) -> list[tuple[str, str]]:
        """Pairs of processes without a link, at least one of them in the round."""
        names = [m.name for m in self.machines.values() if self._speaks(m)]
        return [
            (a, b)
            for place, a in enumerate(names)
            for b in names[place + 1 :]
            if (a in self.rounds or b in self.rounds) and (a, b) not in self.lines
        ]

    def awaits_founders(self, contact: str, name: str) -> bool:
        """Whether a contact may not admit a joiner of that name yet."""
        host = self.machines.get(contact)
        is_member = host is not None and host.up and contact in self.in_memory
        return is_member and bool(self.machines[contact].running.awaited_founders(name))

    def _speaks(self, machine: Machine) -> bool:
        return machine.phase is MachinePhase.FOUNDING or (machine.up and not machine.ghost)

    # Actions

    def _do(self, verb: str, arguments: tuple[str | int, ...]) -> bool:
        name = str(arguments[0])
        machine = self.machines.get(name)
        if verb == "hear":
            return self._hear(name, str(arguments[1]))
        if verb in ("join", "replace") and self.awaits_founders(str(arguments[-1]), name):
            self.counts["awaited"] += 1
            return False
        if machine is None:
            return super()._do(verb, arguments)
        if verb == "found":
            return self._found(machine, int(arguments[1]))
        if verb == "memory":
            if self.has_members() or name in self.in_memory:
                return False
            self.in_memory.add(name)
            return True
        if verb in ("join", "copy") and self.may_found(machine):
            return False  # it does not know that the group exists
        if machine.phase is MachinePhase.FOUNDING:
            if verb in ("crash", "die"):
                return self._crash_in_round(
                    machine, MachinePhase.DEAD if verb == "die" else MachinePhase.OUTSIDE
                )
            if verb == "upgrade":
                return super()._do(verb, arguments) and self._crash_in_round(
                    machine, MachinePhase.OUTSIDE
                )
        elif name in self.in_memory and machine.up and verb in ("crash", "torn", "die"):
            return self._forget_all(machine, dies=verb == "die")
        if verb == "join" and name in self._late:
            return self._join_by_name(machine, str(arguments[1]))
        return super()._do(verb, arguments)

    def _found(self, machine: Machine, back: int) -> bool:
        if not self.may_found(machine):
            return False
        name = machine.name
        self._clocks[name] = max(0, self._clocks[name] - back)
        self.counts["clocks_back"] += back > 0
        machine.stop(MachinePhase.FOUNDING)
        self.rounds[name] = self.round_type(
            name,
            self.founders,
            partial(self._fresh, name),
            witness=machine.witness,
            reads=machine.reads,
        )
        machine.me = self.rounds[name].me
        self._look(machine)
        return True

    def _fresh(self, name: str, previous: str | None) -> str:
        """The counter stands for the random bits of an id, so ids are unique whatever the clock says."""
        self._clocks[name] += 1
        self.counts["fresh_ids"] += 1
        return new_incarnation(name, self._clocks[name], self.counts["fresh_ids"], previous)

    def _crash_in_round(self, machine: Machine, phase: MachinePhase) -> bool:
        del self.rounds[machine.name]
        self.disconnect_all(machine)
        machine.stop(phase)
        machine.lost = phase is MachinePhase.DEAD
        self.counts["deaths" if machine.lost else "restarts_in_round"] += 1
        return True

    def _forget_all(self, machine: Machine, *, dies: bool) -> bool:
        """The process ends, and all that it has acknowledged is lost with it."""
        if not crashes.torn(self, machine, 0):
            return crashes.die(self, machine) if dies else crashes.crash(self, machine)
        self.ledger.torn(machine.name, 0)
        machine.parked, machine.replaces = None, ()
        self.counts["memory_lost"] += 1
        if dies:
            machine.phase, machine.lost = MachinePhase.DEAD, True
            self.counts["deaths"] += 1
        return True

    # The round

    def _hear(self, a: str, b: str) -> bool:
        if (a, b) not in self.said():
            return False
        said = self.lines[a, b].flight.popleft()
        founding = self.rounds.get(b)
        if founding is None:
            return True  # it is a member
        if isinstance(said, str):
            founding.heard_of_group(said)
            self.counts["begun_by_hearsay"] += isinstance(founding.outcome, Begun)
        else:
            before = founding.me
            founding.heard(a, said)
            self.counts["raised_ids"] += founding.me != before
        self._look(self.machines[b])
        return True

    def _look(self, machine: Machine) -> None:
        founding = self.rounds[machine.name]
        machine.me = founding.me
        match founding.outcome:
            case Begun() as begun:
                self._begin_as(machine, begun)
            case Late():
                self._join_late(machine)
        self._tell()

    def _begin_as(self, machine: Machine, begun: Begun) -> None:
        if begun.group_id != self.group and self.has_members():
            there = [m.me for m in self.machines.values() if m.up or m.commits]
            raise Failure("two-groups", f"{begun.me} begins another group than that of {there}")
        if begun.group_id != self.group:
            self._forget_group()
        self.group, self._first = begun.group_id, begun.members
        del self.rounds[machine.name]
        state = self.engine_type.first_state(begun.members, begun.level)
        machine.start(self.engine_type(begun.me, state, machine.reads), SimulatedApplication())
        self.checker.joined_from(machine.me, OracleSnapshot())
        self.observer.started(machine)
        self.counts["begun"] += 1
        self.after(machine)
        for peer in [b for a, b in self.lines if a == machine.name and b not in self.rounds]:
            del self.lines[machine.name, peer], self.lines[peer, machine.name]
            self.connect(machine.name, peer)

    def _forget_group(self) -> None:
        """No member is left of the previous group. Copies of its processes never link with members of another group;
        copies of its state come from contacts that are gone.
        """
        self.checker: Checker = Checker(())
        self.views: dict[int, str] = {}
        for machine in self.machines.values():
            machine.former.clear()
            machine.bulk = None
            if machine.up:
                crashes.lay_to_rest(self, machine)

    def _join_late(self, machine: Machine) -> None:
        member = next(m.incarnation for m in self._first if name_of(m.incarnation) == machine.name)
        if member == machine.me:
            raise Failure("replaces-itself", f"{member} is a first member, and asks to replace it")
        del self.rounds[machine.name]
        self.disconnect_all(machine)
        machine.stop(MachinePhase.OUTSIDE)
        machine.replaces = (member,)
        self._late.add(machine.name)
        self.counts["late"] += 1

    def _join_by_name(self, machine: Machine, contact: str) -> bool:
        """Join and replace all incarnations of this name that the contact knows as members."""
        host, before = self.machines.get(contact), machine.replaces
        members = host.running.members if host is not None and host.up else ()
        named = [m for m in members if name_of(m) == machine.name and base_of(m) != machine.base]
        machine.replaces = asked = tuple(dict.fromkeys((*before, *named)))
        done = super()._do("join", (machine.name, contact))
        if not done and machine.replaces == asked:
            machine.replaces = before
        return done

    # Links

    def connect(self, a: str, b: str) -> bool:
        if a not in self.rounds and b not in self.rounds:
            return super().connect(a, b)
        both = self.machines[a], self.machines[b]
        if (a, b) in self.lines or not self.wires.open(a, b) or not all(map(self._speaks, both)):
            return False
        self.lines[a, b], self.lines[b, a] = FoundingLine(), FoundingLine()
        self._tell()
        return True

    def disconnect(self, a: str, b: str) -> bool:
        if (a, b) not in self.lines:
            return super().disconnect(a, b)
        for one, other in ((a, b), (b, a)):
            del self.lines[one, other]
            if one in self.rounds:
                self.rounds[one].gone(other)
        return True

    def disconnect_all(self, machine: Machine) -> None:
        for a, b in list(self.lines):
            if a == machine.name:
                self.disconnect(a, b)
        super().disconnect_all(machine)

    def _tell(self) -> None:
        """Send on each link what has changed since the last announcement there."""
        for (a, _), line in self.lines.items():
            founding = self.rounds.get(a)
            says = self.group if founding is None else founding.announcement()
            if says != line.last:
                line.last = says
                line.flight.append(says)


class FoundingScheduler(GroupScheduler):
    """The choices of one run. Some founders are in memory, but never all: if all founders restart without state, they
    found another group.
    """

    world: FoundingWorld

    def __init__(self, chance: random.Random, world: FoundingWorld, campaign: Campaign) -> None:
        super().__init__(chance, world, campaign)
        names = list(world.founders)
        self._in_memory = chance.sample(
            names, chance.choice((0, min(1, len(names) - 1), len(names) - 1))
        )
        self._clocks_go_back = chance.random() < 0.5
        self._crashes = chance.choice((0, 1, 2, 4, 8))
        self._dies = chance.random() < 0.1
        self.temper.steps += 10 * len(names) ** 2

    def actions(self) -> Iterator[Action]:
        for name in self._in_memory:
            yield ("memory", name)
        yield from super().actions()

    def _options(self) -> dict[str, int]:
        world = self.world
        options = super()._options()
        options["found"] = 15 * len(self._startable())
        options["hear"] = 100 if world.said() else 0
        options["link"] += 20 * len(self._broken())
        if not world.has_members():
            counts = world.counts
            options["clock"] = 0
            options["crash"] = 3 if counts["restarts_in_round"] < self._crashes else 0
            options["die"] = 1 if self._dies and not counts["deaths"] else 0
            options["revive"] = 5 * len(self._dead())
        return options

    def _startable(self) -> list[str]:
        return [m.name for m in self.world.machines.values() if self.world.may_found(m)]

    def _processes(self) -> list[str]:
        return [m.name for m in self.world.machines.values() if m.up or m.name in self.world.rounds]

    def _dead(self) -> list[str]:
        return [m.name for m in self.world.machines.values() if m.phase is MachinePhase.DEAD]

    def _broken(self) -> list[tuple[str, str]]:
        """Pairs with a founder that have no link, or a link on which nothing arrives."""
        world = self.world
        return world.unlinked() + [
            p for p in world.lines if p[0] < p[1] and not world.wires.open(*p)
        ]

    def _revive(self, verb: str) -> Iterator[Action]:
        yield (verb, self.chance.choice(self._dead()))

    def _found(self, verb: str) -> Iterator[Action]:
        goes_back = self._clocks_go_back and self.chance.random() < 0.8
        back = self.chance.choice((2, 3, 10)) if goes_back else 0
        yield (verb, self.chance.choice(self._startable()), back)

    def _hear(self, verb: str) -> Iterator[Action]:
        """A founder that begins on this announcement may crash at once."""
        pair = self.chance.choice(self.world.said())
        if self.temper.slow(pair):
            return
        was_in_round = pair[1] in self.world.rounds
        yield (verb, *pair)
        if was_in_round and self.world.machines[pair[1]].up and self.chance.random() < 0.1:
            yield ("crash", pair[1])

    def _pair(self, verb: str) -> Iterator[Action]:
        names = self._processes()
        if len(names) > 1:
            yield (verb, *self.chance.sample(names, 2))

    _cut = _mute = _pair

    def _link(self, verb: str) -> Iterator[Action]:
        pairs = self._broken()
        if pairs and self.chance.random() < 0.8:
            yield (verb, *self.chance.choice(pairs))
        else:
            yield from super()._link(verb)

    def _crash(self, verb: str) -> Iterator[Action]:
        if names := self._processes():
            yield (verb, self.chance.choice(names))

    def _die(self, verb: str) -> Iterator[Action]:
        if self.world.rounds:
            yield (verb, self.chance.choice(sorted(self.world.rounds)))
        else:
            yield from super()._die(verb)
