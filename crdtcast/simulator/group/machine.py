"""One machine of a simulated group: its process, its journal, and its former incarnations.

The outbox is held until `sync`, which saves everything at one instant and then releases it. A crash loses what came
since the sync. Nothing of that has left, so the same incarnation continues from the journal.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from crdtcast.causality.member_id import new_incarnation
from crdtcast.causality.messages import Transmit
from crdtcast.causality.tags import Dot
from crdtcast.engine.group import Admission, GroupEngine
from crdtcast.engine.level import PROGRAM, Span
from crdtcast.engine.membership import GroupState, Standing
from crdtcast.engine.reissue import Parked
from crdtcast.engine.views import NO_BALLOT
from crdtcast.simulator.group.application import ApplicationCopy, SimulatedApplication
from crdtcast.simulator.oracle import OracleSnapshot as KnownThen

MAX_COMMITS = 4


class MachinePhase(enum.Enum):
    """What a machine is doing."""

    OUTSIDE = "outside"  # no process: the machine has not joined yet, or has to join again
    FOUNDING = "founding"  # a process runs, but its group has not begun
    UP = "up"
    LEFT = "left"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class MachineCommit:
    """What the journal holds, at one instant."""

    state: GroupState
    application: SimulatedApplication
    parked: Parked | None
    position: int  # events of the application so far, see `Checker.position`
    issued: int  # acknowledged operations of this node, see `Ledger`

    def is_behind(self, other: "MachineCommit") -> bool:
        """Whether the same incarnation has sent others something since that this commit does not have."""
        mine, later = self.state, other.state
        return mine.vector != later.vector or mine.record != later.record


@dataclass(slots=True)
class LostVotes:
    """The votes that a machine forgot when its disk was set back.

    serial: of the record from which it continued.
    until: the last epoch in which it may have voted without knowing.
    voted: whether it has voted in such an epoch since.
    """

    serial: int
    until: int
    voted: bool = False

    @classmethod
    def between(cls, commit: MachineCommit, last: MachineCommit) -> "LostVotes":
        """The votes since the older commit."""
        old, new = commit.state.record, last.state.record
        assert old is not None and new is not None
        if (old.epoch, old.promised, old.accepted) == (new.epoch, new.promised, new.accepted):
            return cls(old.serial, -1)
        return cls(old.serial, new.epoch if new.promised != NO_BALLOT else new.epoch - 1)


@dataclass(frozen=True, slots=True)
class Letter:
    """What a contact sends to a joiner: one instant of its engine and of its application."""

    admission: Admission
    base: str
    application: Mapping[bytes, Dot]
    removed: frozenset[bytes]
    known: KnownThen
    bulk: int | None = None  # the copy that it completes


@dataclass(slots=True)
class Machine:
    """State of one machine. `number` changes with every process; `me` is its current or last incarnation."""

    name: str
    witness: bool = False
    reads: Span = PROGRAM
    """The format levels that its program reads."""
    ghost: bool = False
    phase: MachinePhase = MachinePhase.OUTSIDE
    number: int = 0
    me: str = ""
    engine: GroupEngine | None = None
    application: SimulatedApplication = field(default_factory=SimulatedApplication)
    held: list[tuple[str | None, object]] = field(default_factory=list)
    commits: list[MachineCommit] = field(
        default_factory=list
    )  # of this incarnation, the newest last
    backup: MachineCommit | None = None
    """A snapshot of its disk, of this incarnation."""
    lost_votes: LostVotes | None = None
    parked: Parked | None = None
    # To join: a base, the contact asked under it, the incarnations that it replaces, and a copy fetched before.
    base: str | None = None
    asked: str | None = None
    replaces: tuple[str, ...] = ()
    bulk: ApplicationCopy | None = None
    bulks: int = 0
    bases: int = 0
    lost: bool = False
    """Whether the machine is dead, so that what only it had may be lost."""
    former: list[tuple[str, MachineCommit]] = field(default_factory=list)
    told_ended: dict[str, int] = field(default_factory=dict)
    doubles: list[str] = field(default_factory=list)
    """Operations that the application of this process got a second time."""

    @property
    def running(self) -> GroupEngine:
        """The engine of the running process."""
        assert self.engine is not None
        return self.engine

    @property
    def up(self) -> bool:
        """Whether a process runs."""
        return self.phase is MachinePhase.UP

    @property
    def active(self) -> bool:
        """Whether a process runs that takes itself for a member, and does not leave."""
        return self.up and self.running.standing.can_send

    @property
    def stopped(self) -> bool:
        """Whether the running process has learned that it was evicted."""
        return self.up and self.running.standing is Standing.EVICTED

    def new_base(self) -> str:
        """A base that this machine has never used."""
        self.bases += 1
        return new_incarnation(self.name, self.bases, 0)

    def start(self, engine: GroupEngine, application: SimulatedApplication) -> None:
        """Start a process."""
        self.phase = MachinePhase.UP
        self.number += 1
        self.engine = engine
        self.me = engine.me
        self.application = application
        self.held = []
        self.told_ended = {}
        self.doubles = []

    def stop(self, phase: MachinePhase) -> None:
        """Stop the process. What it held never leaves."""
        self.phase = phase
        self.number += 1
        self.engine = None
        self.held = []

    def hold(self, effects: list[Transmit]) -> None:
        """Hold these until the next sync."""
        self.held += [(effect.to, effect.message) for effect in effects]

    def save(self, position: int, issued: int) -> None:
        """Save everything in the journal."""
        self.commits.append(
            MachineCommit(
                self.running.state(), self.application.copy(), self.parked, position, issued
            )
        )
        del self.commits[:-MAX_COMMITS]

    def resumed(self, commit: MachineCommit, engine_type: type[GroupEngine]) -> None:
        """The same incarnation continues from a commit."""
        self.parked = commit.parked
        self.start(engine_type(self.me, commit.state, self.reads), commit.application.copy())

    def retire(self, replaces: tuple[str, ...]) -> None:
        """End this incarnation; the machine must join again as a new one, which replaces `replaces`."""
        if self.commits:
            self.former.append((self.me, self.commits[0]))
        self.stop(MachinePhase.OUTSIDE)
        self.backup = self.lost_votes = None
        self.commits = []
        self.base = self.asked = self.bulk = None
        self.replaces = replaces
