"""Groups whose members come and go, driven by words like those of the traces or by a seed, while the checker watches.

Packets arrive in any order (or in that of each link) and more than once; none is lost, nobody crashes.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from benchmarks.baselines.graph import Phantom
from benchmarks.baselines.graph_dynamic import (
    DynamicGraphEngine,
    GraphOperation,
    GraphSnapshot,
    GraphStanding,
    JoinRefused,
    JoinRequest,
)
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot
from crdtcast.exceptions import LocalProtocolError
from crdtcast.simulator.oracle import Checker
from crdtcast.simulator.oracle import OracleSnapshot as Known

Build: TypeAlias = Callable[[str, Sequence[str]], DynamicGraphEngine]

FOUNDERS = ("A", "B", "C", "D")
JOINERS = ("N", "O", "P", "Q", "R")
PATIENCE = 4
"""Idle rounds after which a group counts as at rest."""

_KINDS = {"msg": 0, "join": GraphOperation.JOIN, "leave": GraphOperation.LEAVE}
_TYPES = {
    "phantom": Phantom,
    "leaveack": Phantom,
    "joinreq": JoinRequest,
    "joinrefused": JoinRefused,
    "joinInit": GraphSnapshot,
}


class Churn:
    """Engines by id, packets by ordered pair. `words` is what has been done so far; `failures` what went wrong."""

    def __init__(self, build: Build, members: Sequence[str]) -> None:
        self._build = build
        self._founders = tuple(members)
        self.engines = {member: build(member, self._founders) for member in members}
        self.checker = Checker(members)
        self.flights: dict[tuple[str, str], list[Any]] = {}
        self.words: list[str] = []
        self.failures: list[str] = []
        self.broken = False
        self.joined = self.left = 0
        self._contexts: dict[Dot, tuple[Dot, ...]] = {}
        self._copies: dict[Dot, Known] = {}
        self._inside = set(members)

    def do(self, word: str) -> bool:
        """Do it; whether it was possible. What an engine raises that is no refusal is a failure of the run."""
        self.words.append(word)
        verb, *rest = word.split()
        try:
            return bool(getattr(self, f"_do_{verb}")(*rest))
        except LocalProtocolError:
            return False
        except Exception as error:
            self._broke(word, error)
            return False

    def _broke(self, what: str, error: Exception) -> None:
        self.broken = True
        self.failures.append(f"exception: {what}: {error!r}")

    def _do_send(self, member: str) -> bool:
        if member not in self.engines:
            return False
        tag = self.engines[member].send(member.encode())
        self._sent(member, tag)
        return True

    def _sent(self, member: str, tag: Any) -> None:
        self._contexts[tag.dot] = tag.context
        self.checker.sent(member, tag.dot, tag)
        self._collect(member)

    def _do_mw(self, member: str) -> bool:
        return False  # what is sent leaves at once

    def _do_cl(self, member: str) -> bool:
        return self._poll(member) or self._stable(member)

    def _do_ph(self, member: str) -> bool:
        if member not in self.engines:
            return False
        self.engines[member].tick()
        self._collect(member)
        return True

    def _do_join(self, joiner: str, contact: str) -> bool:
        if contact not in self.engines or contact == joiner:
            return False
        engine = self.engines.setdefault(joiner, self._build(joiner, self._founders))
        engine.join(contact)
        self._collect(joiner)
        return True

    _do_rejoinreq = _do_join

    def _do_leave(self, member: str) -> bool:
        if member not in self.engines:
            return False
        self._sent(member, self.engines[member].leave())
        return True

    def _do_net(self, link: str, kind: str, dot: str = "", *_: str) -> bool:
        return self._arrive(link, kind, dot, stays=False)

    def _do_dup(self, link: str, kind: str, dot: str = "", *_: str) -> bool:
        return self._arrive(link, kind, dot, stays=True)

    def _arrive(self, link: str, kind: str, dot: str, *, stays: bool) -> bool:
        sender, to = link.split(">")
        flight = self.flights.get((sender, to), [])
        for place, content in enumerate(flight):
            if _is(content, kind, dot):
                self._receive(sender, to, place, stays)
                return True
        return False

    def _receive(self, sender: str, to: str, place: int, stays: bool) -> None:
        flight = self.flights[sender, to]
        content = flight[place] if stays else flight.pop(place)
        engine = self.engines[to]
        engine.receive(sender, content)
        if to not in self._inside and engine.entry is not None:
            self._inside.add(to)
            self.joined += 1
            self.checker.joined_from(to, self._copies[engine.entry])
        self._collect(to)

    def _poll(self, member: str) -> bool:
        if member not in self.engines:
            return False
        delivery = self.engines[member].poll()
        if delivery is None:
            return False
        tag = delivery.tag
        if delivery.local:
            self._sent(member, tag)
            self._copies[tag.dot] = self.checker.snapshot(member)
            return True
        self.checker.delivered(member, tag.dot, tag)
        if tag.context != self._contexts[tag.dot]:
            self.failures.append(f"context: {tag.dot} at {member}: {tag.context}")
        self._collect(member)
        return True

    def _stable(self, member: str) -> bool:
        if member not in self.engines:
            return False
        tags = self.engines[member].poll_stable()
        for tag in tags:
            self.checker.stable(member, tag.dot)
        self._collect(member)
        return bool(tags)

    def _collect(self, member: str) -> None:
        for transmit in self.engines[member].take_outbox():
            assert transmit.to is not None
            if transmit.to in self.engines:
                self.flights.setdefault((member, transmit.to), []).append(transmit.message)

    def _here(self) -> list[str]:
        return [
            m for m, engine in self.engines.items() if engine.standing is not GraphStanding.LEFT
        ]

    def drain(self) -> list[str]:
        """Let everything that can happen happen, in order, until nothing more does; then judge the whole run."""
        idle = 0
        while idle < PATIENCE and not self.broken:
            progress = 0
            for member in self.engines:
                self.do(f"ph {member}")
            for (sender, to), flight in sorted(self.flights.items()):
                while flight and not self.broken:
                    progress += self._arrives_first(sender, to)
            for member in self.engines:
                while not self.broken and self.do(f"cl {member}"):
                    progress += 1
            idle = 0 if progress else idle + 1
        if self.broken:
            self.failures += map(str, self.checker.findings)
        else:
            self._judge()
        return self.failures

    def _arrives_first(self, sender: str, to: str) -> int:
        try:
            self._receive(sender, to, 0, stays=False)
        except Exception as error:
            self._broke(f"{sender}>{to}", error)
        return 1

    def _judge(self) -> None:
        here = self._here()
        self.left = len(self.engines) - len(here)
        for member in here:
            standing = self.engines[member].standing
            if standing in (GraphStanding.ASKING, GraphStanding.JOINING):
                self.failures.append(f"join-inactive: {member}")
            elif standing is GraphStanding.LEAVING:
                self.failures.append(f"leave-hang: {member}")
        inside = [member for member in here if member in self._inside]
        self.failures += map(str, self.checker.finish(inside))
        for member in inside:
            if not self.failures and not self.engines[member].quiet:
                self.failures.append(f"unquiet: {member}")

    @property
    def kinds(self) -> set[str]:
        """The kinds of failures."""
        return {failure.partition(":")[0] for failure in self.failures}


def _is(content: Any, kind: str, dot: str) -> bool:
    if kind in _KINDS:
        return (
            type(content) is Message
            and content.kind == _KINDS[kind]
            and "".join(map(str, content.dot)) == dot
        )
    if type(content) is not _TYPES[kind]:
        return False
    return kind != "phantom" or "".join(map(str, content.dot)) == dot


def replay(build: Build, members: Sequence[str], words: Sequence[str]) -> Churn:
    """The run that the `words` of a trace make, drained and judged. What is impossible does nothing."""
    made = Churn(build, members)
    for word in words:
        made.do(word)
    made.drain()
    return made


def random_churn(
    build: Build,
    founders: int,
    seed: int,
    *,
    steps: int = 140,
    fifo: bool = False,
    changes: Sequence[str] = ("join", "leave"),
) -> Churn:
    """A run that `seed` fixes, drained and judged. `changes`: what happens to membership (rejoin: ask once more)."""
    rng = random.Random(seed)
    made = Churn(build, FOUNDERS[:founders])
    verbs = ["send", "net", "cl", "ph", "dup", *changes]
    weights = [rng.uniform(0.5, 3), rng.uniform(1, 9), rng.uniform(1, 9), rng.uniform(0.1, 1.5)]
    weights += [0 if fifo else rng.uniform(0, 1), *(rng.uniform(0.1, 0.6) for _ in changes)]
    joiners = list(JOINERS)
    for verb in rng.choices(verbs, weights, k=steps):
        members = list(made.engines)
        if verb in ("net", "dup"):
            links = [link for link, flight in sorted(made.flights.items()) if flight]
            if links:
                sender, to = rng.choice(links)
                place = 0 if fifo else rng.randrange(len(made.flights[sender, to]))
                content = made.flights[sender, to][place]
                made.do(f"{verb} {sender}>{to} {_name(content)}")
        elif verb == "join":
            if joiners:
                made.do(f"join {joiners.pop(0)} {rng.choice(members)}")
        elif verb == "rejoin":
            asking = [m for m, e in made.engines.items() if e.standing is GraphStanding.ASKING]
            if asking:
                made.do(f"rejoinreq {rng.choice(asking)} {rng.choice(members)}")
        elif verb == "leave":
            if len(made._here()) > 2:
                made.do(f"leave {rng.choice(members)}")
        else:
            made.do(f"{verb} {rng.choice(members)}")
        if made.broken:
            break
    made.drain()
    return made


def _name(content: Any) -> str:
    if type(content) is Message:
        kind = next(word for word, number in _KINDS.items() if number == content.kind)
        return f"{kind} {content.dot.origin}{content.dot.counter}"
    word = next(word for word, kind in _TYPES.items() if kind is type(content))
    return f"{word} {content.dot.origin}{content.dot.counter}" if word == "phantom" else word
