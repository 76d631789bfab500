"""Every schedule of a small scope: two or three members, a few actions of each, and packets in every order.

A step is one action of a member, or the arrival of the oldest message on one link. After an arrival the application
takes all deliveries, and a sync releases the answers. Digests are dropped, and also frames of views while no change is
under way (they come again when the group settles). After each step the group also settles and is judged, since
a schedule may stop anywhere. A state that was reached before is not explored again.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from crdtcast.causality.messages import Digest, Message
from crdtcast.engine.views import Views
from crdtcast.exceptions import ConfigurationError
from crdtcast.simulator.campaign import GroupOutcome, group_world
from crdtcast.simulator.failure import Failure
from crdtcast.simulator.group.verdict import drain_and_judge
from crdtcast.simulator.run import Outcome
from crdtcast.simulator.schedule import Action, GroupSchedule

MAX_FAILURES = 3


@dataclass(frozen=True, slots=True)
class Scope:
    """The founders of the group, and the actions of each actor in their order."""

    founders: tuple[str, ...]
    doings: tuple[tuple[Action, ...], ...]
    witnesses: tuple[str, ...] = ()


SCOPES: dict[str, Scope] = {
    "sends": Scope(("a", "b", "c"), ((("send", "a"),), (("send", "b"),), (("send", "c"),))),
    "join": Scope(
        ("a", "b"), ((("send", "a"),), (("send", "b"),), (("join", "c", "a"), ("send", "c")))
    ),
    "two-joins": Scope(
        ("a", "b"), ((("join", "c", "a"), ("send", "c")), (("join", "d", "b"), ("send", "d")))
    ),
    "leave": Scope(
        ("a", "b", "c"), ((("send", "a"), ("leave", "a")), (("send", "b"),), (("leave", "c"),))
    ),
    "join-leave": Scope(
        ("a", "b"), ((("join", "c", "a"), ("send", "c")), (("send", "b"), ("leave", "b")))
    ),
    "evict-one": Scope(("a", "b", "c"), ((("evict", "a", "c"),), (("send", "c"),))),
    "evict-of-two": Scope(
        ("a", "b"), ((("evict", "a", "b"),), (("send", "b"), ("evict", "b", "a")))
    ),
    "join-one": Scope(("a", "b"), ((("join", "c", "a"), ("send", "c")), (("send", "b"),))),
    "evict": Scope(
        ("a", "b", "c"), ((("evict", "a", "c"),), (("send", "b"),), (("send", "c"), ("send", "c")))
    ),
    "evict-dead": Scope(
        ("a", "b", "c"), ((("evict", "a", "c"),), (("send", "b"),), (("send", "c"), ("die", "c")))
    ),
    "evict-leaver": Scope(
        ("a", "b", "c"), ((("evict", "a", "c"),), (("send", "b"),), (("send", "c"), ("leave", "c")))
    ),
    "mutual": Scope(
        ("a", "b", "c"), ((("evict", "a", "b"),), (("evict", "b", "a"),), (("send", "c"),))
    ),
    "evict-join": Scope(
        ("a", "b", "c"),
        ((("evict", "a", "b"),), (("join", "d", "b"), ("send", "d")), (("send", "c"),)),
    ),
    "evict-contact": Scope(
        ("a", "b", "c"),
        ((("evict", "a", "c"),), (("join", "d", "a"),), (("send", "c"), ("send", "b"))),
    ),
    "witness": Scope(
        ("a", "b", "w"), ((("evict", "a", "b"),), (("send", "b"), ("send", "b"))), ("w",)
    ),
    "replace": Scope(
        ("a", "b"), ((("send", "b"), ("torn", "b", 0), ("join", "b", "a")), (("send", "a"),))
    ),
    "crash": Scope(
        ("a", "b", "c"),
        ((("evict", "a", "c"),), (("send", "b"), ("crash", "b")), (("send", "c"),)),
    ),
}
"""The scopes of `crdtcast simulate --exhaustive`."""


@dataclass(slots=True)
class Covered:
    """How much of a scope was searched.

    states: different states, each judged.
    schedules: paths from the first state to states without a next step, within what was searched.
    """

    states: int = 0
    schedules: int = 0
    complete: bool = True
    failures: list[GroupOutcome] = field(default_factory=list)


def explore(name: str, limit: int = 20_000, engine: str | None = None) -> Covered:
    """Search the scope of that name, depth first, up to `limit` states.

    engine: your own class, see `group_world`.
    Raises ConfigurationError if the scope is unknown.
    """
    if name not in SCOPES:
        raise ConfigurationError(f"unknown scope {name!r}: choose from {', '.join(SCOPES)}, all")
    scope = SCOPES[name]
    covered = Covered()
    known: dict[object, int] = {}
    behind: list[list[int]] = []  # state -> states that one step leads to
    stack: list[tuple[int, tuple[Action, ...]]] = [(-1, ())]
    while stack and len(covered.failures) < MAX_FAILURES:
        before, path = stack.pop()
        run = _Run(scope, engine)
        try:
            run.follow(path)
        except Failure as failure:
            covered.failures.append(run.outcome(failure))
            continue
        state = run.fingerprint()
        place = known.get(state)
        if before >= 0 and place is not None:
            behind[before].append(place)
        if place is not None:
            continue
        if len(known) >= limit:
            covered.complete = False
            break
        place = known[state] = len(behind)
        behind.append([])
        if before >= 0:
            behind[before].append(place)
        stack.extend((place, (*path, step)) for step in run.steps())
        try:
            drain_and_judge(run.world)
        except Failure as failure:
            covered.failures.append(run.outcome(failure))
    covered.states = len(known)
    covered.schedules = _ways(behind)
    return covered


def _ways(behind: list[list[int]]) -> int:
    """The number of paths from state 0 to states without a next step. There are no cycles."""
    into = [0] * len(behind)
    for targets in behind:
        for target in targets:
            into[target] += 1
    ways = [0] * len(behind)
    ways[0] = 1
    ready = deque([0])
    whole = 0
    while ready:
        state = ready.popleft()
        whole += 0 if behind[state] else ways[state]
        for target in behind[state]:
            ways[target] += ways[state]
            into[target] -= 1
            if not into[target]:
                ready.append(target)
    return whole


def _comes_again(content: object) -> bool:
    """Whether the time of this arrival does not matter, since the content is sent again."""
    if not isinstance(content, Views):
        return isinstance(content, Digest)
    is_open = any(r.promise or r.proposal or r.accepted for r in content.records)
    return not (is_open or content.decided or content.asks)


class _Run:
    """One world, and the actions that have led to it."""

    def __init__(self, scope: Scope, engine: str | None) -> None:
        self._scope = scope
        self._schedule = GroupSchedule(
            members=scope.founders, engine=engine, witnesses=scope.witnesses
        )
        self.world = group_world(self._schedule)
        self._actions: list[Action] = []
        self._done = [0] * len(scope.doings)
        self._received: dict[tuple[str, int], set[str]] = {}
        self._drop_digests()

    def follow(self, path: tuple[Action, ...]) -> None:
        """Take these steps. Raises Failure."""
        for step in path:
            place = int(step[-1])
            if step[0] == "do":
                doing = self._scope.doings[place][self._done[place]]
                self._done[place] += 1
                self._apply(doing)
                self._settle(str(doing[2] if doing[0] == "join" else doing[1]))
            else:
                self._take(str(step[1]), str(step[2]))
            self._drop_digests()

    def _apply(self, action: Action) -> bool:
        self._actions.append(action)
        return self.world.apply(action)

    def _take(self, sender: str, receiver: str) -> None:
        content = self.world.wires.flights[sender, receiver][0].content
        if isinstance(content, Message):
            process = receiver, self.world.machines[receiver].number
            self._received.setdefault(process, set()).add(str(content.dot))
        self._apply(("net", sender, receiver, 0))
        self._settle(receiver)

    def _settle(self, name: str) -> None:
        while self._apply(("poll", name)):
            pass
        self._apply(("stable", name))
        self._apply(("sync", name))

    def _drop_digests(self) -> None:
        for pair in self.world.wires.busy:
            place = 0
            while place < len(self.world.wires.flights.get(pair, ())):
                if _comes_again(self.world.wires.flights[pair][place].content):
                    self._apply(("drop", *pair, place))
                else:
                    place += 1

    def steps(self) -> Iterator[Action]:
        """The possible next steps."""
        for place, doings in enumerate(self._scope.doings):
            if self._done[place] < len(doings):
                yield ("do", place)
        for pair in self.world.wires.busy:
            yield ("take", *pair, 0)

    def fingerprint(self) -> object:
        """A value that two worlds share only if the same can happen after both."""
        machines = [
            (
                name,
                machine.phase,
                machine.me,
                machine.asked,
                repr(machine.running.state()) if machine.up else "",
                machine.running.standing if machine.up else None,
                sorted(self._received.get((name, machine.number), ())),
            )
            for name, machine in sorted(self.world.machines.items())
        ]
        flights = [
            (pair, [repr(parcel.content) for parcel in parcels])
            for pair, parcels in sorted(self.world.wires.flights.items())
        ]
        return repr((self._done, machines, flights))

    def outcome(self, failure: Failure) -> GroupOutcome:
        """The run so far, as a failed one."""
        schedule = self._schedule.with_actions(self._actions)
        return Outcome(schedule, self.world.totals(), failure.kind, f"{failure.kind}: {failure}")
