"""Clean event logs made up from the definitions: causal broadcast of a whole group in one loop.

Written against the definitions of causal delivery and stability, not against the engine, so that
the two can be held against each other. Seeded; the same settings give the same logs.
"""

import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from crdtcast.causality.tags import Dot, covers, merge_into
from crdtcast.eventlog.format import COLUMNS, SCHEMA_VERSION, Event, EventKind, segment_name

Logs = dict[str, list[Event]]
"""Incarnation -> its events in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What happens in a made-up group.

    :param cut: how often a replica is cut off from all others for a while.
    :param restarts: how often a replica restarts under the same incarnation.
    :param supersedes: how often one loses what it had not synced and comes back as a new one.
    :param killed: how many end without a STOP.
    :param at_rest: False ends the logs in the middle of everything.
    """

    group: str = "g"
    replicas: int = 3
    messages: int = 60
    objects: int = 5
    seed: int = 0
    cuts: int = 1
    restarts: int = 0
    supersedes: int = 0
    killed: int = 0
    at_rest: bool = True


@dataclass(frozen=True, slots=True)
class _Message:
    dot: Dot
    context: tuple[Dot, ...]
    object: int


@dataclass(slots=True)
class _Saved:
    """What a replica would find on its disk after a crash."""

    vector: dict[str, int]
    context: set[Dot]
    stable: dict[str, int]
    unstable: list[Dot]
    objects: dict[int, tuple[dict[str, int], int]]


@dataclass(slots=True)
class _Replica:
    name: str
    incarnation: str
    vector: dict[str, int] = field(default_factory=dict)
    context: set[Dot] = field(default_factory=set)
    rows: dict[str, dict[str, int]] = field(default_factory=dict)  # by name of the member
    stable: dict[str, int] = field(default_factory=dict)
    unstable: list[Dot] = field(default_factory=list)
    objects: dict[int, tuple[dict[str, int], int]] = field(default_factory=dict)
    cut_until: int = 0
    saved: _Saved | None = None

    def save(self) -> None:
        self.saved = self.copy()

    def copy(self) -> _Saved:
        return _Saved(
            dict(self.vector),
            set(self.context),
            dict(self.stable),
            list(self.unstable),
            {key: (dict(vector), value) for key, (vector, value) in self.objects.items()},
        )


class MadeUpGroup:
    """A group that runs as `settings` say; `logs` are the result."""

    def __init__(self, settings: Settings) -> None:
        self.logs: Logs = {}
        self._settings = settings
        self._random = random.Random(settings.seed)
        self._now = 1_700_000_000_000_000
        self._step = 0
        self._generation = 0
        self._messages: dict[Dot, _Message] = {}
        # What may be seen by others: a message leaves its sender only after a save.
        self._released: dict[str, int] = {}
        self._replicas = [
            _Replica(f"r{index:02d}", self._incarnation(f"r{index:02d}"))
            for index in range(settings.replicas)
        ]
        self._names = [replica.name for replica in self._replicas]
        for replica in self._replicas:
            self._start(replica)
            replica.save()
        self._run()

    def _incarnation(self, name: str) -> str:
        self._generation += 1
        return f"{name}.{self._generation:016x}"

    # --- the run --------------------------------------------------------------------------------

    def _run(self) -> None:
        settings, draw = self._settings, self._random
        misfortunes = self._misfortunes()
        sent = 0
        while sent < settings.messages:
            self._step += 1
            replica = draw.choice(self._replicas)
            if misfortunes and draw.random() < len(misfortunes) / (settings.messages - sent + 1):
                getattr(self, misfortunes.pop())(replica)
                continue
            action = draw.random()
            if action < 0.25:
                self._send(replica)
                sent += 1
            elif action < 0.85:
                for _ in range(draw.randint(1, settings.replicas)):
                    self._deliver_one(replica)
            elif action < 0.95:
                replica.save()
                self._release(replica)
                self._spread_digest(replica)
            else:
                self._report(replica)
        for name in misfortunes:
            getattr(self, name)(draw.choice(self._replicas))
        if settings.at_rest:
            self._come_to_rest()

    def _misfortunes(self) -> list[str]:
        settings = self._settings
        misfortunes = ["_cut"] * settings.cuts + ["_restart"] * settings.restarts
        misfortunes += ["_supersede"] * settings.supersedes
        self._random.shuffle(misfortunes)
        return misfortunes

    def _come_to_rest(self) -> None:
        for replica in self._replicas:
            replica.cut_until = 0
        for replica in self._replicas:
            replica.save()
            self._release(replica)
        for replica in self._replicas:
            while self._deliver_one(replica):
                pass
            replica.save()
        for replica in self._replicas:
            self._spread_digest(replica, stabilise=False)
        for replica in self._replicas:
            self._stabilise(replica)
            assert not replica.unstable, f"made-up group never settles, seed {self._settings.seed}"
            for key in sorted(replica.objects):
                self._state(replica, key)
            self._log(replica, EventKind.GC, bytes_before=900, bytes_after=120, entries=0)
        for replica in self._replicas[self._settings.killed :]:
            self._log(replica, EventKind.STOP, entries=0)

    # --- what a replica does --------------------------------------------------------------------

    def _start(self, replica: _Replica, *, told: bool = False) -> None:
        self.logs.setdefault(replica.incarnation, [])
        stable = tuple(Dot(*item) for item in sorted(replica.stable.items())) if told else None
        self._log(
            replica,
            EventKind.START,
            vector=dict(replica.vector),
            op=json.dumps(self._names),
            deps=stable,
        )

    def _send(self, replica: _Replica) -> None:
        me = replica.incarnation
        dot = Dot(me, replica.vector.get(me, 0) + 1)
        key = self._random.randrange(self._settings.objects)
        message = _Message(dot, tuple(sorted(replica.context)), key)
        self._messages[dot] = message
        self._log(
            replica, EventKind.SEND, origin=dot.origin, counter=dot.counter, deps=message.context
        )
        self._apply(replica, message)
        replica.context = {dot}

    def _release(self, replica: _Replica) -> None:
        assert replica.saved is not None
        merge_into(
            self._released, {replica.incarnation: replica.saved.vector.get(replica.incarnation, 0)}
        )

    def _deliver_one(self, replica: _Replica) -> bool:
        """Deliver some message that may be delivered, if there is one."""
        if replica.cut_until > self._step:
            return False
        origins = list(self._released)
        first = self._random.randrange(len(origins)) if origins else 0
        for origin in origins[first:] + origins[:first]:
            due = Dot(origin, replica.vector.get(origin, 0) + 1)
            if due.counter > self._released[origin] or self._is_cut(origin):
                continue
            message = self._messages[due]
            if all(covers(replica.vector, dot) for dot in message.context):
                self._log(replica, EventKind.DELIVER, origin=due.origin, counter=due.counter)
                self._apply(replica, message)
                replica.context -= set(message.context)
                replica.context.add(due)
                return True
        return False

    def _is_cut(self, origin: str) -> bool:
        return any(r.incarnation == origin and r.cut_until > self._step for r in self._replicas)

    def _apply(self, replica: _Replica, message: _Message) -> None:
        origin, counter = message.dot
        replica.vector[origin] = counter
        replica.unstable.append(message.dot)
        touched, value = replica.objects.get(message.object, ({}, 0))
        touched = {**touched, origin: counter}
        effect = blake2b(str(message.dot).encode(), digest_size=8).digest()
        replica.objects[message.object] = (touched, value ^ int.from_bytes(effect))

    def _spread_digest(self, replica: _Replica, *, stabilise: bool = True) -> None:
        """Tell the others what is saved; who lacks a message sent before does not take it."""
        assert replica.saved is not None
        if replica.cut_until > self._step:
            return
        told = replica.saved.vector
        mine = [o for o in told if o.rpartition(".")[0] == replica.name]
        for other in self._replicas:
            known = all(other.vector.get(o, 0) >= told[o] for o in mine)
            if other is not replica and other.cut_until <= self._step and known:
                other.rows[replica.name] = told
                if stabilise:
                    self._stabilise(other)

    def _stabilise(self, replica: _Replica) -> None:
        rows = [replica.rows.get(name, {}) for name in self._names if name != replica.name]
        left: list[Dot] = []
        for dot in replica.unstable:
            if all(covers(row, dot) for row in rows):
                replica.stable[dot.origin] = dot.counter
                self._log(replica, EventKind.STABLE, origin=dot.origin, counter=dot.counter)
            else:
                left.append(dot)
        replica.unstable = left

    def _report(self, replica: _Replica) -> None:
        if replica.objects:
            self._state(replica, self._random.choice(sorted(replica.objects)))
        left = len(replica.unstable)
        self._log(
            replica,
            EventKind.GC,
            bytes_before=200 * left + 300,
            bytes_after=200 * left,
            entries=left,
        )

    def _state(self, replica: _Replica, key: int) -> None:
        touched, value = replica.objects[key]
        self._log(
            replica, EventKind.STATE, object=f"o{key}", vector=dict(touched), digest=f"{value:016x}"
        )

    # --- misfortunes ----------------------------------------------------------------------------

    def _cut(self, replica: _Replica) -> None:
        replica.cut_until = self._step + self._random.randint(20, 120)

    def _restart(self, replica: _Replica) -> None:
        """The journal is intact: the same incarnation goes on, and learns its rows again."""
        replica.rows = {}
        self._start(replica)

    def _supersede(self, replica: _Replica) -> None:
        """What was not saved is gone; a new incarnation starts from the rest."""
        saved = replica.saved
        assert saved is not None
        replica.incarnation = self._incarnation(replica.name)
        replica.rows = {}
        replica.vector, replica.context = dict(saved.vector), set(saved.context)
        replica.stable, replica.unstable = dict(saved.stable), list(saved.unstable)
        replica.objects = saved.objects
        for other in self._replicas:
            other.rows.pop(replica.name, None)
        self._start(replica, told=True)
        replica.save()

    # --- lines ----------------------------------------------------------------------------------

    def _log(
        self,
        replica: _Replica,
        kind: EventKind,
        *,
        origin: str | None = None,
        counter: int | None = None,
        deps: tuple[Dot, ...] | None = None,
        vector: dict[str, int] | None = None,
        object: str | None = None,
        op: str | None = None,
        digest: str | None = None,
        bytes_before: int | None = None,
        bytes_after: int | None = None,
        entries: int | None = None,
    ) -> None:
        self._now += self._random.randint(10, 2000)
        log = self.logs[replica.incarnation]
        log.append(
            Event(
                version=SCHEMA_VERSION,
                group=self._settings.group,
                replica=replica.name,
                incarnation=replica.incarnation,
                seq=len(log) + 1,
                ts=self._now,
                kind=kind,
                origin=origin,
                counter=counter,
                deps=deps,
                vector=vector,
                object=object,
                op=op,
                digest=digest,
                bytes_before=bytes_before,
                bytes_after=bytes_after,
                entries=entries,
            )
        )


def make_up(settings: Settings) -> Logs:
    """Clean logs of a group."""
    return MadeUpGroup(settings).logs


def line(event: Event) -> str:
    """The line, without its newline, that `EventLog` would write for this event."""
    row: dict[str, object] = {}
    for name in COLUMNS:
        value = getattr(event, name)
        if name in ("deps", "cuts") and value is not None:
            row[name] = [each._asdict() for each in value]
        elif name == "reissues" and value is not None:
            row[name] = value._asdict()
        elif value is not None:
            row[name] = value
    return json.dumps(row, separators=(",", ":"))


def write_logs(directory: Path, logs: Mapping[str, Iterable[Event]]) -> None:
    """Write each incarnation's events as one sealed segment."""
    directory.mkdir(parents=True, exist_ok=True)
    for incarnation, events in logs.items():
        told = list(events)
        if told:
            first = told[0]
            name = segment_name(first.group, first.replica, incarnation, first.seq)
            (directory / name).write_text("".join(line(event) + "\n" for event in told))
