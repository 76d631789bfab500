"""Checks a CRDT against a specification: a function from the visible operations, with their causal order, to the value.

The idea is antidote_crdt's: define the value from the history alone, and search random schedules for a replica that
disagrees.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from crdtcast.datatypes.canonical import canonical
from crdtcast.datatypes.pure import PureOpCRDT
from crdtcast.exceptions import InvalidOperationError
from crdtcast.testing.model_group import Group, ModelReplica, Sent, VisibleOperation
from crdtcast.testing.schedules import (
    Action,
    Deliver,
    Issue,
    Restart,
    Schedule,
    Stabilise,
    Synchronise,
    Wait,
    schedules,
)

Specification: TypeAlias = Callable[[Sequence[VisibleOperation]], Any]
"""From the visible operations, in one of their causal orders, to the expected value."""


def check_crdt(
    crdt: type[PureOpCRDT[Any]],
    operations: st.SearchStrategy[Sequence[Any]],
    specification: Specification,
    *,
    members: int = 3,
    examples: int = 200,
    actions: int = 30,
    seed: int = 0,
    shrink: bool = True,
) -> None:
    """Run `crdt` through random schedules. Raises AssertionError, with the steps as a note, if it fails one.

    operations: a strategy for tuples (name, argument, ...).
    specification: returns the expected value, from the visible operations.
    seed: the same seed gives the same schedules, with any hash seed.

    Checked after every step: the value; that replicas with equal operations have equal digests, and replicas with
    different values different ones; that `prepare` changes nothing; that stability, however early, changes no value;
    that a snapshot restores to the same value, log and bytes. Checked at the end: convergence; an empty log once all is
    stable; that `value` is a copy. Half of the schedules compress messages of several operations. An operation that is
    refused each time was not checked, so it raises AssertionError, too. An error that the type raises gets the same
    note.
    """

    @seeded(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        print_blob=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
    )
    @given(schedules(operations, members=members, actions=actions))
    def schedule_holds(schedule: Schedule) -> None:
        _Run(crdt, schedule, specification, tried).run()

    tried = Tried()

    # Hypothesis reseeds the global generator; the caller's state must not change.
    state = random.getstate()
    try:
        schedule_holds()
        tried.check(crdt)
    except Exception as failure:
        failure.add_note(f"{crdt.__name__} failed with seed={seed}")
        raise
    finally:
        random.setstate(state)


def run_schedule(
    crdt: type[PureOpCRDT[Any]], schedule: Schedule, specification: Specification
) -> None:
    """Run one schedule with all checks of `check_crdt`. Raises AssertionError with the steps taken."""
    _Run(crdt, schedule, specification).run()


class Tried:
    """The operations that were accepted at least once, and why the others were refused."""

    ENOUGH = 100
    """So many refusals of an operation that was never accepted look like a mistake."""

    def __init__(self) -> None:
        self.accepted: set[str] = set()
        self.refusals: dict[str, list[str]] = {}

    def check(self, crdt: type[PureOpCRDT[Any]]) -> None:
        """Raises AssertionError if an operation was never accepted, and so not checked."""
        for name, reasons in self.refusals.items():
            if name in self.accepted:
                continue
            if name not in crdt.OPERATIONS or not self.accepted or len(reasons) >= self.ENOUGH:
                raise AssertionError(
                    f"{crdt.__name__}: {name!r} was refused each of the {len(reasons)} times it "
                    f"was tried, so it was not checked: {reasons[0]}"
                )


class _Run:
    def __init__(
        self,
        crdt: type[PureOpCRDT[Any]],
        schedule: Schedule,
        specification: Specification,
        tried: Tried | None = None,
    ) -> None:
        self.tried = Tried() if tried is None else tried
        self.crdt = crdt
        self.schedule = schedule
        self.specification = specification
        self.group: Group[PureOpCRDT[Any]] = Group(crdt, schedule.members)
        self.steps: list[str] = []
        # Of each set of visible operations: its expected value, the same in every order.
        self.expected: dict[tuple[tuple[str, int], ...], tuple[Any, bytes]] = {}
        self.digests: dict[tuple[tuple[str, int], ...], str] = {}
        self.values: dict[str, bytes] = {}  # of each digest

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:
            error.add_note(f"{self.crdt.__name__}, steps taken:\n{self._taken()}")
            raise

    def _run(self) -> None:
        for action in self.schedule.actions:
            self._step(action)
            if self.schedule.eager:
                self._stabilise_all()
        self._deliver_all()
        self._stabilise_all()
        for member in self.group.members:
            self._restart(member)
            if member.crdt.log_size != 0:
                self._fail(
                    f"{member.name} keeps {member.crdt.log_size} log entries, although all "
                    "operations are stable"
                )
            value = member.crdt.value
            if isinstance(value, (list, dict, set)):
                before = canonical(value)
                value.clear()
                if canonical(member.crdt.value) != before:
                    self._fail("changing a value changed the object: `value` must return a copy")

    def _step(self, action: Action) -> None:
        if isinstance(action, Wait):
            return
        if isinstance(action, Synchronise):
            self._deliver_all()
            return
        member = self.group.members[action.member]
        match action:
            case Issue():
                self._issue(member, action)
            case Deliver():
                ready = self.group.deliverable(member)
                if ready:
                    self._deliver(member, ready[action.choice % len(ready)])
            case Stabilise():
                self._stabilise(member, self.group.can_stabilise(member)[: action.most])
            case Restart():
                self._restart(member)

    def _issue(self, member: ModelReplica[PureOpCRDT[Any]], action: Issue) -> None:
        before = member.crdt.snapshot()
        prepared: list[list[Any]] = []
        for call in action.calls:
            try:
                prepared.append(member.crdt.prepare(call.name, *call.args, after=prepared))
            except InvalidOperationError as refusal:
                self.tried.refusals.setdefault(call.name, []).append(str(refusal))
                return
            else:
                self.tried.accepted.add(call.name)
            finally:
                if member.crdt.snapshot() != before:
                    self._fail(f"preparing {call} changed the state of {member.name}")
        self.steps.append(f"{member.name} issues {', '.join(map(repr, action.calls))}")
        sent = self.group.issue(member, action.calls, compressed=self.schedule.compressed)
        self.steps[-1] += f" as {sent.tag.dot}"
        self._check(member)

    def _deliver(self, member: ModelReplica[PureOpCRDT[Any]], message: Sent) -> None:
        self.steps.append(f"{member.name} delivers {message.tag.dot}")
        self.group.deliver(member, message)
        self._check(member)

    def _deliver_all(self) -> None:
        for member in self.group.members:
            while ready := self.group.deliverable(member):
                self._deliver(member, ready[0])

    def _stabilise(self, member: ModelReplica[PureOpCRDT[Any]], messages: list[Sent]) -> None:
        for message in messages:
            self.steps.append(f"{message.tag.dot} becomes stable at {member.name}")
            self.group.stabilise(member, [message])
            self._check(member)

    def _stabilise_all(self) -> None:
        for member in self.group.members:
            self._stabilise(member, self.group.can_stabilise(member))

    def _restart(self, member: ModelReplica[PureOpCRDT[Any]]) -> None:
        self.steps.append(f"{member.name} restarts from a snapshot")
        snapshot = member.crdt.snapshot()
        restored = self.crdt.restore(snapshot)
        restored.site = member.crdt.site
        if restored.snapshot() != snapshot:
            self._fail(f"the snapshot of {member.name} differs after a restore")
        if restored.log_size != member.crdt.log_size:
            self._fail(f"{member.name} has {restored.log_size} log entries after a restore")
        member.crdt = restored
        self._check(member)

    def _check(self, member: ModelReplica[PureOpCRDT[Any]]) -> None:
        visible = tuple(sorted(member.vector.items()))
        if visible not in self.expected:
            worth = self.specification(tuple(member.visible))
            self.expected[visible] = worth, canonical(worth)
        expected, wanted = self.expected[visible]
        value = member.crdt.value
        encoded = canonical(value)
        if encoded != wanted:
            self._fail(f"{member.name} has the value {value!r}, but should have {expected!r}")
        digest = member.crdt.digest()
        if self.digests.setdefault(visible, digest) != digest:
            self._fail(f"{member.name} has another digest than before, after the same operations")
        if self.values.setdefault(digest, encoded) != encoded:
            self._fail(f"{member.name} has the same digest as for another value")

    def _fail(self, reason: str) -> None:
        raise AssertionError(f"{self.crdt.__name__}: {reason}")

    def _taken(self) -> str:
        return "\n".join(f"  {number:2} {step}" for number, step in enumerate(self.steps, 1))
