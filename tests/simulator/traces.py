"""Reads the shrunk runs in tests/data/traces: as input for the checker, and as schedules for the simulator."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.baselines.simulator.world import World
from crdtcast.causality.messages import Message
from crdtcast.causality.tags import Dot
from crdtcast.engine import Durability
from crdtcast.simulator.oracle import Checker

DIRECTORY = Path(__file__).parent.parent / "data" / "traces"
MANIFEST: dict[str, list[str]] = json.loads((DIRECTORY / "manifest.json").read_text("utf-8"))

_WORDS = {"send": "sent", "dlv": "delivered", "stb": "stable"}


@dataclass(frozen=True)
class Trace:
    """One run of a file."""

    name: str
    members: tuple[str, ...]
    actions: tuple[str, ...]
    kind: str
    verdict: str
    events: list[list[Any]] | None
    past: dict[str, list[str]] | None = None
    final_known: dict[str, list[str]] | None = None

    def __str__(self) -> str:
        return f"{self.name}-{self.kind}"

    @property
    def named(self) -> tuple[str, list[Dot]]:
        """The member and the messages that the verdict names."""
        found = re.search(r" at (?:quiescence )?([A-Z])\b", self.verdict)
        assert found is not None
        dots = re.findall(r"\('([A-Z])', (\d+)\)", self.verdict)
        return found[1], [Dot(name, int(counter)) for name, counter in dots]

    @property
    def changes_members(self) -> bool:
        return any(action.split()[0] in ("join", "leave", "evict") for action in self.actions)


def load(usage: str) -> list[Trace]:
    """The runs of all files whose manifest entry has a line that begins with `usage`."""
    return [
        trace
        for name, usages in MANIFEST.items()
        if any(line.startswith(usage) for line in usages)
        for trace in _traces(name)
    ]


def _traces(name: str) -> list[Trace]:
    document = json.loads((DIRECTORY / f"{name}.json").read_text("utf-8"))
    members = tuple(document["members"])
    if "events" in document:
        return [
            Trace(
                name,
                members,
                tuple(document["actions"]),
                "ok",
                document["verdict"],
                document["events"],
                document["past"],
                document["final_known"],
            )
        ]
    return [
        Trace(
            name,
            members,
            tuple(t["actions"]),
            t["kind"],
            t.get("verdict", ""),
            t.get("client_events"),
        )
        for t in document["traces"]
        if "actions" in t
    ]


def parse_dot(text: str | list[Any]) -> Dot:
    """`A12` or `["A", 12]`."""
    if isinstance(text, list):
        return Dot(text[0], text[1])
    name = text.rstrip("0123456789")
    return Dot(name, int(text[len(name) :]))


def check(trace: Trace) -> Checker:
    """Feed the application events of a run to the checker, which then takes the run for finished.

    Who was no member from the start has no event for its join: its first state is what it knows in the end and has
    neither sent nor been given, a part of which may have been stable.
    """
    assert trace.events is not None
    checker = Checker(trace.members)
    joined = set(trace.members)
    for word, member, text in trace.events:
        if member not in joined:
            joined.add(member)
            checker.joined(member, *_first_state(trace, member))
        getattr(checker, _WORDS[word])(member, parse_dot(text))
    checker.finish(trace.final_known)
    return checker


def _first_state(trace: Trace, member: str) -> tuple[list[Dot], list[Dot]]:
    assert trace.events is not None
    own = [event for event in trace.events if event[1] == member]
    got = {parse_dot(event[2]) for event in own if event[0] != "stb"}
    told = {parse_dot(event[2]) for event in own if event[0] == "stb"}
    final = {parse_dot(text) for text in (trace.final_known or {}).get(member, [])}
    known = sorted((final | told) - got)
    return known, [dot for dot in known if dot not in told]


def replay(trace: Trace, durability: Durability = Durability.IMMEDIATE) -> World:
    """Carry the scheduling choices of a run over to our engine, as far as they make sense, and let it settle."""
    names = {member: member.lower() for member in trace.members}
    world = World(tuple(names.values()), durability)
    for action in trace.actions:
        _act(world, names, action.split())
    world.drain()
    return world


def _act(world: World, names: dict[str, str], words: list[str]) -> None:
    verb, who = words[0], names.get(words[1], "")
    if verb in ("net", "dup", "drop"):
        a, b = (names.get(name, "") for name in words[1].split(">"))
        place = _place(world, a, b, words[2:])
        if place is not None:
            world.apply((verb, a, b, place))
    elif not who:
        return
    elif verb == "send":
        world.apply(("send", who))
        world.apply(("sync", who))
    elif verb == "cl":
        if not world.apply(("poll", who)):
            world.apply(("stable", who))
    elif verb in ("ph", "mw"):
        world.apply(("tick", who))
        world.apply(("sync", who))
    elif verb == "sync":
        world.apply(("sync", who))
    elif verb in ("restart", "crash"):
        world.apply(("crash", who, 0, 0))
    elif verb in ("cut", "heal"):
        world.apply(({"cut": "cut", "heal": "link"}[verb], who, names[words[2]]))


def _place(world: World, a: str, b: str, words: list[str]) -> int | None:
    """Where in flight from a to b the packet is that the words mean: a message by its dot, else any digest."""
    for place, packet in enumerate(world.network.flights.get((a, b), [])):
        content = packet.content
        if words[0] != "msg":
            if not isinstance(content, Message):
                return place
        elif isinstance(content, Message):
            wanted = parse_dot(words[1])
            name = content.dot.origin.rpartition(".")[0]
            if (name, content.dot.counter) == (wanted.origin.lower(), wanted.counter):
                return place
    return None
