"""Clients of the nodes, and what was promised to them.

A client adds to a counter and to a set, each its own, and writes a register that all write. What a node has answered is
*acknowledged*; what broke off, or was refused, is *uncertain*: it may have been done or not.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import trio

from crdtcast.chaos.nodes import Host
from crdtcast.exceptions import CrdtcastError

CHUNK = 500
"""Operations on one object; then the client takes a fresh one."""

REGISTER = "last"

PATIENCE = 20.0
"""Seconds for an answer."""


@dataclass(slots=True)
class Promised:
    """Of one counter or set: how many of its operations were acknowledged, and which are uncertain."""

    acknowledged: int = 0
    uncertain: int = 0
    elements: set[str] = field(default_factory=set)
    """Of a set: those acknowledged."""
    tried: set[str] = field(default_factory=set)
    """What may be in the set, or in the register."""


class Client:
    """Writes at one host, as long as a node is there."""

    def __init__(self, host: Host, rate: float) -> None:
        self.host = host
        self.promised: dict[str, Promised] = {}
        self.resting = False
        """Whether it may not write now."""
        self.busy = False
        self._rate = rate
        self._number = 0

    @property
    def acknowledged(self) -> int:
        """Operations of any kind, in all."""
        return sum(each.acknowledged for each in self.promised.values())

    async def run(self) -> None:
        """For ever."""
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
        name = f"{self.host.name}-{number // CHUNK:04}"
        element = text = ""
        args: list[Any]
        match number % 3:
            case 0:
                element = text = f"{number:07}"
                object_, type_, operation, args = "set-" + name, "set_aw", "add", [text]
            case 1:
                object_, type_, operation, args = "count-" + name, "counter_pn", "increment", [1]
            case _:
                text = f"{name} {number}"
                object_, type_, operation, args = REGISTER, "register_lww", "assign", [text]
        promised = self.promised.setdefault(object_, Promised())
        promised.uncertain += 1
        if text:
            promised.tried.add(text)
        await asked.ask("perform", name=object_, type=type_, operation=operation, args=args)
        promised.uncertain -= 1
        promised.acknowledged += 1
        if element:
            promised.elements.add(element)


@dataclass(slots=True)
class Found:
    """Over all replicas: acknowledged operations that are missing somewhere, those that count more than once, and
    objects that are not the same everywhere."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    diverged: list[str] = field(default_factory=list)


def compare(
    clients: Iterable[Client], replicas: Mapping[str, Mapping[str, Any]], found: Found
) -> None:
    """Compare what was promised with the values of all objects at each replica, by its name."""
    promised: dict[str, Promised] = {}
    for client in clients:
        for name, own in client.promised.items():
            # The register is everybody's, and shows one value of all that were tried.
            promised.setdefault(name, Promised()).tried.update(own.tried)
            if name != REGISTER:
                promised[name] = own
    found.doubled += [
        f"{name} at {replica}, which nobody has written"
        for replica, objects in sorted(replicas.items())
        for name in sorted(objects.keys() - promised.keys())
    ]
    for name in sorted(promised):
        each = promised[name]
        values = {replica: objects.get(name) for replica, objects in replicas.items()}
        if len({repr(value) for value in values.values()}) > 1:
            found.diverged.append(f"{name}: {values}")
        for replica, value in values.items():
            if name.startswith("set-"):
                here = set(value or ())
                found.lost += [f"{name} {e} at {replica}" for e in sorted(each.elements - here)]
                found.doubled += [f"{name} {e} at {replica}" for e in sorted(here - each.tried)]
            elif name.startswith("count-"):
                least, most = each.acknowledged, each.acknowledged + each.uncertain
                what = f"{name} is {value or 0} at {replica}, and should be {least} to {most}"
                if (value or 0) < least:
                    found.lost.append(what)
                elif (value or 0) > most:
                    found.doubled.append(what)
            elif value is not None and value not in each.tried:
                found.doubled.append(f"{name} is {value!r} at {replica}, which nobody has written")
