"""Plays the shrunk runs in tests/data/traces to groups whose members come and go: joins, leaves and evictions count."""

from crdtcast.causality.messages import Message
from crdtcast.simulator.group.verdict import drain_and_judge
from crdtcast.simulator.group.world import GroupWorld

from .traces import Trace, parse_dot


def replay_group(trace: Trace) -> GroupWorld:
    """Carry the scheduling choices of a run over to our engine, as far as they make sense, settle, and judge."""
    world = GroupWorld(tuple(member.lower() for member in trace.members))
    # Most runs are of algorithms without a journal: there, what is sent leaves at once.
    holds = any(action.split()[0] == "sync" for action in trace.actions)
    for action in trace.actions:
        _act(world, action.lower().split(), holds)
    drain_and_judge(world)
    return world


def _act(world: GroupWorld, words: list[str], holds: bool) -> None:
    verb, who = words[0], words[1]
    if verb in ("net", "dup", "drop"):
        a, b = who.split(">")
        place = _place(world, a, b, words[2:])
        if place is not None:
            world.apply((verb, a, b, place))
        who = b
    elif verb in ("send", "leave", "sync"):
        world.apply((verb, who))
    elif verb == "cl":
        if not world.apply(("poll", who)):
            world.apply(("stable", who))
    elif verb in ("ph", "mw"):
        world.apply(("tick", who))
    elif verb == "restart":
        world.apply(("crash", who))
    elif verb == "crash":
        world.apply(("die", who))
    elif verb in ("cut", "heal"):
        world.apply(({"cut": "cut", "heal": "link"}[verb], who, words[2]))
    elif verb in ("join", "evict"):
        world.apply((verb, who, words[2]))
        who = words[2] if verb == "join" else who
    if not holds:
        world.apply(("sync", who))


def _place(world: GroupWorld, a: str, b: str, words: list[str]) -> int | None:
    """Where in flight from a to b the packet is that the words mean: a message by its dot, else anything else."""
    for place, parcel in enumerate(world.wires.flights.get((a, b), [])):
        content = parcel.content
        if words[0] in ("dig", "ph", "snap"):
            if not isinstance(content, Message):
                return place
        elif isinstance(content, Message):
            wanted = parse_dot(words[1])
            if (content.dot.origin.partition(".")[0], content.dot.counter) == tuple(wanted):
                return place
    return None
