"""Clients of the nodes, and what the nodes acknowledged to them.

A client writes to objects of all types that only it writes to, and to a few that all clients write to. An operation
that a node has answered is *acknowledged*; one that broke off, or was refused, is *uncertain*: it may be done or not.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import trio

from crdtcast.chaos.nodes import ChaosHost
from crdtcast.exceptions import CrdtcastError

CHUNK = 2000
"""Operations of a client on one object of each type, before it takes the next object."""
REMOVE_EVERY = 3
"""One in so many operations removes something, if the object allows that."""
PATIENCE = 20.0
"""Seconds for an answer."""

Call = tuple[str, list[Any]]
"""Name and arguments of an operation."""


@dataclass(slots=True)
class Promised:
    """Of one object: how many of its operations were acknowledged, and how many are uncertain.

    elements: those whose addition was acknowledged.
    tried: all that may be in it.
    removed: those whose removal was acknowledged.
    removing: all that a client has tried to remove.
    """

    acknowledged: int = 0
    uncertain: int = 0
    elements: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    removing: set[str] = field(default_factory=set)


class LoadMarks(NamedTuple):
    """A type whose objects show which marks were put into them, so each mark can be judged.

    remove: None if a mark cannot be removed by name.
    """

    type: str
    add: Callable[[str], Call]
    shown: Callable[[Any], Collection[str]]
    remove: Callable[[str], Call] | None = None


class Sums(NamedTuple):
    """A type whose objects show how often something was added."""

    type: str
    add: Call
    shown: Callable[[Any], int]


class Shared(NamedTuple):
    """A type with one object that all clients write to. It shows something that was tried."""

    type: str
    calls: Callable[[str], Sequence[Call]]
    shown: Callable[[Any], Collection[str]] = lambda value: ()


_ONE: Call = ("increment", [1])


def _keys(value: Mapping[str, Any] | None) -> Collection[str]:
    # A key is shown with the type that it holds: ('0000001', 'counter_pn').
    return [key.split("'")[1] for key in value or {}]


def _update(mark: str) -> Call:
    return "update", [mark, "counter_pn", list(_ONE)]


_COUNT = Sums("counter_pn", _ONE, lambda value: value or 0)
KINDS: Mapping[str, LoadMarks | Sums | Shared] = {
    "set": LoadMarks(
        "set_aw", lambda m: ("add", [m]), lambda v: v or (), lambda m: ("remove", [m])
    ),
    "count": _COUNT,
    "last": Shared("register_lww", lambda m: [("assign", [m])], lambda v: [v] if v else ()),
    "rwset": LoadMarks(
        "set_rw", lambda m: ("add", [m]), lambda v: v or (), lambda m: ("remove", [m])
    ),
    "goset": LoadMarks("set_go", lambda m: ("add", [m]), lambda v: v or ()),
    "twoset": LoadMarks(
        "set_2p", lambda m: ("add", [m]), lambda v: v or (), lambda m: ("remove", [m])
    ),
    "map": LoadMarks("map_aw", _update, _keys, lambda m: ("remove", [m, "counter_pn"])),
    "gomap": LoadMarks("map_go", _update, _keys),
    "scores": LoadMarks(
        "map_sorted",
        lambda m: ("set", [m, 1]),
        lambda v: [key for key, _ in v or ()],
        lambda m: ("remove", [m]),
    ),
    "list": LoadMarks("sequence", lambda m: ("insert", [0, m]), lambda v: v or ()),
    "text": LoadMarks("text", lambda m: ("insert", [0, m + " "]), lambda v: (v or "").split()),
    "gocount": Sums("counter_go", _ONE, lambda value: value or 0),
    "recount": Sums("counter_resettable", _ONE, lambda value: value or 0),
    "bounded": Sums("counter_b", _ONE, lambda value: (value or {"total": 0})["total"]),
    "number": Sums("number", _ONE, lambda value: int(value or 0)),
    "several": Shared("register_mv", lambda m: [("assign", [m])], lambda v: v or ()),
    "flag": Shared("flag_ew", lambda m: [("enable", []), ("disable", [])]),
    "warning": Shared("flag_dw", lambda m: [("enable", []), ("disable", [])]),
    "edits": Shared(
        "sequence",
        lambda m: [("insert", [0, m]), ("insert", [0, m]), ("delete", [0])],
        lambda v: v or (),
    ),
}
"""By the prefix of the names of their objects."""


def kind_of(name: str) -> LoadMarks | Sums | Shared:
    """What was written to the object of that name."""
    return KINDS[name.partition("-")[0]]


class LoadClient:
    """Writes at one host, whenever a node runs there."""

    def __init__(self, host: ChaosHost, rate: float) -> None:
        self.host = host
        self.promised: dict[str, Promised] = {}
        self.resting: bool = False
        """Whether it may not write at the moment."""
        self.busy: bool = False
        self._rate = rate
        self._number = 0

    @property
    def acknowledged(self) -> int:
        """Acknowledged operations, over all objects."""
        return sum(each.acknowledged for each in self.promised.values())

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            try:
                async with self.host.operator() as asked:
                    while True:
                        await trio.sleep(1 / self._rate)
                        if not self.resting:
                            self.busy = True
                            try:
                                with trio.fail_after(PATIENCE):
                                    await self._write(asked)
                            finally:
                                self.busy = False
            except (CrdtcastError, trio.TooSlowError, OSError):
                await trio.sleep(0.1)

    async def rest(self) -> None:
        """Write nothing from now on; returns when nothing is under way."""
        self.resting = True
        while self.busy:  # noqa: ASYNC110
            await trio.sleep(0.02)

    async def _write(self, asked: Any) -> None:
        number = self._number
        self._number += 1
        prefix = list(KINDS)[number % len(KINDS)]
        turn = number // len(KINDS)
        kind = KINDS[prefix]
        mark = f"{self.host.name}.{number:07}"
        if isinstance(kind, Shared):
            calls = kind.calls(mark)
            await self._perform(asked, prefix, kind.type, calls[turn % len(calls)], mark)
            return
        name = f"{prefix}-{self.host.name}-{number // CHUNK:04}"
        if isinstance(kind, Sums):
            await self._perform(asked, name, kind.type, kind.add, "")
            return
        gone = self._removable(name) if kind.remove and turn % REMOVE_EVERY == 2 else ""
        if gone and kind.remove:
            self.promised[name].removing.add(gone)
            await self._perform(asked, name, kind.type, kind.remove(gone), "")
            self.promised[name].removed.add(gone)
        else:
            await self._perform(asked, name, kind.type, kind.add(mark), mark)
            self.promised[name].elements.add(mark)

    def _removable(self, name: str) -> str:
        """The first mark that was added and not removed; empty if there is none."""
        promised = self.promised.get(name, Promised())
        return min(promised.elements - promised.removing, default="")

    async def _perform(self, asked: Any, name: str, type_: str, call: Call, mark: str) -> None:
        operation, args = call
        promised = self.promised.setdefault(name, Promised())
        promised.uncertain += 1
        if mark:
            promised.tried.add(mark)
        await asked.ask("perform", name=name, type=type_, operation=operation, args=args)
        promised.uncertain -= 1
        promised.acknowledged += 1


@dataclass(slots=True)
class FoundByLoad:
    """Over all replicas: acknowledged operations that are missing somewhere, those that count more than once or were
    undone, and objects that are not the same everywhere.
    """

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    diverged: list[str] = field(default_factory=list)


def compare(
    clients: Iterable[LoadClient],
    replicas: Mapping[str, Mapping[str, Any]],
    found: FoundByLoad,
    yielded: Iterable[str] = (),
) -> None:
    """Compare what was acknowledged with the values of all objects at each replica, by its name.

    yielded: log lines about operations that were not sent again after an eviction: removals that could remove what they
        have not seen. What they were to remove may still be there.
    """
    lines = list(yielded)
    promised: dict[str, Promised] = {}
    for client in clients:
        for name, own in client.promised.items():
            # A shared object shows what some client has tried.
            promised.setdefault(name, Promised()).tried.update(own.tried)
            if not isinstance(kind_of(name), Shared):
                promised[name] = own
    found.doubled += [
        f"{name} at {replica}, which was never written"
        for replica, objects in sorted(replicas.items())
        for name in sorted(objects.keys() - promised.keys())
    ]
    for name in sorted(promised):
        values = {replica: objects.get(name) for replica, objects in replicas.items()}
        if len({repr(value) for value in values.values()}) > 1:
            found.diverged.append(f"{name}: {values}")
        for replica, value in values.items():
            _judge(name, value, f"at {replica}", promised[name], found, lines)


def _judge(
    name: str,
    value: Any,
    where: str,
    promised: Promised,
    found: FoundByLoad,
    yielded: Sequence[str],
) -> None:
    kind = kind_of(name)
    if isinstance(kind, Sums):
        here, least = kind.shown(value), promised.acknowledged
        what = f"{name} is {here} {where}, but should be {least} to {least + promised.uncertain}"
        if here < least:
            found.lost.append(what)
        elif here > least + promised.uncertain:
            found.doubled.append(what)
        return
    marks = set(kind.shown(value))
    found.doubled += [
        f"{name} has {m} {where}, which was never added" for m in sorted(marks - promised.tried)
    ]
    if isinstance(kind, Shared):
        return
    missing = promised.elements - promised.removing - marks
    found.lost += [f"{name} lacks {mark} {where}" for mark in sorted(missing)]
    if len(marks) < len(kind.shown(value)):
        found.doubled.append(f"{name} has duplicates {where}")
    found.lost += [
        f"{name} has {mark} {where}, although it was removed"
        for mark in sorted(promised.removed & marks)
        if not any(name in line and mark in line for line in yielded)
    ]
